"""Which group of a Keras file holds which arrays of the tree: derived from the net, or guessed from the file alone."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from singa_lite.errors import SnapshotError
from singa_lite.snapshots.formats.keras.layouts import (
    VARIABLES,
    Layout,
    guessed,
    keras_class,
    layout,
    snake_case,
)
from singa_lite.snapshots.formats.keras.net import LayerInfo, is_chain, keras_order
from singa_lite.snapshots.formats.keras.orders import Order, input_orders
from singa_lite.snapshots.tree import ArraySpec
from singa_lite.tensor import Shape

#: Keras's classes with weights, by their names in a file.
_KINDS = {snake_case(kind): kind for kind in (*VARIABLES, "DepthwiseConv1D", "DepthwiseConv2D")}

#: Keras's classes, by the same names, that may reorder features.
_REORDERING = ("flatten", "permute", "reshape")


class Variable(NamedTuple):
    """An array of the tree, and its layout in Keras."""

    path: str
    layout: Layout


class Group(NamedTuple):
    """A layer in a Keras file: path of its group, its name, and its arrays in the order of Keras's numbers."""

    path: str
    name: str
    variables: tuple[Variable, ...]


class FileGroup(NamedTuple):
    """A group in a file: the layer's name, and shape of each array, in order."""

    name: str
    shapes: tuple[Shape, ...]


def groups_of_net(
    where: str, net: Mapping[str, LayerInfo], specs: Mapping[str, ArraySpec], depthwise: bool = True
) -> list[Group]:
    """The groups of a net's layers, in Keras's order. specs: of the tree's arrays; depthwise: as for `keras_class`.

    SnapshotError names a layer whose arrays Keras lacks.
    """
    orders = input_orders(net)
    owned = _owned(specs)
    strangers = owned.keys() - net.keys()
    within = min((name for name in strangers if name.partition("/")[0] in net), default="")
    if within:
        info = net[within.partition("/")[0]]
        raise SnapshotError(f"{where}: layer {info.name!r} ({info.kind}) has no form in Keras: it holds {within!r}")
    if strangers:
        raise SnapshotError(f"{where}: wanted arrays of the net's layers, received some of {min(strangers)!r}")
    counts: Counter[str] = Counter()
    inputs = [name for name, info in net.items() if not (info.sources or info.kind == "Dummy")]
    inputs = [] if is_chain(net) else inputs
    groups = [Group(_numbered("input_layer", counts), f"{name}_input", ()) for name in inputs]
    for name in keras_order(net):
        info = net[name]
        try:
            kind, variables = _variables(info, orders[name], owned.get(name, {}), depthwise)
        except ValueError as error:
            raise SnapshotError(f"{where}: layer {name!r} ({info.kind}) has no form in Keras: {error}") from error
        groups.append(Group(_numbered(kind, counts), name, variables))
    return groups


def _owned(specs: Mapping[str, ArraySpec]) -> dict[str, dict[str, ArraySpec]]:
    """{layer: its own parameters and state by path}, without the keys of random streams, which are no floats."""
    owned: dict[str, dict[str, ArraySpec]] = defaultdict(dict)
    for path, spec in specs.items():
        branch, _, rest = path.partition("/")
        if branch == "parameters" or (branch == "state" and spec.dtype.kind not in "biu"):
            owned[rest.rpartition("/")[0]][path] = spec
    return owned


def _variables(
    info: LayerInfo, order: Order, owned: Mapping[str, ArraySpec], depthwise: bool
) -> tuple[str, tuple[Variable, ...]]:
    """(name of its class in paths, its arrays). ValueError for arrays that Keras lacks."""
    paths = [path.format(info.name) for path in VARIABLES.get(info.kind, ())]
    strange = [path for path in owned if path not in paths]
    missing = [path for path in paths if path not in owned and not path.endswith("/bias")]
    if strange or missing:
        raise ValueError(f"arrays {strange} are not in it, {missing} are wanted")
    weight = owned[paths[0]].shape if paths else None
    kind = keras_class(info, weight, depthwise)
    if kind is None:
        # A class that Keras lacks gets a name that Keras never looks for: its own have neither dots nor capitals.
        return f"singa_lite.{re.sub(r'[^A-Za-z0-9]', '', info.kind)}", ()
    there = [path for path in paths if path in owned]
    return snake_case(kind), tuple(Variable(path, layout(kind, info, order, path, owned[path].shape)) for path in there)


def _numbered(name: str, counts: Counter[str]) -> str:
    """The path of the next group of this name: "layers/dense", "layers/dense_1" and so on."""
    number = counts[name]
    counts[name] += 1
    return f"layers/{name}_{number}" if number else f"layers/{name}"


def matched(where: str, candidates: Collection[list[Group]], found: Mapping[str, FileGroup]) -> list[Group]:
    """The first of the candidates that fits the file, with the paths of its groups there.

    Groups are found by the layers' names if the file has them all, else by class and number. SnapshotError names a
    group that is missing, has other shapes, or is left over.
    """
    problems = []
    for groups in candidates:
        wanted = [group for group in groups if group.variables]
        located = _by_name(wanted, found) or wanted
        problem = next(_problems(located, found), None)
        if problem is None:
            return located
        problems.append(problem)
    raise SnapshotError(f"{where}: {problems[0]}")


def _by_name(wanted: Collection[Group], found: Mapping[str, FileGroup]) -> list[Group] | None:
    """The groups with their paths in the file. None unless each name belongs to one group there."""
    names = Counter(group.name for group in found.values())
    if any(names[group.name] != 1 for group in wanted):
        return None
    paths = {group.name: path for path, group in found.items()}
    return [group._replace(path=paths[group.name]) for group in wanted]


def _problems(groups: Collection[Group], found: Mapping[str, FileGroup]) -> Iterator[str]:
    for path, name, variables in groups:
        shapes = tuple(variable.layout.keras for variable in variables)
        if path not in found:
            yield f"wanted a group {path!r} for layer {name!r}, received {sorted(found)}"
        elif found[path].shapes != shapes:
            yield f"group {path!r}: wanted arrays of shapes {shapes} for layer {name!r}, received {found[path].shapes}"
    for path in found.keys() - {group.path for group in groups}:
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
        kind = _KINDS.get(kinds[path])
        which = f"{where}: group {path!r} of layer {name!r}"
        if kind is None:
            raise SnapshotError(f"{which}: wanted a layer of {', '.join(_KINDS)}")
        if kind == "Dense" and reordered is not None:
            raise SnapshotError(f"{which}: its rows may lie otherwise in Keras, for {reordered!r}; load it into a net")
        if not name or "/" in name or name in made:
            raise SnapshotError(f"{which}: wanted a name that no other layer has")
        made[name] = Group(path, name, tuple(_guessed(which, kind, name, shapes)))
    return list(made.values())


def _guessed(which: str, kind: str, name: str, shapes: tuple[Shape, ...]) -> Iterator[Variable]:
    paths = VARIABLES[kind.removeprefix("Depthwise")]
    fewest = len(paths) - (paths[-1].endswith("/bias"))
    if not fewest <= len(shapes) <= len(paths):
        raise SnapshotError(f"{which}: wanted {len(paths)} arrays, received {len(shapes)}")
    for path, shape in zip(paths, shapes, strict=False):
        try:
            yield Variable(path.format(name), guessed(kind, path.rpartition("/")[2], shape))
        except ValueError as error:
            raise SnapshotError(f"{which}: {error}; load it into a net") from error
