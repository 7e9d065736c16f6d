"""The head of a .npy file, NumPy's format of one array, as `numpy.save` writes it for plain numbers.

In version 1.0 (numpy.lib.format) it is b"\\x93NUMPY\\x01\\x00", two bytes with the length of a text, and the text:
"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", spaces, a line feed; the array's bytes follow. NumPy
evaluates the text. Here it must match what `numpy.save` writes; anything else is refused.
"""

from __future__ import annotations

import re
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.raw import Shape

#: Bytes of a file's beginning that are handed to `parse`: more than the head of a plain array has.
MOST_BYTES = 1 << 11

_MAGIC = b"\x93NUMPY\x01\x00"

_TEXT = re.compile(
    rb"\{'descr': '([<>|](?:b1|[iu][1248]|f[248]))', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,19}, ?)*(?:\d{1,19})?)\), \} *\n"
)


class Head(NamedTuple):
    """order: "C" or "F", of the bytes; start: where they begin, counted from the head's first."""

    shape: Shape
    dtype: DType
    order: str
    start: int


def parse(where: str, data: bytes, size: int) -> Head:
    """The head at the beginning of `data`. size: bytes of the whole .npy file.

    SnapshotError for another version or text, for objects and records, and unless the array fills the file.
    """
    start = 10 + int.from_bytes(data[8:10], "little")
    match = _TEXT.fullmatch(data[10:start])
    if not data.startswith(_MAGIC) or match is None:
        raise SnapshotError(f"{where}: wanted a .npy head of version 1.0 with plain numbers, received {data[:80]!r}")
    descr, fortran, extents = (group.decode("ascii") for group in match.groups())
    dtype = np.dtype(descr)
    shape = tuple(int(extent) for extent in extents.split(",") if extent.strip())
    if start + prod(shape) * dtype.itemsize != size:
        raise SnapshotError(f"{where}: wanted {shape} {dtype}, received {size - start} bytes")
    raw.check_shape(where, shape, dtype)
    return Head(shape, dtype, "F" if fortran == "True" else "C", start)
