"""Buckets: gradients are summed over the ranks as the walk back yields them, small ones together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from singa_lite.common.array_types import DType
from singa_lite.common.strides import laid_out
from singa_lite.device import Device, device_of
from singa_lite.graph.graph import Phase
from singa_lite.parallel.data_parallel import DataParallel
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

    def fits(self, value: Tensor) -> bool:
        """For one more gradient, of this parameter."""
        return value.dtype == self._memory.dtype and self._used + value.size() <= self._memory.size()

    def add(self, name: str, value: Tensor, gradient: Tensor, start: int | None = None) -> None:
        """Copy a gradient in, to lie as its parameter does. start: its place, in elements; None:
        behind all others.
        """
        start = self._used if start is None else start
        strides = laid_out(value.shape, value.memory_order(), value.dtype.itemsize)
        place = self._memory.view(value.shape, strides, start * value.dtype.itemsize)
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
        self._left = sum(value.nbytes for value in parameters if value.nbytes < ranks.bucket_bytes)

    def take(self, name: str, value: Tensor, gradient: Tensor) -> None:
        """A gradient of this rank's part of the batch, whose memory is gone when the next one is asked for."""
        with self._device.scope(Phase.GRADIENT):
            if value.nbytes >= self._ranks.bucket_bytes:
                self._sum_alone(name, value, _without_gaps(gradient, value))
                return
            self._pack(name, value, gradient)

    def _pack(self, name: str, value: Tensor, gradient: Tensor) -> None:
        bucket = self._bucket
        if bucket is not None and not bucket.fits(value):
            self.end()
            bucket = None
        if bucket is None:
            capacity = max(min(self._ranks.bucket_bytes, self._left), value.nbytes) // value.dtype.itemsize
            bucket = self._bucket = PackedMemory(self._device, capacity, value.dtype)
        bucket.add(name, value, gradient)
        self._left -= value.nbytes

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
    made: Tensor = device.empty(value.shape, value.dtype, value.memory_order())
    device.run("copy", gradient, made)
    return made
