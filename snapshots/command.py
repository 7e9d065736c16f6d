"""`python -m singa_lite snapshot`: says what is in a file, converts it, and compares two files."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.atomic import replacing
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots import formats, output
from singa_lite.snapshots.manifest import digest
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.tree import Tree, is_of_weights, mark_weights

#: Digits of a SHA-256 that are shown: enough to tell two arrays apart.
SHOWN = 12

#: Bytes that are copied at once.
_PIECE = 1 << 20

#: Attributes that are named where the target lacks them.
_REPORTED = ("optimizer", "step")


class Difference(NamedTuple):
    """One entry or attribute in which two files differ, and how."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


class Converted(NamedTuple):
    """How many arrays were written; and entries and attributes of the origin that the target's format cannot hold."""

    arrays: int
    left_out: list[str]

    def __str__(self) -> str:
        branches = Counter(name.partition("/")[0] for name in self.left_out if "/" in name)
        lost = [f"{count} below {branch}/" for branch, count in branches.items()]
        lost += [name for name in self.left_out if "/" not in name]
        return f"{self.arrays} arrays" + (f"; left out: {', '.join(lost)}" if lost else "")


def inspected(path: str) -> Iterator[str]:
    """Lines about a file: its format, attributes, and entries with shape, dtype, bytes and the head of their SHA-256.

    Every array is read, and verified where the file has digests. SnapshotError for a file that cannot be read.
    """
    with formats.opened(path) as snapshot:
        yield f"{os.path.basename(path)}: {formats.of_path(path).name}, {os.path.getsize(path):,} bytes"
        for name, value in snapshot.attributes.items():
            yield f"  {name} = {value}"
        if snapshot.left_out:
            yield f"  left_out = {json.dumps(snapshot.left_out)}"
        total, width = 0, max(map(len, snapshot.arrays), default=0)
        for name, lazy in snapshot.arrays.items():
            spec = f"{lazy.dtype.name:<8} {lazy.shape!s:<20}"
            array = snapshot.read(name)
            total += array.nbytes
            yield f"  {name:<{width}}  {spec} {array.nbytes:>14,}  {digest(array)[:SHOWN]}"
        yield f"{len(snapshot.arrays)} arrays, {total:,} bytes"


def convert(origin: str, target: str, weights_only: bool = False) -> Converted:
    """Write what is in a file to another one, in the format of its suffix. weights_only: as for `formats.save`.

    Between two files of one format with other names and layouts than ours, another program's file is copied as it is:
    to convert it there and back would lose something, such as bfloat16. SINGA's files do not say which matrix is a
    convolution's and which a dense layer's, so they are converted only to formats that keep arrays as they are.
    SnapshotError for what cannot be read or written.
    """
    before, after = formats.of_file(origin), formats.of_path(target)
    if after.converts_layouts and not before.is_written:
        raise SnapshotError(
            f"{target}: wanted to know the layers that the arrays of {origin} are of, to lay them out as wanted there; "
            "load it into a net, and save that"
        )
    with formats.opened(origin) as snapshot:
        if before is after and before.converts_layouts and is_of_weights(snapshot.attributes):
            _copy(origin, target)
            return Converted(len(snapshot.arrays) + len(snapshot.left_out), [])
        contents = Tree(snapshot.arrays, snapshot.attributes | {"entries": len(snapshot.arrays)}, snapshot.path)
        if not before.has_optimizer:
            mark_weights(contents)
        formats.write(contents, target, weights_only=weights_only)
        with formats.opened(target) as written:
            lost = [path for path in contents.arrays if path not in written.arrays]
            without = [name for name in _REPORTED if name in contents.attributes and name not in written.attributes]
    left_out = [*lost, *(f"attribute {name}" for name in without), *snapshot.left_out]
    return Converted(len(contents.arrays) - len(lost), left_out)


def _copy(origin: str, target: str) -> None:
    with raw.reading(origin) as source, replacing(target) as file:
        for start in range(0, source.size, _PIECE):
            output.write_all(file, source.read("the file", start, min(_PIECE, source.size - start)).data)


def differences(first: str, second: str) -> Iterator[Difference]:
    """What two files, of any formats, differ in: attributes, then entries in the order of the first.

    An attribute of one file alone, such as the step of an optimizer, is a difference if both files can hold it. Files
    of other programs, and formats without an optimizer, have few attributes or none.
    """
    with formats.opened(first) as a, formats.opened(second) as b:
        yield from _of_attributes(a, b, formats.holds_optimizer(first, a) and formats.holds_optimizer(second, b))
        for name in a.arrays:
            yield from _of_entry(name, a, b)
        yield from (Difference(name, "only in the second") for name in b.arrays if name not in a.arrays)


#: What is said of configurations, which are long.
_CONFIGURED = "layers with other options, or compiled otherwise"


def _of_attributes(a: Tree, b: Tree, both_keep: bool) -> Iterator[Difference]:
    """both_keep: whether an attribute of one alone is a difference."""
    for name in {**a.attributes, **b.attributes}:
        found = [repr(tree.attributes[name]) for tree in (a, b) if name in tree.attributes]
        if len(found) == 2 and a.attributes[name] != b.attributes[name]:
            yield Difference(f"attribute {name}", _CONFIGURED if name == "config" else ", ".join(found))
        elif len(found) == 1 and both_keep:
            which = "first" if name in a.attributes else "second"
            yield Difference(f"attribute {name}", f"{found[0]}, only in the {which}")


def _of_entry(name: str, a: Tree, b: Tree) -> Iterator[Difference]:
    if name not in b.arrays:
        yield Difference(name, "only in the first")
        return
    specs = [(lazy.shape, lazy.dtype.name) for lazy in (a.arrays[name], b.arrays[name])]
    if specs[0] != specs[1]:
        yield Difference(name, "{} {}, {} {}".format(*specs[0], *specs[1]))
        return
    one, other = (array.astype(array.dtype.newbyteorder("="), copy=False) for array in (a.read(name), b.read(name)))
    if one.tobytes() != other.tobytes():
        yield Difference(name, _distance(one, other))


def _distance(one: NDArray[np.generic], other: NDArray[np.generic]) -> str:
    """How many elements differ, and by how much at most where they are numbers."""
    same = (one == other) | ((one != one) & (other != other))
    count = int(np.count_nonzero(~same))
    text = f"{count} of {one.size} elements differ"
    if not count:
        return f"{text}, but for signs of zeros or kinds of NaN"
    if one.dtype.kind == "f":
        with np.errstate(all="ignore"):  # infinities
            distances = np.abs(one[~same].astype(float) - other[~same].astype(float))
        known = distances[~np.isnan(distances)]
        text += f", by at most {known.max():.3g}" if known.size else ""
        text += f", {count - known.size} of them NaN in one file alone" if known.size < count else ""
    return text
