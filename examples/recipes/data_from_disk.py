"""Data that stays on disk: HDF5 read by batches, as uint8, transformed on the way.

python examples/recipes/data_from_disk.py
"""

import tempfile
from pathlib import Path

import h5py
import numpy as np

from singa_lite import FeedForwardNet, layers, optimizer
from singa_lite.data import transforms

random = np.random.default_rng(0)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "images.h5"
    labels = random.integers(0, 2, 200)
    images = random.integers(0, 128, (200, 1, 6, 7), np.uint8) + (labels * 120)[:, None, None, None].astype(np.uint8)
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=images, chunks=(50, 1, 6, 7))
        file["labels"] = labels

    net = FeedForwardNet("softmax_cross_entropy", "accuracy", seed=1)
    net.add(layers.Rescaling("scale", 1 / 255, input_sample_shape=(1, 6, 7)))
    net.add(layers.Flatten())
    net.add(layers.Dense(2))
    net.compile(optimizer.Adam(0.05))
    with h5py.File(path, "r") as file:
        x, y = file["images"], file["labels"]
        net.fit(x, y, epochs=10, transform=transforms.RandomFlip(), workers=2, prefetch=2, verbose=False)
        value, accuracy = net.evaluate(x, y)
print(f"accuracy {accuracy:.2f}")
