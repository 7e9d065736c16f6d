"""Ranks: what training asks of the processes that train a net together (`parallel/`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from singa_lite.common.array_types import Array
from singa_lite.device import Device
from singa_lite.tensor import Tensor


@runtime_checkable
class Ranks(Protocol):
    """One process's part in a job. What waits for the others is called by all ranks, in the same order."""

    @property
    def rank(self) -> int:
        """This process's number, 0 first."""

    @property
    def size(self) -> int:
        """How many there are; 1: this one is alone."""

    @property
    def bucket_bytes(self) -> int:
        """Gradients of fewer bytes are summed together."""

    @property
    def in_flight_bytes(self) -> int:
        """Of gradients and what comes from the others, the most that is under way at a time."""

    @property
    def check_every(self) -> int:
        """Behind how many steps parameters are compared."""

    @property
    def sync(self) -> bool:
        """Whether statistics of a batch are those of all ranks."""

    def add_up(self, values: Tensor, turn: Tensor, is_urgent: bool = False, of_samples: bool = True) -> None:
        """Have a sum over the ranks done or recorded. values: without gaps; turn: float64 (), one for all of a step.

        is_urgent: whether what comes next waits for it; of_samples: whether the values are of this rank's samples, so
        that one without any adds zeros, whatever it has computed.
        """

    @property
    def shard(self) -> str | None:
        """ "state": each rank has and updates its part of the optimizer's state; None: all of it."""

    def add_up_own_part(self, values: Tensor, turn: Tensor, unit: int) -> None:
        """As `add_up`; behind it only this rank's part is a sum, and the rest means nothing.

        unit: elements that are of one rank together (`parts_of`).
        """

    def gather_parts(self, values: Tensor, turn: Tensor, unit: int, in_line: bool) -> None:
        """Each rank's part of the values comes to all ranks. unit: as above.

        in_line: not before all sums that were recorded before, on ranks too that have no part and so nothing to wait
        for.
        """

    def draw_key(self, state: Tensor, key: Tensor) -> None:
        """Have a key of this rank drawn from random state that all ranks have. uint64 (3,), as of `draw_key`."""

    def check_device(self, where: str, device: Device) -> None:
        """ParallelError where this rank could not train on the device with the others."""

    def meet_on(self, device: Device) -> None:
        """Before a step: ParallelError where the ranks may not train together on the devices that they have."""

    def set_idle(self, is_idle: bool) -> None:
        """Whether this rank has no samples in the step that begins, so that it adds zeros to all sums."""

    def serve(self, net: object) -> None:
        """Be this net's from now on. GraphError where another net that lives has it."""

    def gathered(self, value: object, doing: str = ...) -> list[object]:
        """What every rank gave, by rank. doing: what for; ParallelError where other ranks are at something else."""

    def collect(self, given: Array, places: Sequence[Array]) -> None:
        """Rank 0 receives what each rank gives, into the places by rank, which only it has; each of one axis."""

    def fail(self, error: BaseException) -> None:
        """Tell the others that this one cannot go on."""

    def sums(self, values: object) -> Array:
        """The sum over the ranks, in float64 and in their order, of arrays of one shape."""

    def agreed(self, error: Exception | None, where: str) -> None:
        """Raise on all ranks where one has an error."""
