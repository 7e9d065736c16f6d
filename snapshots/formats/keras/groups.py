"""Which group of a Keras file holds which arrays of the tree: derived from the net, or guessed from the file alone."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.formats.keras.cells import CellGroup, Described, Variable, numbered
from singa_lite.snapshots.formats.keras.layouts import VARIABLES, guessed, snake_case
from singa_lite.snapshots.formats.keras.net import LayerInfo, is_chain, keras_order
from singa_lite.snapshots.formats.keras.orders import channel_axes, input_orders
from singa_lite.snapshots.tree import ArraySpec, is_random_key
from singa_lite.tensor import Shape

#: Keras's classes with weights, by their names in a file.
_KINDS = {snake_case(kind): kind for kind in (*VARIABLES, "DepthwiseConv1D")}

#: Keras's classes, by the same names, that may reorder features.
_REORDERING = ("flatten", "permute", "reshape")


class Group(NamedTuple):
    """A layer in a Keras file, or an object within one: path of its group, its name, and its arrays.

    layer: the name of the outermost layer, in whose group it is; within: its path below that one, "" for that one.
    """

    path: str
    name: str
    variables: tuple[Variable, ...]
    layer: str
    within: str = ""

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of its arrays in the file, in the order of Keras's numbers."""
        found = {each.number: each.layout.keras for each in self.variables if each.is_stored}
        return tuple(found[number] for number in sorted(found))


class FileGroup(NamedTuple):
    """A group in a file: the layer's name, and shape of each array, in order."""

    name: str
    shapes: tuple[Shape, ...]


def groups_of_net(
    where: str, net: Mapping[str, LayerInfo], specs: Mapping[str, ArraySpec], depthwise: bool = False
) -> list[Group]:
    """The groups of a net's layers, in Keras's order. specs: of the tree's arrays; depthwise: as for `keras_class`.

    SnapshotError names a layer whose arrays Keras lacks.
    """
    orders, axes = input_orders(net), channel_axes(net)
    owned = _owned(specs)
    inner: dict[str, list[str]] = defaultdict(list)
    for name in sorted(owned):
        inner[name.partition("/")[0]].append(name)
    strangers = inner.keys() - net.keys()
    if strangers:
        raise SnapshotError(f"{where}: wanted arrays of the net's layers, received some of {min(strangers)!r}")
    tables = {info.shares for info in net.values() if info.kind == "TiedDense"}
    counts: Counter[str] = Counter()
    inputs = [name for name, info in net.items() if not (info.sources or info.kind == "Dummy")]
    inputs = [] if is_chain(net) else inputs
    names = [f"{name}_input" for name in inputs]
    groups = [Group(f"layers/{numbered('input_layer', counts)}", name, (), name) for name in names]
    for name in keras_order(net):
        info = net[name]
        try:
            kind, parts = Described(owned, depthwise).parts(info, orders[name], axes)
            _check_all_placed(info, parts, {each: owned[each] for each in inner.get(name, ())})
        except ValueError as error:
            raise SnapshotError(f"{where}: layer {name!r} ({info.kind}) has no form in Keras: {error}") from error
        kind = "reversible_embedding" if name in tables else kind  # the same layer, called to embed and to score
        path = f"layers/{numbered(kind, counts)}"
        groups += [Group(path + part.within, part.name, part.variables, name, part.within) for part in parts]
    return groups


def _check_all_placed(
    info: LayerInfo, parts: Sequence[CellGroup], owned: Mapping[str, Mapping[str, ArraySpec]]
) -> None:
    """ValueError for an array of the layer, or of one within it, that has no place. owned: {layer: its arrays}."""
    placed = {variable.path for part in parts for variable in part.variables}
    for name, arrays in owned.items():
        left = arrays.keys() - placed
        if left:
            raise ValueError(f"it holds {name!r}" if name != info.name else f"it holds {min(left)!r}")


def _owned(specs: Mapping[str, ArraySpec]) -> dict[str, dict[str, ArraySpec]]:
    """{layer: its own parameters and state by path}, without the keys of random numbers."""
    owned: dict[str, dict[str, ArraySpec]] = defaultdict(dict)
    for path, spec in specs.items():
        branch, _, rest = path.partition("/")
        if branch == "parameters" or (branch == "state" and not is_random_key(path, spec)):
            owned[rest.rpartition("/")[0]][path] = spec
    return owned


