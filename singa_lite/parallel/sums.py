"""Sums over the ranks that go on while kernels run: each rank adds up its part of an array, in the order of ranks.

    rank 0   a0 a1 a2        a0+b0+c0                                 s0 s1 s2
    rank 1   b0 b1 b2   ->              a1+b1+c1              ->      s0 s1 s2
    rank 2   c0 c1 c2                              a2+b2+c2           s0 s1 s2
                  parts go out       added up                parts come back

Every rank sends and receives 2 (n - 1) / n of the array, no less than any algorithm (Patarasuk and Yuan, "Bandwidth
optimal all-reduce algorithms for clusters of workstations", 2009). Each element is added up once, by one rank, in one
order: so the bits are the same on all ranks and in every run, whatever MPI's own reductions do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.errors import ParallelError
from singa_lite.kernels.collective import CollectiveKind, parts_of
from singa_lite.parallel.communicator import Communicator, Pending, Polled
from singa_lite.parallel.gpus import GpuSums
from singa_lite.runtime.cuda import Cuda

#: Elements that are added up at a time: their temporaries stay in a cache.
BLOCK = 1 << 15


class Sum:
    """One sum under way. values: this rank's numbers, of one axis; behind its end the sums. landing: what the others'
    parts come into, `landing_elements` of values' dtype. number: by which its messages are told from others'.

    unit: of the parts, see `parts_of`.
    """

    def __init__(
        self,
        communicator: Communicator,
        values: Array,
        landing: Array,
        number: int,
        kind: CollectiveKind,
        unit: int = 1,
    ) -> None:
        rank, size = communicator.rank, communicator.size
        self._communicator = communicator
        self._gathers = kind is not CollectiveKind.OWN_PART
        self._number = number
        self._parts = [values[part] for part in parts_of(values.size, size, unit)]
        self._own = self._parts[rank]
        self._pending: Pending
        self._gathering = self.is_through = False
        if kind is CollectiveKind.ALL_PARTS:
            self._gather()
            return
        slots = landing.reshape(size - 1, -1)[:, : self._own.size]
        self._terms = [*slots[:rank], self._own, *slots[rank:]]
        self._pending = communicator.spread(self._parts, self._terms, 2 * number)

    def poll(self) -> bool:
        """Go on as far as the others let it; whether it is through."""
        if not self.is_through and self._pending.poll():
            if not self._gathering:
                self._add_up()
                if self._gathers:
                    self._gather()
                    return self.is_through
            self.is_through = True
        return self.is_through

    def late_ranks(self) -> list[int]:
        """The ranks whose parts have not come."""
        return self._pending.late_ranks()

    def _add_up(self) -> None:
        first, *others = self._terms
        for start in range(0, self._own.size, BLOCK):
            block = slice(start, start + BLOCK)
            total = first[block].copy()
            for term in others:
                np.add(total, term[block], out=total)
            self._own[block] = total

    def _gather(self) -> None:
        """All terms have come and gone by now, so that landing is free again."""
        self._gathering = True
        own, number = [self._own] * self._communicator.size, 2 * self._number + 1
        self._pending = self._communicator.spread(own, self._parts, number)


class Channel:
    """The sums of one net. They are begun in the same order on all ranks."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator = communicator
        #: Whether this rank has no samples in this step: it sends zeros, whatever its kernels have made.
        self.is_idle = False
        self._open: dict[int, Sum] = {}
        self._count = 0
        self._on_gpus: dict[Cuda, GpuSums] = {}

    def on_gpu(self, runtime: Cuda) -> GpuSums:
        """Its sums on this GPU."""
        if runtime not in self._on_gpus:
            self._on_gpus[runtime] = GpuSums(runtime, self.communicator)
        return self._on_gpus[runtime]

    def begin(
        self,
        values: Array,
        landing: Array,
        kind: CollectiveKind = CollectiveKind.SUM,
        clears: bool = True,
        unit: int = 1,
    ) -> None:
        """Begin a sum. values: what lies in one piece of memory, in any order of axes. clears: whether they are of this
        rank's samples, so that they are zeros where it has none; unit: see `parts_of`.
        """
        flat = in_one_line(values)
        if self.is_idle and clears:
            flat.fill(0)
        self._open[flat.ctypes.data] = Sum(self.communicator, flat, landing, self._count, kind, unit)
        self._count += 1

    def poll(self) -> None:
        """Let all that is begun go on."""
        for one in self._open.values():
            one.poll()

    def wait(self, values: Array) -> None:
        """Until the sum of these values is there. ParallelError where a rank does not come within the time limit."""
        address = in_one_line(values).ctypes.data
        one = self._open[address]

        def poll() -> bool:
            self.poll()  # all of them go on
            return one.is_through

        self.communicator.wait(Polled(poll, one.late_ranks), "the gradients of all ranks")
        del self._open[address]

    def check_settled(self) -> None:
        """ParallelError where the last step ended early, with messages under way."""
        for sums in self._on_gpus.values():
            sums.check_settled()
        if self._open:
            raise ParallelError(
                f"rank {self.communicator.rank}: wanted whole steps, received one behind a step that ended early, "
                "whose messages are still under way: the job cannot go on; start it again from its last checkpoint"
            )


def in_one_line(values: Array) -> Array:
    """The elements in the order of memory, as a view of one axis. ValueError where there are gaps between them."""
    axes: Sequence[int] = sorted(range(values.ndim), key=lambda axis: -values.strides[axis])
    flat = values.transpose(axes).reshape(-1)
    if flat.size and not np.shares_memory(flat, values):
        raise ValueError(f"wanted values without gaps, received shape {values.shape}, strides {values.strides}")
    return flat
