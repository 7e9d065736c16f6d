"""Sharded updates: each rank has the optimizer's state of a part of each parameter, updates it, and sends it to all.

    rank 0   gradients  s0 .  .     update its part    p0 .  .       p0 p1 p2
    rank 1              .  s1 .                        .  p1 .   ->  p0 p1 p2
    rank 2              .  .  s2                       .  .  p2      p0 p1 p2

The first and second stage of ZeRO (Rajbhandari and others, "ZeRO: Memory optimizations toward training trillion
parameter models", 2020). Elements are updated one by one, so the results are those without it, to the bit. A plan makes
and sums a large gradient by strips of all parts (`compiler/ranks/own_parts.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from singa_lite.device import device_of
from singa_lite.graph.graph import Phase
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.parallel.gradients.buckets import Buckets, Packed, PackedMemory, Take, in_line
from singa_lite.parallel.gradients.ownership import Bucket, Member, Ownership
from singa_lite.tensor import Tensor


class ShardedBuckets(Buckets):
    """As `Buckets`, of which each rank's `take` gets the rank's part of each gradient, with that of its parameter.

    ownership: whose which elements are. at_once: whether a part is updated when `take` returns; else `gather` is called
    when all are. updates: whether parameters are updated in this step at all.
    """

    def __init__(
        self,
        ranks: DataParallel,
        turn: Tensor,
        parameters: Iterable[Tensor],
        take: Take,
        ownership: Ownership,
        at_once: bool,
        updates: bool,
    ) -> None:
        super().__init__(ranks, turn, parameters, take)
        self._ownership = ownership
        self._at_once = at_once
        self._updates = updates
        self._open: dict[int, PackedMemory] = {}
        self._summed: list[tuple[Bucket, dict[str, Tensor], Tensor | None]] = []

    def end(self) -> None:
        """Sum what waits for gradients that do not come, as of layers that no longer train."""
        for number in [*self._open]:
            self._close(number)

    def gather(self) -> None:
        """All parts are updated: each comes to all ranks."""
        for bucket, values, memory in self._summed:
            self._spread(bucket, values, memory)
        self._summed.clear()

    def _pack(self, name: str, value: Tensor, gradient: Tensor) -> None:
        number, member = self._ownership.place(name)
        bucket = self._ownership.buckets[number]
        if number not in self._open:
            self._open[number] = PackedMemory(self._device, bucket.elements, bucket.dtype)
        memory = self._open[number]
        memory.add(name, value, gradient, member.start)
        if len(memory.packed) == len(bucket.members):
            self._close(number)

    def _close(self, number: int) -> None:
        memory, bucket = self._open.pop(number), self._ownership.buckets[number]
        with self._device.scope(Phase.GRADIENT, ""):
            self._clear(memory.all_values, bucket, {name for name, _, _ in memory.packed})
            self._sum_parts(bucket, memory.all_values, memory.packed)

    def _clear(self, memory: Tensor, bucket: Bucket, present: Iterable[str]) -> None:
        """Zeros in the places of parameters that have no gradient in this step."""
        for name, start, elements in bucket.members:
            if name not in present:
                self._device.run("fill", in_line(memory, start, start + elements), value=0.0)

    def _sum_alone(self, name: str, value: Tensor, gradient: Tensor) -> None:
        number, _ = self._ownership.place(name)
        bucket = self._ownership.buckets[number]
        self._sum_parts(bucket, in_line(gradient, 0, gradient.size()), [Packed(name, value, gradient)])

    def _sum_parts(self, bucket: Bucket, values: Tensor, packed: Sequence[Packed]) -> None:
        """values: of the whole bucket."""
        self._ranks.add_up_own_part(values, self._turn, bucket.unit)
        for name, value, _ in packed:
            own, start = self._ownership.own_part(name), self._ownership.place(name)[1].start
            if own.start < own.stop:
                with self._device.scope(layer=name.rpartition("/")[0]):
                    summed = in_line(values, start + own.start, start + own.stop)
                    self._take(name, in_line(value, own.start, own.stop), summed)
        if self._updates:
            memory = values if self._at_once else None
            self._summed.append((bucket, {name: value for name, value, _ in packed}, memory))
        if self._at_once:
            self.gather()

    def _spread(self, bucket: Bucket, values: Mapping[str, Tensor], memory: Tensor | None) -> None:
        """Updated values of parameters whose gradients were summed together.

        memory: what that was in. Parts go out from there, so that this comes behind the sum on all ranks alike, those
        too that have no part to update: sums begin in one order everywhere.
        """
        names = [member.name for member in bucket.members]
        with self._device.scope(Phase.UPDATE, names[0].rpartition("/")[0] if len(names) == 1 else ""):
            if len(names) == 1 and all(part.start < part.stop for part in self._ownership.parts(names[0])):
                value = values[names[0]]
                self._ranks.gather_parts(in_line(value, 0, value.size()), self._turn, bucket.unit, not self._at_once)
                return
            self._spread_together(bucket, values, memory)

    def _spread_together(self, bucket: Bucket, values: Mapping[str, Tensor], memory: Tensor | None) -> None:
        present = [member for member in bucket.members if member.name in values]
        if memory is None:  # all of it is written, as sums read all that they are given
            memory = self._device.empty((bucket.elements,), bucket.dtype)
            self._clear(memory, bucket, values)
            for name, start, elements in present:
                place = in_line(memory, start, start + elements)
                self._device.run("copy", in_line(values[name], 0, elements), place)
        else:
            self._copy_own(memory, values, present)
        self._ranks.gather_parts(memory, self._turn, bucket.unit, not self._at_once)
        for name, start, elements in present:
            value = values[name]
            device_of(value).run("copy", in_line(memory, start, start + elements), in_line(value, 0, elements))

    def _copy_own(self, memory: Tensor, values: Mapping[str, Tensor], present: Iterable[Member]) -> None:
        """The parts that this rank has updated."""
        for name, start, _ in present:
            own = self._ownership.own_part(name)
            if own.start < own.stop:
                part = in_line(values[name], own.start, own.stop)
                self._device.run("copy", part, in_line(memory, start + own.start, start + own.stop))
