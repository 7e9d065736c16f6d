"""Data larger than memory: an HDF5 file is written by chunks, and read by whole chunks, each once an epoch.

    pip install ".[examples,onednn]" && python examples/gallery/larger_than_memory.py

Sixteen moved copies of each digit lie in the file as uint8. 5 epochs, shuffled within a window of 256 KiB, give 97 %
or more of a held-out fifth; the process never holds the 1.4 MiB of the set.

Porting: where Keras wants a Sequence or tf.data, fit takes the HDF5 data sets themselves; shuffle_window= takes the
place of shuffle(buffer_size), in bytes. uint8 is converted batch by batch.
"""

import tempfile
from pathlib import Path

import h5py
import numpy as np
from bundled import digits, planned_kib, show

from singa_lite import FeedForwardNet, layers, optimizer


def write(path: Path, x: np.ndarray, y: np.ndarray, copies: int) -> None:
    """x, moved by at most a pixel in each copy, in chunks of 64 samples."""
    random, size = np.random.default_rng(0), copies * len(x)
    with h5py.File(path, "w") as file:
        pictures = file.create_dataset("x", (size, 1, 8, 8), "uint8", chunks=(64, 1, 8, 8), compression="gzip")
        labels = file.create_dataset("y", (size,), "uint8", chunks=(64,))
        for copy in range(copies):
            here = slice(copy * len(x), (copy + 1) * len(x))
            moved = np.roll(x, random.integers(-1, 2, 2) if copy else (0, 0), axis=(2, 3))
            pictures[here], labels[here] = moved * 16, y


def build() -> FeedForwardNet:
    """A small convolutional net over pictures from 0 to 16."""
    net = FeedForwardNet("softmax_cross_entropy", "accuracy", seed=0)
    net.add(layers.Rescaling(scale=1 / 16, input_sample_shape=(1, 8, 8)))
    net.add(layers.Conv2D(32, 3))
    net.add(layers.Activation(mode="relu"))
    net.add(layers.MaxPooling2D(2, 2, "valid"))
    net.add(layers.Flatten())
    net.add(layers.Dense(10))
    return net


def main(epochs: int = 5, copies: int = 16) -> dict[str, float]:
    """Write the file, and train from it."""
    x, x_test, y, y_test = digits()
    net = build()
    net.compile(optimizer.Adam(lr=2e-3))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.h5"
        write(path, x, y, copies)
        with h5py.File(path) as file:
            net.fit(file["x"], file["y"], 64, epochs, shuffle_window="256 KiB", prefetch=2, verbose=False)
            size = file["x"].nbytes
    _, accuracy = net.evaluate(x_test * 16, y_test)
    return {"accuracy": accuracy, "KiB of samples": size / 1024, "planned KiB": planned_kib(net, 64)}


if __name__ == "__main__":
    show(main())
