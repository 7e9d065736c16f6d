"""The net of an ONNX graph: a layer for each group of nodes, with the file's weights."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from singa_lite import device as devices
from singa_lite.common import checks
from singa_lite.common.errors import SnapshotError
from singa_lite.layers import Dummy
from singa_lite.layers.onnx.nodes import OnnxNodes, known_operators
from singa_lite.models.onnx_groups import Group, Known, groups_of, known_of, layer_name, unique
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.snapshots.onnx.read import read
from singa_lite.tensor import DeviceSpec, Shape, checked_shape

#: Ids where no table says how many there are.
_IDS = 1 << 31


def net_of(
    path: str | os.PathLike[str], device: DeviceSpec, shapes: Mapping[str, Sequence[int]] | None, seed: int | None
) -> FeedForwardNet:
    """What `models.from_onnx` returns."""
    shapes = _checked_shapes(shapes)
    graph = read(checks.path("from_onnx", path), known_operators())
    for name in shapes:
        checks.check_choice("from_onnx shapes of an input", name, graph.inputs)
    net = FeedForwardNet(device=devices.get(device), seed=seed)
    fed = {name: (_sample_shape(name, one.shape, shapes), one.dtype) for name, one in graph.inputs.items()}
    bad = {name: str(dtype) for name, (_, dtype) in fed.items() if dtype.kind not in "fi"}
    if bad:
        raise SnapshotError(f"from_onnx: wanted inputs of floats or signed integers, received {bad}")
    known = known_of([one._asdict() for one in graph.nodes], graph.outputs, fed, graph.arrays)
    _add_layers(net, known, graph.outputs)
    return net


def _checked_shapes(given: object) -> dict[str, Shape]:
    """Returns sample shapes by input, {} for None. TypeError or ShapeError for anything else."""
    if not isinstance(given, Mapping | None):
        raise TypeError(f"from_onnx shapes: wanted a dict {{input: sample shape}}, received {given!r:.100}")
    return {name: checked_shape(f"from_onnx shapes of input {name!r}", shape) for name, shape in (given or {}).items()}


def _sample_shape(name: str, shape: Sequence[int | str], given: Mapping[str, Sequence[int]]) -> Shape:
    """The extents behind the batch: those given, or the file's."""
    found = tuple(given.get(name, shape[1:]))
    if not shape or len(found) != len(shape) - 1 or not all(checks.is_int(n) and n > 0 for n in found):
        raise SnapshotError(
            f"from_onnx: wanted a sample shape of the input {name!r}, of {max(len(shape) - 1, 0)} numbers, as "
            f"shapes={{{name!r}: (...)}}, received {found}; the file has {tuple(shape)}"
        )
    return tuple(int(n) for n in found)


def _add_layers(net: FeedForwardNet, known: Known, outputs: Sequence[str]) -> None:
    groups = groups_of(known, net.device)
    used = {*known.outputs, *(name for group in groups for name in group.takes)}
    sources: dict[str, tuple[str, int]] = {}
    for name, (shape, _) in known.fed.items():
        if name in used:
            net.add(Dummy(layer_name(name), shape), [])
            sources[name] = layer_name(name), 0
    for group in groups:
        layer = _layer(group, known)
        net.add(layer, [sources[name] for name in group.takes])
        for tensors, names in ((layer.parameters, group.weights), (layer.states, group.running)):
            for name, value in names.items():
                tensors[name].copy_from_numpy(known.arrays[value].astype(net.dtype))
        sources |= {value: (group.name, at) for at, value in enumerate(group.makes)}
    taken = set(net.layers)
    for name, value in zip(outputs, known.outputs, strict=True):
        net.add(Dummy(unique(layer_name(name), taken)), [sources[value]])


def _layer(group: Group, known: Known) -> OnnxNodes:
    """The layer of a group, its parameters without values."""
    weights, running = (
        {name: (value, known.arrays[value].shape) for name, value in names.items()}
        for names in (group.weights, group.running)
    )
    held = {*group.weights.values(), *group.running.values()}
    used = {name for node in group.nodes for name in node["inputs"]} - held
    constants = {name: known.arrays[name] for name in sorted(used) if name in known.arrays}
    ids = {name: _rows(name, group, known) for name in group.takes if name in known.fed and _is_ids(name, known)}
    return OnnxNodes(group.name, group.nodes, group.takes, group.makes, weights, running, constants, ids)


def _is_ids(name: str, known: Known) -> bool:
    return known.fed[name][1].kind == "i"


def _rows(name: str, group: Group, known: Known) -> int:
    """How many ids there may be: rows of the tables that they are looked up in."""
    tables = [one["inputs"][0] for one in group.nodes if one["operator"] == "Gather" and one["inputs"][1] == name]
    return min((len(known.arrays[table]) for table in tables if table in known.arrays), default=_IDS)
