"""What a process of `budget.py` is told and tells: a case, its batch, and how time and memory are measured.

A process sets up and warms up, tells so, and waits. For each line that it reads it does a turn of steps and tells how
long they took: so the cases of a net are there at once, and take turns step by step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TextIO

import numpy as np

from peak_memory import high_water
from tiny import size

Array = np.ndarray[Any, Any]

#: Shapes of samples, where they are not those of ImageNet; nets that take no other.
_SHAPES = {"unet": (3, 128, 160), "lenet": (1, 28, 28), "mlp": (784,), "llama": size((256,), (8,))}
FIXED = ("lenet", "mlp", "llama")
#: Classes of a target, where they are not 10, and how many ids there are.
_CLASSES = {"unet": 5, "llama": size(512, 50)}
#: Seconds that a turn takes at least: shorter steps are repeated.
TURN = size(0.3, 0.0)


@dataclass(frozen=True)
class BudgetTask:
    """A case. way: "plan", "check", "write", "torch-gradient", "singa_lite" or a peer's name; value: bytes of the
    budget, segments, or the peer's share.

    targets: for "plan", the estimated slowdowns near which points are wanted; budgets: for "check", how many are tried.
    image: extents of the images, 0 for the net's own. channels_last: how the peer's images lie. precision: ours as
    compile() takes it, of the peer its autocast's. momentum: of SGD, at the rate `lr`; folder: of the weights
    that "write" wrote, "" for each side's own.
    """

    way: str
    net: str
    batch: int
    image: int = 0
    value: float = 0.0
    channels_last: bool = False
    warmup: int = 1
    threads: int = 2
    targets: tuple[float, ...] = ()
    budgets: int = 0
    bound: bool = True
    precision: str = "float32"
    momentum: float = 0.9
    lr: float = 0.001
    folder: str = ""

    @staticmethod
    def of(given: dict[str, Any]) -> BudgetTask:
        """The task of these fields, as JSON has them."""
        return BudgetTask(**{**given, "targets": tuple(given["targets"])})

    @staticmethod
    def from_json(text: str) -> BudgetTask:
        """The task that `to_json` wrote."""
        return BudgetTask.of(json.loads(text))

    def to_json(self) -> str:
        """As one line of text."""
        return json.dumps(asdict(self))


def shape(task: BudgetTask) -> tuple[int, ...]:
    """Of a sample."""
    own = _SHAPES.get(task.net, (3, 224, 224))
    return (own[0], task.image, task.image) if task.image and task.net not in FIXED else own


def batch(task: BudgetTask) -> tuple[Array, Array]:
    """Inputs and class ids of all steps, equal on all sides."""
    random, sizes, classes = np.random.default_rng(0), shape(task), _CLASSES.get(task.net, 10)
    if task.net == "llama":
        return random.integers(0, classes, (task.batch, *sizes)), random.integers(0, classes, (task.batch, *sizes))
    x = random.standard_normal((task.batch, *sizes), dtype=np.float32)
    targets = (task.batch, *sizes[1:]) if task.net == "unet" else (task.batch,)
    return x, random.integers(0, classes, targets)


def answers() -> TextIO:
    """Where answers are written; what else writes to the standard output goes to the standard error."""
    kept = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return kept


def serve(task: BudgetTask, level: int, step: Callable[[], float], told: TextIO) -> None:
    """Warm up, then do a turn for each line of the standard input, which says how many steps at least.

    Told are bytes over `level`, of all that was done and of the turns alone; losses; and of a turn the seconds of each
    step, and of all cores for a step.
    """

    def tell(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=told, flush=True)

    losses = [step() for _ in range(task.warmup)]
    whole = high_water()
    _reset_high_water()
    tell({"losses": losses, "peak": whole - level})
    for line in sys.stdin:
        seconds: list[float] = []
        used, losses = time.process_time(), []
        while len(seconds) < int(line) or sum(seconds) < TURN:
            start = time.perf_counter()
            losses.append(step())
            seconds.append(time.perf_counter() - start)
        used, now = time.process_time() - used, high_water()
        sizes = {"peak": max(whole, now) - level, "steps_peak": now - level}
        tell({"losses": losses, "seconds": seconds, "cores": used / len(seconds), **sizes})


def _reset_high_water() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
