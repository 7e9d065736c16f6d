"""Names and shapes of the arrays in SINGA's files, converted to ours.

Until 1.1.0 a parameter is "<layer>_<suffix>", since then "<layer>/<suffix>", and in 3.1 and later, where layers are
attributes of objects, "<layer>.<suffix>" with other suffixes. All spellings are tried, whatever version the file says,
since 1.1.1 wrote new names under an old version. A slash in the name of SINGA's layer is a dot in ours, or stands
between a layer of ours and the one that holds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.tree import LazyArray, Tree, weights_tree
from singa_lite.tensor import Shape

#: {our name: SINGA's suffix until 3.0}; all others are the same.
_SUFFIXES = {"running_mean": "mean", "running_var": "var"}

#: {SINGA's suffix until 3.0: (branch of the tree, our name)}.
_KNOWN = {name: ("parameters", name) for name in ("weight", "bias", "gamma", "beta")} | {
    theirs: ("state", ours) for ours, theirs in _SUFFIXES.items()
}

#: The same of 3.1 and later. A Linear's bias is "b" there; "bias" is a BatchNorm2d's beta.
_DOTTED = {
    "W": ("parameters", "weight"),
    "b": ("parameters", "bias"),
    "scale": ("parameters", "gamma"),
    "bias": ("parameters", "beta"),
    "running_mean": ("state", "running_mean"),
    "running_var": ("state", "running_var"),
}

#: {our name: suffix of 3.1 and later}.
_DOTTED_SUFFIXES = {ours: theirs for theirs, (_, ours) in _DOTTED.items()}


def named(where: str, found: Mapping[str, LazyArray], wanted: Tree | None) -> Tree:
    """The arrays of a file by the tree's paths. found: by the file's names. where: the file.

    wanted: the net's tree; each of its parameters and running statistics takes the array of its name, in its shape.
    Arrays that are left over keep a path of their own, at which restoring stops. Without `wanted` all paths come from
    the names, and shapes are as they are stored: a convolution's weight has two axes. SnapshotError for two arrays with
    one path, and for an entry of `wanted` that the file lacks, unless that is partial.
    """
    taken = {} if wanted is None else dict(_matched_names(where, found, wanted))
    arrays = {path: _fitted(found[name], wanted.arrays[path]) for path, name in taken.items()} if wanted else {}
    used = Counter(taken.values())
    for name, count in used.items():
        if count > 1:
            raise SnapshotError(f"{where}: entry {name!r}: wanted by {[p for p, n in taken.items() if n == name]}")
    for name in found:
        if name not in used:
            path = plain_path(name)
            if path in arrays:
                raise SnapshotError(f"{where}: wanted one array for {path!r}, received {name!r} beside another")
            arrays[path] = found[name]
    return weights_tree(where, arrays, wanted)


def plain_path(name: str) -> str:
    """The path in the tree for a name in a file of SINGA's, by the name alone.

    "conv1/weight", "conv1_weight" and "conv1.W" are "parameters/conv1/weight", "bn_mean" is "state/bn/running_mean".
    """
    for mark, known in (("/", _KNOWN), (".", _DOTTED), ("_", _KNOWN)):
        layer, _, suffix = name.rpartition(mark)
        if layer and suffix in known:
            branch, ours = known[suffix]
            return f"{branch}/{layer.replace('/', '.')}/{ours}"
    return f"parameters/{name.replace('/', '.')}"


def spellings(layer: str, name: str) -> list[str]:
    """All names that SINGA may have for a layer's parameter or running statistic, newest last."""
    suffix, dotted = _SUFFIXES.get(name, name), _DOTTED_SUFFIXES.get(name, name)
    layers = dict.fromkeys((layer, layer.replace(".", "/"), layer.replace("/", ".")))
    return [f"{one}{rest}" for one in layers for rest in (f"/{suffix}", f"_{suffix}", f".{dotted}")]


def _matched_names(where: str, found: Mapping[str, LazyArray], wanted: Tree) -> Iterator[tuple[str, str]]:
    """(path, name in the file) of each parameter and running statistic of `wanted`."""
    for path, lazy in wanted.arrays.items():
        branch, _, rest = path.partition("/")
        if branch not in ("parameters", "state") or lazy.dtype.kind != "f":
            continue
        layer, _, name = rest.rpartition("/")
        tried = spellings(layer, name)
        present = [one for one in tried if one in found]
        if wanted.is_partial and not present:
            continue
        if len(present) != 1:
            received = f"both {present}" if present else "none of those"
            raise SnapshotError(f"{where}: entry {path!r}: wanted one of {tried}, received {received}")
        yield path, present[0]


def _fitted(stored: LazyArray, wanted: LazyArray) -> LazyArray:
    """A file's array in the net's shape and dtype, if it can be converted; else as it is, to be refused later."""
    shape, axes = _arrangement(stored.shape, wanted.shape)
    wider = stored.dtype.kind == "f" and np.can_cast(stored.dtype, wanted.dtype, "safe")
    dtype = wanted.dtype if wider else stored.dtype
    if (shape, dtype) == (stored.shape, stored.dtype):
        return stored
    return LazyArray(shape, dtype, partial(_converted, stored, shape, axes, dtype))


def _arrangement(stored: Shape, wanted: Shape) -> tuple[Shape, bool]:
    """(shape, whether the stored one is transposed) of a weight in the net.

    A convolution's is stored as (filters, channels * kernel), a Dense's as (in, out), or (out, in) if it had
    W_transpose. The file does not say which of the two; a square one is taken for (in, out).
    """
    if stored != wanted and len(stored) == 2:
        if len(wanted) > 2 and stored == (wanted[0], int(np.prod(wanted[1:], dtype=object))):
            return wanted, False
        if stored[::-1] == wanted:
            return wanted, True
    return stored, False


def _converted(stored: LazyArray, shape: Shape, transposed: bool, dtype: DType) -> Array:
    array = stored.fetch()
    turned = array.T if transposed else array.reshape(shape)
    return np.ascontiguousarray(turned, dtype)
