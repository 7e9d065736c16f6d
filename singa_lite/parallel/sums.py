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

from collections.abc import Callable, Sequence

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.errors import ParallelError
from singa_lite.kernels.collective import parts_of
from singa_lite.parallel.collective_kind import CollectiveKind
from singa_lite.parallel.communicator import Communicator, Pending
from singa_lite.parallel.gpu_sums import GpuSums
from singa_lite.parallel.narrowed import blocks, narrow, pack, pack_rounded, round_sums, unpack, wide
from singa_lite.runtime.cuda import Cuda


class Sum:
    """One sum under way. values: this rank's numbers, of one axis; behind its end the sums. landing: what the others'
    parts come into, `landing_elements` of values' dtype. number: by which its messages are told from others'.

    is_narrow: values are such that bfloat16 holds, and all that is sent is in bfloat16; behind the end the sums of
    this rank's own part are still those that it added up, and `round_sums` makes of them what the others have. unit: of
    the parts, see `parts_of`.
    """

    def __init__(
        self,
        communicator: Communicator,
        values: Array,
        landing: Array,
        number: int,
        way: CollectiveKind,
        is_narrow: bool = False,
        unit: int = 1,
    ) -> None:
        rank, size = communicator.rank, communicator.size
        self._communicator = communicator
        self._gathers = way is not CollectiveKind.OWN_PART
        self._number = number
        self._parts = [values[part] for part in parts_of(values.size, size, unit)]
        self._own = self._parts[rank]
        self._pending: Pending
        self._gathering = self.is_through = False
        self._bits: list[Array] = []
        if way is CollectiveKind.ALL_PARTS:
            self._gather()
            return
        slots = landing.reshape(size - 1, -1)
        going = self._parts
        if is_narrow:
            slots, sent = landing.view(np.uint16).reshape(2, size - 1, -1)
            self._bits = [*slots[:rank], sent[0], *slots[rank:]]
            going = self._packed([*sent[:rank], sent[0], *sent[rank:]])
        slots = slots[:, : self._own.size]
        self._terms = [*slots[:rank], self._own, *slots[rank:]]
        self._pending = communicator.spread(going, self._terms, 2 * number)

    def _packed(self, places: Sequence[Array]) -> list[Array]:
        """The parts for the others as bfloat16, in the places by rank."""
        going = [place[: part.size] for place, part in zip(places, self._parts, strict=True)]
        for rank, (place, part) in enumerate(zip(going, self._parts, strict=True)):
            if rank != self._communicator.rank:
                pack(part, place)
        return going

    def poll(self) -> bool:
        """Go on as far as the others let it; whether it is through."""
        if not self.is_through and self._pending.poll():
            if not self._gathering:
                self._add_up()
                if self._gathers:
                    self._gather()
                    return self.is_through
            elif self._bits:
                self._widen()
            self.is_through = True
        return self.is_through

    def late(self) -> list[int]:
        """The ranks whose parts have not come."""
        return self._pending.late()

    def _add_up(self) -> None:
        first, *others = self._terms
        for at in blocks(self._own.size):
            total = np.array(wide(first[at]))
            for term in others:
                np.add(total, wide(term[at]), out=total)
            self._own[at] = total

    def _gather(self) -> None:
        """All terms have come and gone by now, so that landing is free again."""
        self._gathering = True
        own, coming, rank = self._own, self._parts, self._communicator.rank
        if self._bits:
            coming = [place[: part.size] for place, part in zip(self._bits, self._parts, strict=True)]
            own = coming[rank]
            pack_rounded(self._own, own)
        self._pending = self._communicator.spread([own] * self._communicator.size, coming, 2 * self._number + 1)

    def _widen(self) -> None:
        """What has come, as values."""
        for rank, (place, part) in enumerate(zip(self._bits, self._parts, strict=True)):
            if rank != self._communicator.rank:
                unpack(place[: part.size], part)


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
        way: CollectiveKind = CollectiveKind.SUM,
        is_narrow: bool = False,
        clears: bool = True,
        unit: int = 1,
    ) -> None:
        """Begin a sum. values: what lies in one piece of memory, in any order of axes. is_narrow: bfloat16 has them;
        clears: whether they are of this rank's samples, so that they are zeros where it has none; unit: see `parts_of`.
        """
        flat = in_one_line(values)
        if self.is_idle and clears:
            flat.fill(0)
        self._open[flat.ctypes.data] = Sum(self.communicator, flat, landing, self._count, way, is_narrow, unit)
        self._count += 1

    def narrow(self, values: Array, rest: Array) -> None:
        """Make values of gradients that bfloat16 holds; what is left goes to the rest, for the next step."""
        narrow(in_one_line(values), in_one_line(rest), self.is_idle)

    def round_sums(self, values: Array, rest: Array) -> None:
        """Behind a narrow sum: all ranks have what was sent of it, and the rest what was not of this rank's part."""
        round_sums(in_one_line(values), in_one_line(rest))

    def poll(self) -> None:
        """Let all that is begun go on."""
        for one in self._open.values():
            one.poll()

    def wait(self, values: Array) -> None:
        """Until the sum of these values is there. ParallelError where a rank does not come within the time limit."""
        one = self._open[in_one_line(values).ctypes.data]
        self.communicator.wait(_All(one, self.poll), "the gradients of all ranks")
        del self._open[in_one_line(values).ctypes.data]

    def check_settled(self) -> None:
        """ParallelError where the last step ended early, with messages under way."""
        for sums in self._on_gpus.values():
            sums.check_settled()
        if self._open:
            raise ParallelError(
                f"rank {self.communicator.rank}: wanted whole steps, received one behind a step that ended early, "
                "whose messages are still under way: the job cannot go on; start it again from its last checkpoint"
            )


class _All:
    """One sum that is waited for, while all go on."""

    def __init__(self, one: Sum, poll: Callable[[], None]) -> None:
        self._one = one
        self._poll = poll

    def poll(self) -> bool:
        """Whether the one is through."""
        self._poll()
        return self._one.is_through

    def late(self) -> list[int]:
        """Of the one."""
        return self._one.late()


def in_one_line(values: Array) -> Array:
    """The elements in the order of memory, as a view of one axis. ValueError where there are gaps between them."""
    axes: Sequence[int] = sorted(range(values.ndim), key=lambda axis: -values.strides[axis])
    flat = values.transpose(axes).reshape(-1)
    if flat.size and not np.shares_memory(flat, values):
        raise ValueError(f"wanted values without gaps, received shape {values.shape}, strides {values.strides}")
    return flat
