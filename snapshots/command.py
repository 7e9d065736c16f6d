"""`python -m singa_lite snapshot`: what is in a file, the same in another format, what two files differ in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from singa_lite.errors import SnapshotError
from singa_lite.snapshots import formats, tree
from singa_lite.snapshots.manifest import digest
from singa_lite.snapshots.tree import Source

#: Digits of a SHA-256 that are shown: enough to tell two arrays apart.
SHOWN = 12


class Difference(NamedTuple):
    """One entry or attribute in which two files differ, and how."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


def inspected(path: str) -> Iterator[str]:
    """Lines about a file: its format, attributes, and entries with shape, dtype, bytes and the head of their SHA-256.

    Every array is read, and verified where the file has digests. SnapshotError for a file that cannot be read.
    """
    with formats.opened(path) as source:
        yield f"{os.path.basename(path)}: {formats.of_path(path).name}, {os.path.getsize(path):,} bytes"
        for name, value in source.attributes.items():
            yield f"  {name} = {value}"
        total, width = 0, max(map(len, source.shapes), default=0)
        for name, (shape, dtype) in source.shapes.items():
            array = source.read(name)
            total += array.nbytes
            yield f"  {name:<{width}}  {dtype.name:<8} {shape!s:<20} {array.nbytes:>14,}  {digest(array)[:SHOWN]}"
        yield f"{len(source.shapes)} arrays, {total:,} bytes"


def convert(origin: str, target: str) -> int:
    """Write what is in a file to another one, in the format of its suffix; the number of arrays.

    SINGA's files do not say which matrix is a convolution's and which a dense layer's, so they go to formats alone that
    keep arrays as they are. SnapshotError for what cannot be read or written.
    """
    if formats.of_path(target).converts_layouts and not formats.of_path(origin).is_written:
        raise SnapshotError(
            f"{target}: wanted to know the layers that the arrays of {origin} are of, to lay them out as wanted there; "
            "load it into a net, and save that"
        )
    with formats.opened(origin) as source:
        contents = tree.of_source(source)
        formats.write(contents, target)
        return len(contents.arrays)


def differences(first: str, second: str) -> Iterator[Difference]:
    """What two files, of any formats, differ in: attributes that both have, then entries in the order of the first."""
    with formats.opened(first) as a, formats.opened(second) as b:
        for name in a.attributes:
            if name in b.attributes and a.attributes[name] != b.attributes[name]:
                yield Difference(f"attribute {name}", f"{a.attributes[name]!r}, {b.attributes[name]!r}")
        for name in a.shapes:
            yield from _of_entry(name, a, b)
        yield from (Difference(name, "only in the second") for name in b.shapes if name not in a.shapes)


def _of_entry(name: str, a: Source, b: Source) -> Iterator[Difference]:
    if name not in b.shapes:
        yield Difference(name, "only in the first")
        return
    forms = [(shape, dtype.name) for shape, dtype in (a.shapes[name], b.shapes[name])]
    if forms[0] != forms[1]:
        yield Difference(name, "{} {}, {} {}".format(*forms[0], *forms[1]))
        return
    one, other = a.read(name), b.read(name)
    if one.tobytes() != other.tobytes():
        yield Difference(name, _distance(one, other))


def _distance(one: NDArray[np.generic], other: NDArray[np.generic]) -> str:
    """How many elements differ, and by how much at most where they are numbers."""
    same = (one == other) | ((one != one) & (other != other))
    count = int(np.count_nonzero(~same))
    text = f"{count} of {one.size} elements differ"
    if count and one.dtype.kind == "f":
        with np.errstate(all="ignore"):  # infinities
            text += f", by at most {np.nanmax(np.abs(one.astype(float) - other.astype(float))):.3g}"
    return text if count else f"{text}, but for signs of zeros or kinds of NaN"
