"""What the tests of data share: a small classifier, its samples, sources of batches, and a run that stops."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np

from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer
from singa_lite.fit import Callback, StopTraining
from singa_lite.snapshots.checkpoints import checkpoint

COUNT, FEATURES, CLASSES = 37, 5, 3
_RANDOM = np.random.default_rng(5)
X = _RANDOM.standard_normal((COUNT, FEATURES)).astype("f")
Y = _RANDOM.integers(0, CLASSES, COUNT)
SIZE = 8


def classifier(shape: tuple[int, ...] = (FEATURES,), **options: Any) -> FeedForwardNet:
    """A net with dropout, so that each step draws numbers."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device.new_cpu(), seed=2)
    net.add(layers.Flatten("flat", input_sample_shape=shape))
    net.add(layers.Dense("hidden", 7))
    net.add(layers.Dropout("drop"))
    net.add(layers.Dense("out", CLASSES))
    net.compile(optimizer.SGD(lr=0.5, momentum=0.5), **options)
    return net


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    """All samples in order, in batches of `SIZE`; the last one is short."""
    return [(X[first : first + SIZE], Y[first : first + SIZE]) for first in range(0, COUNT, SIZE)]


class Numbered:
    """Batches by number, as Keras's Sequence has them. asked: which, in order; ended: epochs."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.ended = 0

    def __len__(self) -> int:
        return len(batches())

    def __getitem__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        self.asked.append(number)
        return batches()[number]

    def on_epoch_end(self) -> None:
        """As Keras calls it."""
        self.ended += 1


class Loader:
    """Batches of each epoch anew, as a DataLoader gives them."""

    def __iter__(self) -> Any:
        return iter(batches())


class Stateful(Loader):
    """A loader that says how many batches of the epoch it has given, and goes on from there."""

    given = 0

    def __iter__(self) -> Any:
        for batch in batches()[self.given :]:
            self.given += 1
            yield batch
        self.given = 0

    def state_dict(self) -> dict[str, int]:
        """Where it is."""
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go there."""
        self.given = state["given"]


class StopAt(Callback):
    """Writes a checkpoint behind so many batches, and stops."""

    def __init__(self, count: int, path: Path) -> None:
        self.left, self.path = count, path

    def on_batch(self, training: Any) -> None:
        self.left -= 1
        if not self.left:
            checkpoint.save(training, self.path)
            raise StopTraining


# --- what is done to samples; processes import it


def noisy(sample: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A function of a module, which processes can import."""
    return sample + random.standard_normal(sample.shape).astype("f")


def dying(sample: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Ends its process where it is no main one."""
    if threading.main_thread() and os.environ.get("SINGA_LITE_TEST_PARENT") != str(os.getpid()):
        os._exit(3)
    return sample


class Failing:
    """Fails at one sample."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def __call__(self, sample: np.ndarray, random: np.random.Generator) -> Any:
        return self.made(sample) if np.array_equal(sample, X[20]) else sample


def divided(sample: np.ndarray) -> Any:
    """Raises."""
    return 1 // 0