def matched(where: str, candidates: Collection[list[Group]], found: Mapping[str, FileGroup]) -> list[Group]:
    """The first of the candidates that fits the file, with the paths of its groups there.

    Groups are found by the layers' names if the file has them all, else by class and number. SnapshotError names a
    group that is missing, has other shapes, or is left over.
    """
    problems = []
    for groups in candidates:
        wanted = [group for group in groups if group.shapes]
        located = _by_name(wanted, found) or wanted
        problem = next(_problems(located, found), None)
        if problem is None:
            return located
        problems.append(problem)
    raise SnapshotError(f"{where}: {problems[0]}")


def fitting(candidates: Collection[list[Group]], found: Mapping[str, FileGroup]) -> list[Group]:
    """Those groups that are in the file, of the candidate with the most: by the layers' names if it has any of them."""
    names = {group.name for group in found.values()}
    fits: list[list[Group]] = []
    for groups in candidates:
        named = [group for group in groups if group.shapes and group.layer in names]
        located = (_by_name(named, found) or []) if named else groups
        there = [group for group in located if group.shapes and group.path in found]
        fits.append([group for group in there if found[group.path].shapes == group.shapes])
    return max(fits, key=len)


def _by_name(wanted: Collection[Group], found: Mapping[str, FileGroup]) -> list[Group] | None:
    """The groups with their paths in the file. None unless each layer's name belongs to one group there."""
    names = Counter(group.name for group in found.values())
    if any(names[group.layer] != 1 for group in wanted):
        return None
    paths = {group.name: path for path, group in found.items()}
    return [group._replace(path=paths[group.layer] + group.within) for group in wanted]


def _problems(groups: Collection[Group], found: Mapping[str, FileGroup]) -> Iterator[str]:
    stored = {path for path in found if found[path].shapes}
    for group in groups:
        path, name = group.path, group.layer
        if path not in stored:
            yield f"wanted a group {path!r} for layer {name!r}, received {sorted(stored)}"
        elif found[path].shapes != group.shapes:
            wanted = f"wanted arrays of shapes {group.shapes} for layer {name!r}"
            yield f"group {path!r}: {wanted}, received {found[path].shapes}"
    for path in stored - {group.path for group in groups}:
        yield f"received a group {path!r} of layer {found[path].name!r}, for which there is no place"


def guessed_groups(where: str, found: Mapping[str, FileGroup], groups: Collection[str]) -> list[Group]:
    """The groups of a file without a net to load into; layers keep their names. groups: all paths in the file.

    SnapshotError for a class that is not ours, for two layers of one name, and for a Dense in a net with a Flatten: the
    order of its rows depends on the net.
    """
    kinds = {path: re.sub(r"_\d+$", "", path.rpartition("/")[2]) for path in groups}
    reordered = next((path for path, kind in kinds.items() if kind in _REORDERING), None)
    made: dict[str, Group] = {}
    for path, (name, shapes) in found.items():
        if not shapes:  # what is within it stands at paths of its own
            continue
        kind = _KINDS.get(kinds[path])
        which = f"{where}: group {path!r} of layer {name!r}"
        if kind is None:
            raise SnapshotError(f"{which}: wanted a layer of {', '.join(_KINDS)}")
        if kind == "Dense" and reordered is not None:
            raise SnapshotError(f"{which}: its rows may lie otherwise in Keras, for {reordered!r}; load it into a net")
        if not name or "/" in name or name in made:
            raise SnapshotError(f"{which}: wanted a name that no other layer has")
        made[name] = Group(path, name, tuple(_guessed(which, kind, name, shapes)), name)
    return list(made.values())


def _guessed(which: str, kind: str, name: str, shapes: tuple[Shape, ...]) -> Iterator[Variable]:
    paths = VARIABLES[kind.removeprefix("Depthwise")]
    fewest = len(paths) - (paths[-1].endswith("/bias"))
    if not fewest <= len(shapes) <= len(paths):
        raise SnapshotError(f"{which}: wanted {len(paths)} arrays, received {len(shapes)}")
    for number, (path, shape) in enumerate(zip(paths, shapes, strict=False)):
        try:
            yield Variable(path.format(name), guessed(kind, path.rpartition("/")[2], shape), number)
        except ValueError as error:
            raise SnapshotError(f"{which}: {error}; load it into a net") from error
