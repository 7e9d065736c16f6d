"""Data larger than memory: bytes that an epoch reads of an HDF5 file, and how long steps wait for transforms.

    python benchmarks/data_loading.py [--gigabytes 20] [--steps 60]

Reading: a file whose chunks are there and hold nothing (a sparse file: no disk is needed), read through a file object
that counts bytes, by `net.fit`. Wanted: at most 1.05 times the set's bytes, shuffled or not.

Waiting: a convolutional net behind random crops, flips and colours, done so many times that they take a third of its
step. Told are the share of an epoch that `fit` waited for batches, first batch included, and the epoch's time over that
of one without transforms, without workers, with a thread and with a process. Wanted: less than 3 % waited with workers.
A process needs a core of its own: where all cores are at work, the step is slowed by what the transforms take from it.
The exit status is 1 where a figure is missed.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from singa_lite import FeedForwardNet, data, device, layers, loss, optimizer
from singa_lite.data import transforms
from singa_lite.fit import Callback, Training
from tiny import TINY, parsed

SHAPE = (3, 32, 32)
CHUNK = 64
MOST_READ, MOST_WAITED = 1.05, 0.03


class Counted(io.FileIO):
    """A file that counts the bytes that are read of it."""

    read_bytes = 0

    def readinto(self, buffer: Any) -> int:
        """As the file's own."""
        count = super().readinto(buffer)
        self.read_bytes += count
        return count


def sparse_set(path: Path, count: int) -> int:
    """Write an HDF5 file of so many samples, all zeros that take no room; returns their bytes."""
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    settings.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (count, *SHAPE), "f", chunks=(CHUNK, *SHAPE), dcpl=settings)
        y = file.create_dataset("y", data=np.arange(count) % 2)
        return int(x.nbytes + y.nbytes)


def read_share(gigabytes: float, shuffle: bool) -> float:
    """Bytes read in an epoch, over those of the set."""
    count = int(gigabytes * 1e9 / (4 * np.prod(SHAPE)))
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), seed=1)
    net.add(layers.Cropping2D("corner", (0, 31, 0, 31), input_sample_shape=SHAPE))  # whose step costs next to nothing
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("out", 2))
    net.compile(optimizer.SGD(lr=0.1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "set.h5"
        total = sparse_set(path, count)
        with Counted(path, "r") as raw, h5py.File(raw, "r") as file:
            net.fit(file["x"], file["y"], 1024, shuffle=shuffle, verbose=False, prefetch=1)
            return raw.read_bytes / total


class Repeated:
    """A transform done several times, so that it takes as long as wanted."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.once = transforms.Compose(
            [transforms.RandomCrop(32, padding=4), transforms.RandomFlip(), transforms.RandomColor(0.2, 0.2, 0.2)]
        )

    def __call__(self, image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """The last result."""
        made = image
        for _ in range(self.times):
            made = self.once(image, random)
        return made


class Keep(Callback):
    """Keeps the run, for its waiting time, from its second epoch on."""

    def on_start(self, training: Training) -> None:
        """Note the run."""
        self.training, self.waited, self.of, self.epochs = training, 0.0, 0.0, []

    def on_epoch(self, training: Training) -> None:
        """Note what was waited in this epoch."""
        waiting = training.waiting
        self.epochs.append((waiting.seconds - self.waited, waiting.of - self.of))
        self.waited, self.of = waiting.seconds, waiting.of


def convolutional() -> FeedForwardNet:
    """A net of some 40 ms a step of 64 images, on two cores."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), seed=1)
    net.add(layers.Conv2D("conv1", 32, 3, input_sample_shape=SHAPE))
    net.add(layers.Activation("relu1"))
    net.add(layers.Conv2D("conv2", 64, 3))
    net.add(layers.Activation("relu2"))
    net.add(layers.GlobalAvgPooling2D("pool"))
    net.add(layers.Dense("out", 4))
    net.compile(optimizer.SGD(lr=0.01))
    return net


def epoch(steps: int, **options: Any) -> tuple[float, float]:
    """(seconds waited, seconds in all) of the second of two epochs, which has workers at hand."""
    random = np.random.default_rng(2)
    x, y = random.random((64 * steps, *SHAPE), np.float32), random.integers(0, 4, 64 * steps)
    keep = Keep()
    convolutional().fit(x, y, 64, epochs=2, verbose=False, callbacks=keep, **options)
    return keep.epochs[1]


def transform_seconds(times: int) -> float:
    """Of a batch."""
    transform, image, random = Repeated(times), np.zeros(SHAPE, "f"), np.random.default_rng(1)
    begun = time.perf_counter()
    for _ in range(64):
        transform(image, random)
    return time.perf_counter() - begun


def waiting(steps: int) -> bool:
    """Print how long steps wait; whether it is as wanted."""
    _, plain = epoch(steps)
    times = max(1, round(plain / steps / 3 / min(transform_seconds(1) for _ in range(5))))
    share = transform_seconds(times) / (plain / steps)
    print(f"a step takes {1e3 * plain / steps:.1f} ms, the transforms of its batch {share:.0%} of that")
    good = True
    for name, options in {
        "no workers": {},
        "a thread": {"workers": 1},
        "a process": {"workers": data.Processes(1)},
    }.items():
        waited, whole = epoch(steps, transform=Repeated(times), **options)
        print(f"{name}: waited {waited / whole:.1%} of the epoch; epoch {whole / plain:.2f} times that without")
        good &= not options or waited / whole < MOST_WAITED
    return good


def main() -> int:
    """The figures; 1 where one is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=60)
    given = parsed(parser, gigabytes=0.02, steps=2)
    good = True
    for shuffle in (True, False):
        found = read_share(given.gigabytes, shuffle)
        print(f"{'shuffled' if shuffle else 'in order'}: an epoch reads {found:.4f} times the set's bytes")
        good &= found <= MOST_READ
    return 0 if (waiting(given.steps) and good) or TINY else 1


if __name__ == "__main__":
    sys.exit(main())
