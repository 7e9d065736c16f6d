"""Keras's mnist_transfer_cnn: learn the digits 0 to 4, freeze the convolutions, and learn 5 to 9 with a new head.

    pip install ".[examples,onednn]" && python examples/gallery/transfer_learning.py

From 10 pictures a class, the loaded and frozen convolutions give 80 % of the others, random ones 60 %.

Porting: layer.trainable = False works as in Keras, and at once, without a compile behind it.
load_weights(by_name=True, skip_mismatch=True) is load(path, layers=[...]), which returns what it left out.
"""

import tempfile
from pathlib import Path

import numpy as np
from bundled import digits, planned_kib, show

from singa_lite import FeedForwardNet, layers, optimizer

FEATURES = ["conv1", "conv2"]


def build() -> FeedForwardNet:
    """Two convolutions, named so that they can be loaded, and a head of five classes."""
    net = FeedForwardNet("softmax_cross_entropy", "accuracy", seed=0)
    net.add(layers.Conv2D("conv1", 32, 3, input_sample_shape=(1, 8, 8)))
    net.add(layers.Activation(mode="relu"))
    net.add(layers.MaxPooling2D(2, 2, "valid"))
    net.add(layers.Conv2D("conv2", 16, 3, 2))
    net.add(layers.Activation(mode="relu"))
    net.add(layers.Flatten())
    net.add(layers.Dense("head", 5))
    net.compile(optimizer.Adam(lr=3e-3))
    return net


def fine_tuned(
    net: FeedForwardNet, x: np.ndarray, y: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, epochs: int
) -> float:
    """Accuracy, with all but the head as it is."""
    for name in FEATURES:
        net.layers[name].trainable = False
    net.fit(x, y, batch_size=10, epochs=epochs, verbose=False)
    return net.evaluate(x_test, y_test)[1]


def main(epochs: int = 15, few: int = 10) -> dict[str, float]:
    """Train on the low digits, then on a few of each of the high ones."""
    x, x_test, y, y_test = digits()
    low, high, high_test = y < 5, np.flatnonzero(y >= 5), y_test >= 5
    first = build()
    first.fit(x[low], y[low], batch_size=32, epochs=epochs, verbose=False)
    seen = np.concatenate([high[y[high] == digit][:few] for digit in range(5, 10)])
    data = x[seen], y[seen] - 5, x_test[high_test], y_test[high_test] - 5
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "low.h5"
        first.save(path)
        second = build()
        left = second.load(path, layers=FEATURES)
    low_accuracy = first.evaluate(x_test[~high_test], y_test[~high_test])[1]
    loaded, fresh = (fine_tuned(net, *data, 2 * epochs) for net in (second, build()))
    return {
        "low digits": low_accuracy,
        "high digits": loaded,
        "from random convolutions": fresh,
        "left out of the file": len(left.unused),
        "planned KiB": planned_kib(second, 10),
    }


if __name__ == "__main__":
    show(main())
