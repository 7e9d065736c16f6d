"""Image classification from scratch: a folder of PNG files for each class, read as batches want them.

    pip install ".[examples,data,onednn]" && python examples/gallery/image_folder.py

Writes the digits as files first. 12 epochs of pictures that are moved and turned give 97 % or more of the held-out
files.

Porting: image_dataset_from_directory is data.image_folder(folder, (height, width)); augmentation is fit(transform=),
done by workers on uint8, not by layers of the net; Rescaling is a layer in both. RandomRotation's angle is in
degrees.
"""

import tempfile
from pathlib import Path

import numpy as np
from bundled import digits, planned_kib, show
from PIL import Image

from singa_lite import FeedForwardNet, data, layers, optimizer
from singa_lite.data import transforms


def write(folder: Path, pictures: np.ndarray, labels: np.ndarray) -> None:
    """folder/3/17.png is a 3."""
    for number, (picture, label) in enumerate(zip(pictures, labels, strict=True)):
        path = folder / str(label) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((picture[0] * 255).astype(np.uint8)).save(path)


def build() -> FeedForwardNet:
    """A small convolutional net over grey pictures of 8 x 8 from 0 to 255."""
    net = FeedForwardNet("softmax_cross_entropy", "accuracy", seed=0)
    net.add(layers.Rescaling(scale=1 / 255, input_sample_shape=(1, 8, 8)))
    for width in (16, 32):
        net.add(layers.Conv2D(width, 3))
        net.add(layers.BatchNormalization())
        net.add(layers.Activation(mode="relu"))
    net.add(layers.MaxPooling2D(2, 2, "valid"))
    net.add(layers.Flatten())
    net.add(layers.Dense(10))
    return net


def main(epochs: int = 12) -> dict[str, float]:
    """Write the files, train on one folder, evaluate on the other."""
    x, x_test, y, y_test = digits()
    augment = transforms.Compose([transforms.RandomCrop(8, padding=1), transforms.RandomRotation(10)])
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, "train"), x, y)
        write(Path(folder, "test"), x_test, y_test)
        train = data.image_folder(Path(folder, "train"), (8, 8), channels=1)
        test = data.image_folder(Path(folder, "test"), (8, 8), channels=1)
        net = build()
        net.compile(optimizer.Adam(lr=2e-3))
        net.fit(train, batch_size=32, epochs=epochs, transform=augment, workers=2, verbose=False)
        _, accuracy = net.evaluate(test)
    return {"accuracy": accuracy, "files": len(y) + len(y_test), "planned KiB": planned_kib(net)}


if __name__ == "__main__":
    show(main())
