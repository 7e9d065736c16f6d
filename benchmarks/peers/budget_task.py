"""What a process of `budget.py` is told and tells: a case, its batch, and how time and memory are measured."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from peak_memory import high_water

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class BudgetTask:
    """A case. way: "plan", "singa_lite" or a peer's name; value: bytes of the budget, segments, or the peer's share.

    shares: for "plan", the budgets as shares of the free total. image: extents of the images, 0 for the net's own.
    """

    way: str
    net: str
    batch: int
    image: int = 0
    value: float = 0.0
    warmup: int = 1
    steps: int = 3
    threads: int = 2
    shares: tuple[float, ...] = ()
    bound: bool = True

    @staticmethod
    def from_json(text: str) -> BudgetTask:
        """The task that `to_json` wrote."""
        given = json.loads(text)
        return BudgetTask(**{**given, "shares": tuple(given["shares"])})

    def to_json(self) -> str:
        """As one line of text."""
        return json.dumps(asdict(self))


def shape(task: BudgetTask) -> tuple[int, ...]:
    """Of a sample."""
    own = (3, 128, 160) if task.net == "unet" else (1, 28, 28) if task.net == "lenet" else (3, 224, 224)
    return (own[0], task.image, task.image) if task.image else own


def batch(task: BudgetTask) -> tuple[Array, Array]:
    """Inputs and class ids of all steps, equal on all sides."""
    random, sizes = np.random.default_rng(0), shape(task)
    x = random.standard_normal((task.batch, *sizes), dtype=np.float32)
    targets = (task.batch, *sizes[1:]) if task.net == "unet" else (task.batch,)
    return x, random.integers(0, 5 if task.net == "unet" else 10, targets)


def measured(task: BudgetTask, level: int, step: Callable[[], float]) -> dict[str, Any]:
    """Do the steps: losses, seconds of those behind the warm-up, peak over `level`, and of the timed steps alone."""
    losses, seconds = [step() for _ in range(task.warmup)], []
    peak = high_water()
    _reset_high_water()
    for _ in range(task.steps):
        start = time.perf_counter()
        losses.append(step())
        seconds.append(time.perf_counter() - start)
    later = high_water()
    return {"losses": losses, "seconds": seconds, "peak": max(peak, later) - level, "steps_peak": later - level}


def _reset_high_water() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
