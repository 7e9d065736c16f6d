"""What tests do to samples, in a module by itself, which worker processes import."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from data_nets import X


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
