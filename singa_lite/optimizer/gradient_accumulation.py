"""GradientAccumulation: adds up the gradients of successive batches; the last batch makes one update by their mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from singa_lite.autograd import add, divide, maximum, no_grad
from singa_lite.common.option_version import StateTable
from singa_lite.compiler.report.plan_rows import SUM
from singa_lite.device import Device, device_of
from singa_lite.graph.graph import Phase
from singa_lite.tensor import Tensor


class Weighed(NamedTuple):
    """A batch's share of the mean of its group so far, that of those before it, and how many positions count."""

    own: Tensor
    before: Tensor | None
    total: Tensor


class AccumulationSlot(NamedTuple):
    """A batch's place in its group of so many. begins: it is the first one; updates: it is the last one.

    weighed: what it counts as, where that is not one of so many.
    """

    batches: int
    begins: bool
    updates: bool
    weighed: Weighed | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is a group by itself, so that nothing is added up."""
        return self.batches == 1


#: In the place of a parameter's name among sums: how many positions have counted so far in a group.
COUNTED = "(positions)"

#: Of a step that updates by its own batch alone.
WHOLE = AccumulationSlot(1, True, True)


class Updating(Protocol):
    """What adding up needs of an optimizer."""

    @property
    def slot_of_sums(self) -> str: ...

    @property
    def state(self) -> Mapping[Any, Mapping[str, Tensor]]: ...

    def state_for(self, name: str | None, value: Tensor) -> dict[str, Tensor]: ...

    def zeros_like(self, value: Tensor) -> Tensor: ...

    def update(self, name: str | None, value: Tensor, gradient: Tensor) -> None: ...

    def begin_sum(self, name: str, value: Tensor) -> None: ...

    def move(self, name: str, value: Tensor) -> None: ...


class GradientAccumulation:
    """Adds up the gradients of `count` batches, each divided by `count` already.

    SGD's momentum takes them in itself where an update is velocity = momentum * velocity + gradient and nothing else
    (`Optimizer.slot_of_sums`): velocity is multiplied at the first batch, and each batch's share is added. All other
    updates want the whole gradient, which is added up in a tensor of its own; so does clipping, by its norm.

    clipped: whether the gradients' norm is wanted, or batches are weighed by the positions that count in them. done:
    batches of the present group that are in the sums. sums: {parameter's name: tensor of its shape and dtype}, made at
    its first batch; those of a group that has ended count no more.
    """

    def __init__(self, count: int = 1, clipped: bool = False) -> None:
        self.count = count
        self.clipped = clipped
        self.done = 0
        self.sums: dict[str, Tensor] = StateTable()

    @property
    def part(self) -> AccumulationSlot:
        """Of the next batch."""
        return AccumulationSlot(self.count, self.done == 0, self.done == self.count - 1)

    @property
    def first_part(self) -> AccumulationSlot:
        """Of a batch that begins a group."""
        return AccumulationSlot(self.count, True, self.count == 1)

    @property
    def last_part(self) -> AccumulationSlot:
        """Of a batch that updates."""
        return AccumulationSlot(self.count, self.count == 1, True)

    def slot(self, optimizer: Updating) -> str:
        """The slot of state that takes the gradients in; "" where they want tensors of their own."""
        return "" if self.clipped else optimizer.slot_of_sums

    def has_sums(self, optimizer: Updating) -> bool:
        """Whether there are to be tensors for sums."""
        return self.count > 1 and not self.slot(optimizer)

    def sums_in_state(self, optimizer: Updating) -> list[Tensor]:
        """The optimizer's state that takes the gradients in, of all parameters; none where tensors of their own do."""
        slot = self.slot(optimizer) if self.count > 1 else ""
        return [state[slot] for state in optimizer.state.values()] if slot else []

    def total(self, optimizer: Updating, name: str, value: Tensor) -> Tensor:
        """The tensor that takes a parameter's gradients in; made if there is none yet."""
        slot = self.slot(optimizer)
        if slot:
            return optimizer.state_for(name, value)[slot]
        if name not in self.sums:
            self.sums[name] = optimizer.zeros_like(value)
            self.sums[name].name = f"{name}{SUM}"
        return self.sums[name]

    def add(self, optimizer: Updating, name: str, value: Tensor, gradient: Tensor, part: AccumulationSlot) -> Tensor:
        """Add a batch's gradient, times what it counts as already; returns what it is in."""
        device = device_of(value)
        with device.scope(Phase.UPDATE):
            total = self.total(optimizer, name, value)
            if part.begins:
                if self.slot(optimizer):
                    optimizer.begin_sum(name, value)
                else:
                    device.run("fill", total, value=0.0)
            elif part.weighed is not None and part.weighed.before is not None:
                device.run("scale_by", part.weighed.before, total)
            device.run("add_scaled", gradient, total, alpha=1.0)
        return total

    def weighed(self, part: AccumulationSlot, count: Tensor) -> AccumulationSlot:
        """The part with what its batch counts as, of whose positions `count` do, float64 ()."""
        before = self.positions_on(device_of(count))
        with no_grad(), device_of(count).scope(Phase.UPDATE):
            total = count if part.begins else add(before, count)
            divisor = maximum(total, 1.0)
            rest = None if part.begins else divide(before, divisor)
            return part._replace(weighed=Weighed(divide(count, divisor), rest, total))

    def positions_on(self, device: Device) -> Tensor:
        """How many positions count so far in a group, float64 (); made if there is none yet."""
        if COUNTED not in self.sums:
            self.sums[COUNTED] = device.empty((), np.dtype(np.float64))
            self.sums[COUNTED].name = COUNTED
        return self.sums[COUNTED]

    def note(self, part: AccumulationSlot) -> None:
        """The batch is in the sums."""
        if part.weighed is not None:
            device = device_of(part.weighed.total)
            with device.scope(Phase.UPDATE):
                device.run("copy", part.weighed.total, self.sums[COUNTED])

    def apply(self, optimizer: Updating, name: str, value: Tensor, total: Tensor) -> None:
        """Update a parameter by its group's mean."""
        if self.slot(optimizer):
            optimizer.move(name, value)
        else:
            optimizer.update(name, value, total)


#: The name of the class in pickles of earlier versions.
Gathering = GradientAccumulation
