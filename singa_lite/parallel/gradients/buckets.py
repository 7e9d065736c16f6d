"""Buckets: gradients are summed over the ranks as the walk back yields them, small ones together, whole or sharded.

With shards each rank has the optimizer's state of a part of each parameter, updates it, and sends it to all:

    rank 0   gradients  s0 .  .     update its part    p0 .  .       p0 p1 p2
    rank 1              .  s1 .                        .  p1 .   ->  p0 p1 p2
    rank 2              .  .  s2                       .  .  p2      p0 p1 p2

The first and second stage of ZeRO (Rajbhandari and others, "ZeRO: Memory optimizations toward training trillion
parameter models", 2020). Elements are updated one by one, so the results are those without it, to the bit. A plan makes
and sums a large gradient by strips of all parts (`compiler/ranks/own_parts.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from singa_lite.common.array_types import DType
from singa_lite.common.checks import gradient_dtype
from singa_lite.common.strides import laid_out
from singa_lite.device import Device, device_of
from singa_lite.graph.graph import Phase
from singa_lite.kernels.collective import CollectiveKind
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.parallel.gradients.ownership import Bucket, Member, Ownership
from singa_lite.tensor import Tensor

#: Takes a parameter's name, the parameter, and its gradient.
Take = Callable[[str, Tensor, Tensor], None]


class Packed(NamedTuple):
    """A gradient that waits in a bucket."""

    name: str
    value: Tensor
    gradient: Tensor


class PackedMemory:
    """Memory for gradients that are summed together. capacity: elements."""

    def __init__(self, device: Device, capacity: int, dtype: DType) -> None:
        self._memory: Tensor = device.empty((capacity,), dtype)
        self._device = device
        self._used = 0
        self.packed: list[Packed] = []

    def fits(self, gradient: Tensor) -> bool:
        """For one more gradient."""
        return gradient.dtype == self._memory.dtype and self._used + gradient.size() <= self._memory.size()

    def add(self, name: str, value: Tensor, gradient: Tensor, start: int | None = None) -> None:
        """Copy a gradient in, to lie as its parameter does. start: its place, in elements; None:
        behind all others.
        """
        start = self._used if start is None else start
        item = self._memory.dtype.itemsize
        strides = laid_out(value.shape, value.memory_order(), item)
        place = self._memory.view(value.shape, strides, start * item)
        place.layout = value.layout
        self._device.run("copy", gradient, place)
        self._used = max(self._used, start + value.size())
        self.packed.append(Packed(name, value, place))

    @property
    def all_values(self) -> Tensor:
        """All of it, with what nothing was copied to."""
        return in_line(self._memory, 0, self._memory.size())

    @property
    def values(self) -> Tensor:
        """All that is in it, one behind the other."""
        return in_line(self._memory, 0, self._used)


class Buckets:
    """Sums gradients over the ranks and hands them on. Gradients of at least `bucket_bytes` are summed by themselves.

    turn: float64 (), one for all sums of a step; parameters: all that there may be gradients of; take: what is done
    with each sum, when it is there.
    """

    def __init__(self, ranks: DataParallel, turn: Tensor, parameters: Iterable[Tensor], take: Take) -> None:
        self._ranks = ranks
        self._turn = turn
        self._device = device_of(turn)
        self._take = take
        self._bucket: PackedMemory | None = None
        sizes = [value.size() * gradient_dtype(value.dtype).itemsize for value in parameters]
        self._left = sum(nbytes for nbytes in sizes if nbytes < ranks.bucket_bytes)

    def take(self, name: str, value: Tensor, gradient: Tensor) -> None:
        """A gradient of this rank's part of the batch, whose memory is gone when the next one is asked for."""
        with self._device.scope(Phase.GRADIENT):
            if gradient.nbytes >= self._ranks.bucket_bytes:
                self._sum_alone(name, value, _without_gaps(gradient, value))
                return
            self._pack(name, value, gradient)

    def _pack(self, name: str, value: Tensor, gradient: Tensor) -> None:
        bucket = self._bucket
        if bucket is not None and not bucket.fits(gradient):
            self.end()
            bucket = None
        if bucket is None:
            nbytes = max(min(self._ranks.bucket_bytes, self._left), gradient.nbytes)
            bucket = self._bucket = PackedMemory(self._device, nbytes // gradient.dtype.itemsize, gradient.dtype)
        bucket.add(name, value, gradient)
        self._left -= gradient.nbytes

    def end(self) -> None:
        """Sum what waits, and hand it on."""
        bucket, self._bucket = self._bucket, None
        if bucket is None:
            return
        with self._device.scope(Phase.GRADIENT, ""):
            self._sum_together(bucket.values, bucket.packed)

    def gather(self) -> None:
        """All are updated, and nothing is left to do."""

    def _sum_alone(self, name: str, value: Tensor, gradient: Tensor) -> None:
        self._ranks.add_up(gradient, self._turn)
        self._take(name, value, gradient)

    def _sum_together(self, values: Tensor, packed: Sequence[Packed]) -> None:
        """values: of all of them, one behind the other."""
        self._ranks.add_up(values, self._turn)
        for name, value, gradient in packed:
            with self._device.scope(layer=name.rpartition("/")[0]):
                self._take(name, value, gradient)


def in_line(tensor: Tensor, start: int, stop: int) -> Tensor:
    """Elements of a tensor without gaps, from start to below stop in the order of memory."""
    item = tensor.dtype.itemsize
    return tensor.view((stop - start,), (item,), start * item)


def _without_gaps(gradient: Tensor, value: Tensor) -> Tensor:
    """The gradient, or a copy of it where others may lie over its bytes, or between them, or it lies otherwise than its
    parameter.
    """
    if gradient.block.nbytes == gradient.nbytes and gradient.memory_order() == value.memory_order():
        return gradient
    device = device_of(gradient)
    made: Tensor = device.empty(value.shape, gradient.dtype, value.memory_order())
    device.run("copy", gradient, made)
    return made


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
        self._ranks.add_up(values, self._turn, kind=CollectiveKind.OWN_PART, unit=bucket.unit)
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
                self._gather_parts(bucket, in_line(value, 0, value.size()))
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
        self._gather_parts(bucket, memory)
        for name, start, elements in present:
            value = values[name]
            device_of(value).run("copy", in_line(memory, start, start + elements), in_line(value, 0, elements))

    def _gather_parts(self, bucket: Bucket, values: Tensor) -> None:
        """Each rank's part of the values comes to all ranks."""
        kind, in_line = CollectiveKind.ALL_PARTS, not self._at_once
        self._ranks.add_up(values, self._turn, kind=kind, unit=bucket.unit, in_line=in_line)

    def _copy_own(self, memory: Tensor, values: Mapping[str, Tensor], present: Iterable[Member]) -> None:
        """The parts that this rank has updated."""
        for name, start, _ in present:
            own = self._ownership.own_part(name)
            if own.start < own.stop:
                part = in_line(values[name], own.start, own.stop)
                self._device.run("copy", part, in_line(memory, start + own.start, start + own.stop))
