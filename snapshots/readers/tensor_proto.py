"""SINGA's TensorProto, the protobuf message in which its snapshots keep an array. Only what SINGA wrote is read.

proto2, fields in the order of their numbers, as all of SINGA's versions write them:

1 shape       repeated uint32, tag 0x08 each
2 data_type   enum, tag 0x10: 0 float32, 2 int32, 4 double; others were never written
3             tag 0x18: until 1.1 one bool, transpose; since 1.2 strides, an int32 for each axis
4, 5, 6       float_data, double_data, int_data: in 1.0 a tag (0x25, 0x29, 0x30) before each number, since 1.1 packed: a
              tag (0x22, 0x2a, 0x32), the length, the numbers
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.raw import ByteArray, RawFile, Shape

#: Bytes before the numbers, at most: shape and strides of `_MOST_AXES` axes, with room.
_HEAD = 1 << 10
_MOST_AXES = 32

#: {data_type: (dtype, tag of packed numbers, tag of each number)}.
_KINDS = {0: ("<f4", 0x22, 0x25), 4: ("<f8", 0x2A, 0x29), 2: ("<i4", 0x32, 0x30)}

_SHAPE, _TYPE, _LAYOUT = 0x08, 0x10, 0x18


class Proto(NamedTuple):
    """The position and form of an array in a file. start, size: of the numbers' bytes; packed: they have no tags.

    strides: in elements, of the stored numbers; None: C order.
    """

    shape: Shape
    dtype: DType
    start: int
    size: int
    packed: bool
    strides: tuple[int, ...] | None

    @property
    def elements(self) -> int:
        """How many numbers there are."""
        return prod(self.shape)


def parse(file: RawFile, what: str, start: int, size: int) -> Proto:
    """The message of `size` bytes from `start`, its numbers unread. what: the entry, for the SnapshotError."""
    head = _Head(f"{file.path}: {what}", bytes(file.read(what, start, min(size, _HEAD))))
    shape = tuple(head.run(_SHAPE, _MOST_AXES))
    (kind,) = head.run(_TYPE, 1) or [0]
    layout = head.run(_LAYOUT, _MOST_AXES)
    if kind not in _KINDS:
        raise head.error(f"data_type float32 (0), int32 (2) or double (4), received {kind}")
    text, packed_tag, single_tag = _KINDS[kind]
    packed = head.tag() == packed_tag
    if packed:
        head.varint()
        length = head.varint()
        if length != size - head.at:
            raise head.error(f"{size - head.at} bytes of numbers, received a length of {length}")
    elif head.tag() not in (single_tag, None):
        raise head.error(f"a field with numbers of type {kind}, received tag {head.tag()}")
    dtype = np.dtype(text)
    found = Proto(shape, dtype, start + head.at, size - head.at, packed, _strides(head, shape, layout))
    _check_size(head, found)
    raw.check_shape(f"{file.path}: {what}", shape, dtype)
    return found


def read(file: RawFile, what: str, proto: Proto) -> Array:
    """The array, C order. SnapshotError for numbers that are not as the message says."""
    numbers = _numbers(file, what, proto)
    if proto.strides is None or not proto.elements:
        return numbers.reshape(proto.shape)
    steps = tuple(stride * proto.dtype.itemsize for stride in proto.strides)
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(numbers, proto.shape, steps, writeable=False))


def _numbers(file: RawFile, what: str, proto: Proto) -> Array:
    """The numbers as they are stored, on one axis. The bytes they come from do not outlive this call."""
    where = f"{file.path}: {what}"
    if proto.dtype.kind == "i":
        file.allow_arrays(what, proto.size + proto.elements * proto.dtype.itemsize)  # varints may be shorter than int32
        return _integers(where, file.read(what, proto.start, proto.size), proto)
    data = file.read(what, proto.start, proto.size)
    return data.view(proto.dtype) if proto.packed else _untagged(where, data, proto.dtype)


class _Head:
    """The fields before the numbers, from their bytes."""

    def __init__(self, where: str, data: bytes) -> None:
        self._where, self._data, self.at = where, data, 0

    def tag(self) -> int | None:
        """The next tag; None at the end."""
        return self._data[self.at] if self.at < len(self._data) else None

    def run(self, tag: int, most: int) -> list[int]:
        """The values of the fields with this tag that follow."""
        values: list[int] = []
        while self.tag() == tag:
            self.at += 1
            values.append(self.varint())
            if len(values) > most:
                raise self.error(f"at most {most} fields with tag {tag}, received more")
        return values

    def varint(self) -> int:
        """An unsigned number of 32 bits in all."""
        value, self.at = _varint(self._where, self._data, self.at)
        if value >= 1 << 32:
            raise self.error(f"a number of at most 32 bits, received {value}")
        return value

    def error(self, text: str) -> SnapshotError:
        """An error that names file and entry."""
        return SnapshotError(f"{self._where}: wanted {text}")


def _strides(head: _Head, shape: Shape, layout: list[int]) -> tuple[int, ...] | None:
    """The strides in elements, from the values of field 3; None: C order.

    One value is the bool `transpose` of old versions; as many values as there are axes are strides. For one axis
    neither changes anything.
    """
    if len(shape) == 1 and len(layout) <= 1:
        return None
    if len(layout) == len(shape) and layout:
        if sum(stride * (extent - 1) for stride, extent in zip(layout, shape, strict=True)) >= max(1, prod(shape)):
            raise head.error(f"strides for shape {shape}, received {layout}")
        return tuple(layout)
    if layout in ([], [0]):
        return None
    if layout == [1] and len(shape) == 2:
        return 1, shape[0]
    raise head.error(f"strides or the transposition of a matrix for shape {shape}, received {layout}")


def _check_size(head: _Head, proto: Proto) -> None:
    """SnapshotError unless there are as many bytes as the shape needs; a number of int32 takes 1 to 10 of them."""
    width = proto.dtype.itemsize + (not proto.packed)
    fits = proto.size == proto.elements * width
    if proto.dtype.kind == "i":
        tags = 0 if proto.packed else proto.elements
        fits = proto.elements + tags <= proto.size <= 10 * proto.elements + tags
    if not fits:
        raise head.error(f"{proto.elements} numbers for shape {proto.shape}, received {proto.size} bytes of them")


def _untagged(where: str, data: ByteArray, dtype: DType) -> Array:
    """The numbers in bytes that have a tag before each."""
    tag = next(single for text, _, single in _KINDS.values() if dtype == np.dtype(text))
    records = data.view(np.dtype([("tag", "u1"), ("number", dtype)]))
    if np.any(records["tag"] != tag):
        raise SnapshotError(f"{where}: wanted tag {tag} before each number, received another")
    return records["number"].copy()


def _integers(where: str, data: ByteArray, proto: Proto) -> Array:
    """int32: varints of 64 bits, negative ones in two's complement. One by one: SINGA's own is a version, no array."""
    numbers = np.empty(proto.elements, proto.dtype)
    view, at = data.data, 0
    for index in range(proto.elements):
        if not proto.packed:
            if at >= len(view) or view[at] != _KINDS[2][2]:
                raise SnapshotError(f"{where}: wanted tag {_KINDS[2][2]} before each number, received another")
            at += 1
        number, at = _varint(where, view, at)
        number -= (number >> 63) << 64  # two's complement
        if not -(1 << 31) <= number < 1 << 31:
            raise SnapshotError(f"{where}: wanted int32, received {number}")
        numbers[index] = number
    if at != len(view):
        raise SnapshotError(f"{where}: wanted {proto.elements} numbers, received more bytes")
    return numbers


def _varint(where: str, view: bytes | memoryview, at: int) -> tuple[int, int]:
    """(unsigned number of 64 bits, where the next begins): seven bits a byte, the lowest first."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(view):
            break
        byte, at = view[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & ((1 << 64) - 1), at
    raise SnapshotError(f"{where}: wanted a varint of at most 10 bytes, received another or the end")
