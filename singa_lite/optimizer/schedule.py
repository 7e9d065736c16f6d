"""Learning-rate schedules: `schedule(step)` is the rate of the update number `step`, counted from 0."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from inspect import signature
from itertools import pairwise
from math import cos, pi
from typing import TYPE_CHECKING

import numpy as np

from singa_lite.common.checks import at_least_zero, flag, integer, real
from singa_lite.common.described import Described
from singa_lite.common.keywords import class_lookup


class Schedule(Described, ABC):
    """The base of all schedules, functions from a step to its learning rate. A plain function of the step serves an
    optimizer as well.

    >>> class Halving(schedule.Schedule):
    ...     def __call__(self, step):
    ...         return 0.5**step
    >>> optimizer.SGD(lr=Halving()).lr
    1.0
    """

    @abstractmethod
    def __call__(self, step: int) -> float:
        """The rate of update `step`, 0 for the first."""


class Constant(Schedule):
    """Returns `value` at each step; at least 0.

    >>> schedule.Constant(0.1)(1000)
    0.1
    """

    def __init__(self, value: float) -> None:
        self.value = at_least_zero("Constant value", value)

    def __call__(self, step: int) -> float:
        return self.value


class Step(Schedule):
    """Returns `base`, multiplied by `factor` every `step_size` updates, or at each of a rising list of steps.

    Step(0.1, 30, 0.5) halves at steps 30, 60, 90 and so on; Step(0.1, [30, 80], 0.5) at 30 and 80 only.

    >>> halved = schedule.Step(0.1, 30, 0.5)
    >>> halved(0), halved(30), halved(60)
    (0.1, 0.05, 0.025)
    """

    def __init__(self, base: float, step_size: int | Sequence[int], factor: float = 0.1) -> None:
        self.base = at_least_zero("Step base", base)
        self.factor = at_least_zero("Step factor", factor)
        if not isinstance(step_size, Sequence | np.ndarray) or isinstance(step_size, str) or np.ndim(step_size) == 0:
            self.size, self.boundaries = integer("Step step_size", step_size, 1), []  # type: ignore[arg-type]
            return
        self.size, self.boundaries = 0, [integer("Step boundary", boundary, 1) for boundary in step_size]
        if not self.boundaries or any(a >= b for a, b in pairwise(self.boundaries)):
            raise ValueError(f"Step: wanted at least one boundary, in rising order, received {step_size}")

    def __call__(self, step: int) -> float:
        passed = step // self.size if self.size else bisect_right(self.boundaries, step)
        return self.base * self.factor**passed


class Exponential(Schedule):
    """Returns base * decay_rate ** (step / decay_steps); the exponent is rounded down if `staircase`.

    >>> decayed = schedule.Exponential(0.1, decay_steps=10, decay_rate=0.5)
    >>> decayed(0), decayed(10), decayed(20)
    (0.1, 0.05, 0.025)
    """

    def __init__(self, base: float, decay_steps: int, decay_rate: float, staircase: bool = False) -> None:
        self.base = at_least_zero("Exponential base", base)
        self.decay_steps = integer("Exponential decay_steps", decay_steps, 1)
        self.decay_rate = at_least_zero("Exponential decay_rate", decay_rate)
        self.staircase = flag("Exponential staircase", staircase)

    def __call__(self, step: int) -> float:
        exponent = step // self.decay_steps if self.staircase else step / self.decay_steps
        return float(self.base * self.decay_rate**exponent)


class CosineWithWarmup(Schedule):
    """Returns a linear rise to `base` over `warmup_steps`, then half a cosine down to `final` at `total_steps`.

    The first update has base / warmup_steps; from total_steps on the rate is `final`. Rise: Goyal and others,
    arXiv 1706.02677; cosine: Loshchilov and Hutter, arXiv 1608.03983, equation 5 without restarts.

    >>> rate = schedule.CosineWithWarmup(0.1, total_steps=100, warmup_steps=10)
    >>> [round(rate(step), 3) for step in (0, 9, 55, 100)]
    [0.01, 0.1, 0.05, 0.0]
    """

    def __init__(self, base: float, total_steps: int, warmup_steps: int = 0, final: float = 0.0) -> None:
        self.base = at_least_zero("CosineWithWarmup base", base)
        self.final = at_least_zero("CosineWithWarmup final", final)
        self.total_steps = integer("CosineWithWarmup total_steps", total_steps, 1)
        self.warmup_steps = integer("CosineWithWarmup warmup_steps", warmup_steps, 0)
        if self.warmup_steps >= self.total_steps:
            raise ValueError(
                f"CosineWithWarmup: wanted warmup_steps below total_steps {total_steps}, received {warmup_steps}"
            )

    def __call__(self, step: int) -> float:
        if step < self.warmup_steps:
            return self.base * (step + 1) / self.warmup_steps
        if step >= self.total_steps:
            return self.final
        progress = (step - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        return self.final + (self.base - self.final) * (1 + cos(pi * progress)) / 2


def get(lr: float | Callable[[int], float], where: str = "learning rate") -> Callable[[int], float]:
    """Returns the schedule that `lr` stands for: a number is constant, a function of the step is itself.

    TypeError for anything else, a class and a function of no argument among them. where: what an error begins with.

    >>> schedule.get(0.1)(7), schedule.get(lambda step: 1 / (1 + step))(4)
    (0.1, 0.2)
    """
    number = real(lr)
    if number is not None:
        return Constant(at_least_zero(where, number))
    if callable(lr) and not isinstance(lr, type) and _takes_a_step(lr):
        return lr
    raise TypeError(f"{where}: wanted a number or a schedule, received {lr!r}; a schedule is a function of the step")


def _takes_a_step(function: Callable[..., object]) -> bool:
    try:
        signature(function).bind(0)
    except TypeError:
        return False
    except ValueError:  # one that does not tell
        return True
    return True


if not TYPE_CHECKING:  # where it would let any name pass
    __getattr__ = class_lookup(__name__)
