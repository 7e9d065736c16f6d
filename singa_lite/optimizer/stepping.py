"""Stepping: the steps that an optimizer counts, and the learning rate of each, which lies in memory."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from math import nan
from types import TracebackType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from singa_lite.common.checks import at_least_zero, integer
from singa_lite.common.described import Described
from singa_lite.device import Device, device_of
from singa_lite.optimizer import schedule
from singa_lite.optimizer.gradient_accumulation import GradientAccumulation
from singa_lite.tensor import Tensor, from_numpy

#: A number, or a function of the step, 0 for the first update.
LearningRate = float | Callable[[int], float]


class Rounding(NamedTuple):
    """How values in bfloat16 are rounded; name None: there are none. seed: of the net, for "stochastic"."""

    name: str | None = None
    seed: int = 0


class Stepping(Described):
    """Base of `Optimizer`: its schedule, and the steps that have begun. lr: a number or a schedule.

    state, state_dtype, state_dtypes, rounding, slots, gathering: the optimizer's own.
    """

    state: MutableMapping[Any, dict[str, Tensor]]
    gathering: GradientAccumulation
    slots: tuple[str, ...]
    state_dtype: str | None
    state_dtypes: ClassVar[tuple[str, ...]]
    rounding: Rounding

    def __init__(self, lr: LearningRate) -> None:
        if not hasattr(type(self), "kernel_slots"):
            raise TypeError(
                f"{type(self).__name__}: wanted a class with kernel, hyper and kernel_slots, as a subclass of SGD has, "
                "received one without"
            )
        self.schedule = lr
        self._rates: dict[Device, Tensor] = {}
        self._rate = 0.0
        self._step = 0
        self._begun = False
        self._updated: set[str | Tensor] = set()

    @property
    def schedule(self) -> Callable[[int], float]:
        """The rate of each step. A number or a function of the step takes its place; TypeError for anything else."""
        return self._schedule

    @schedule.setter
    def schedule(self, lr: LearningRate) -> None:
        self._schedule = schedule.get(lr, f"{type(self).__name__} lr")

    @property
    def lr(self) -> float:
        """The rate of the next step, without any `lr_mult`. What takes its place is the new `schedule`."""
        return self._schedule(self._step)

    @lr.setter
    def lr(self, lr: LearningRate) -> None:
        self.schedule = lr

    @property
    def last_rate(self) -> float:
        """The rate of the step that began last, without any `lr_mult`; before the first that of the first."""
        return self._rate or self._schedule(max(self._step - 1, 0))  # none was written since a checkpoint was read

    @property
    def step(self) -> int:
        """How many steps have begun."""
        return self._step

    def restore_step(self, step: int) -> None:
        """Go on after `step` steps, as a snapshot says; the next update begins the step after it."""
        self._step, self._begun = integer("restore_step", step, 0), False

    def end_step(self) -> None:
        """The step that has begun, if one has, is over: the next update begins another."""
        self._begun = False

    def one_step(self) -> StepTransaction:
        """A `with` block around a step, which does not count if the block fails before it is kept."""
        return StepTransaction([self])

    def begin_step(self) -> None:
        """Begin the next step: write the schedule's rate where the kernels read it.

        A net calls this once a batch. Without a net it happens by itself, at the first update and at each
        parameter that was updated in this step already. ValueError if the schedule gives no usable rate.
        """
        self.count_step()
        self._begun = True

    def count_step(self) -> None:
        """As `begin_step`, of a replay, which makes its updates by itself: the next update here begins another step."""
        self._write_rate(self._step)
        self._updated.clear()
        object.__setattr__(self, "_step", self._step + 1)
        if self._begun:  # since an update by hand; set only where it changes, as each change of an option is looked at
            self._begun = False

    def renew_rate(self) -> None:
        """The rate of the step that has begun, by what the schedule says of it now."""
        self._write_rate(max(self._step - 1, 0))

    def _write_rate(self, step: int) -> None:
        rate = self._schedule(step)
        if type(rate) is not float or rate != self._rate:  # else it is as the last one, which was looked at
            rate = at_least_zero(f"schedule at step {step}", rate)
        if rate != self._rate:
            self._set_rate(rate)

    def _set_rate(self, rate: float) -> None:
        self._rate = nan  # whatever an interrupt leaves in the tensors, the next step writes its own
        for device, tensor in self._rates.items():
            with device.first_values():
                tensor.copy_from_numpy(rate)
        self._rate = rate

    def update_again(self) -> None:
        """Further updates of the same parameters are of the step that has begun, at its rate; it counts once.

        What a rule counts by itself, as Adam's bias correction does, counts each update.
        """
        self._updated.clear()

    def rate(self, device: Device) -> Tensor:
        """The learning rate of this step on a device: float64 (), overwritten when a step begins."""
        if device not in self._rates:
            self._rates[device] = from_numpy(np.float64(self._rate), device)
        return self._rates[device]

    def rate_where(self, applied: Tensor) -> Tensor:
        """The rate of this step where another optimizer's, which may be NaN by a loss scale, is a number; else NaN."""
        device = device_of(applied)
        found: Tensor = device.empty((), applied.dtype)
        device.run("scale", applied, found, alpha=0.0, beta=0.0)
        device.run("add", found, self.rate(device), found)
        return found

    @property
    def has_rate(self) -> bool:
        """Whether there is a tensor of the learning rate, as from the first step on."""
        return bool(self._rates)

    def _note_update(self, key: str | Tensor) -> None:
        """A parameter is about to be updated: if it was in this step already, another one begins."""
        if not self._begun or key in self._updated:
            self.begin_step()
        self._updated.add(key)


class StepTransaction:
    """A `with` block that undoes a step of optimizers unless `keep` was called inside: all of them count it, or none.

    At its end the count of steps is put back, however it ends, and state that was made inside is let go. So is the
    place in a group of batches; a kept step that fails leaves a group that begins anew.

    Either way the step is over then: an update that follows begins another one. is_kept: whether `keep` was called.
    is_whole: whether the end of the block was reached, with all of the step done or nothing of it. An interrupt may
    prevent that.
    """

    def __init__(self, optimizers: Sequence[Stepping]) -> None:
        self._optimizers = optimizers
        self._before = [
            (each.step, each.gathering.done, frozenset(each.state), frozenset(each.gathering.sums))
            for each in optimizers
        ]
        self.is_kept = False
        self.is_whole = False

    def keep(self) -> None:
        """Parameters or state change from now on: the step counts, also if it fails."""
        self.is_kept = True

    def complete(self) -> None:
        """All of the batch is done: it is one more of its group."""
        for optimizer, (_, done, _, _) in zip(self._optimizers, self._before, strict=True):
            optimizer.gathering.done = (done + 1) % optimizer.gathering.count

    def __enter__(self) -> StepTransaction:
        for optimizer in self._optimizers:
            optimizer.gathering.done = 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for optimizer, (step, done, state, sums) in zip(self._optimizers, self._before, strict=True):
            optimizer.restore_step(optimizer.step if self.is_kept else step)
            if not self.is_kept:
                optimizer.gathering.done = done
                for table, known in ((optimizer.state, state), (optimizer.gathering.sums, sums)):
                    for key in table.keys() - known:
                        del table[key]
        self.is_whole = kind is None or not self.is_kept
