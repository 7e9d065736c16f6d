"""Submodels: the part of a net between some of its layers, as a net of its own over the very same layers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from singa_lite.common.checks import names
from singa_lite.common.errors import GraphError
from singa_lite.layer.layer import Layer, Node
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.topology import Source
from singa_lite.tensor import Shape


class SubmodelLayers(NamedTuple):
    """Layers of a net with their sources within the part; shapes: the sample shapes that its inputs are fed."""

    layers: Mapping[str, Layer]
    sources: Mapping[str, tuple[Source, ...]]
    shapes: Mapping[str, Shape]


def part_of(net: LayerGraph, outputs: str | Collection[str], inputs: str | Collection[str] | None) -> SubmodelLayers:
    """What lies between `inputs`, which are fed, and `outputs`.

    GraphError for names of no layers, for inputs that lead to none of the outputs, for a way to the outputs that passes
    by the inputs, and for outputs that feed others of the part.
    """
    ordered = {node.layer.name: node for node in net.ordered()}
    nodes = {name: ordered[name] for name in net.layers}  # in the order of adding
    shapes = {(name, index): s for name in nodes for index, s in enumerate(net.output_shapes(name))}
    ends = _known("submodel outputs", outputs, nodes)
    starts = None if inputs is None else _known("submodel inputs", inputs, nodes)
    found = _ancestors_of(ends, frozenset(starts or ()), nodes)
    _check_outputs(ends, found, nodes, frozenset(starts or ()))
    if starts is not None:
        _check_inputs(starts, found, nodes)
    kept = [*(name for name in nodes if name in found and name not in ends), *ends]  # what is added follows the last
    sources = {name: () if name in (starts or ()) else tuple(map(Source._make, nodes[name].sources)) for name in kept}
    fed = {name: shapes[nodes[name].sources[0]] for name in starts or () if nodes[name].sources}
    return SubmodelLayers({name: nodes[name].layer for name in kept}, sources, fed)


def _known(where: str, given: str | Collection[str], nodes: Mapping[str, Node]) -> list[str]:
    """The names of layers, each once. GraphError for none, for others, and for one twice."""
    found = names(where, [given] if isinstance(given, str) else given)
    if not found:
        raise GraphError(f"{where}: wanted the names of layers of the net, received none")
    for name in found:
        if name not in nodes:
            raise GraphError(f"{where}: wanted the names of layers of the net itself, received {name!r}")
    if len(set(found)) < len(found):
        raise GraphError(f"{where}: wanted each name once, received {list(found)}")
    return list(found)


def _ancestors_of(ends: Collection[str], starts: Collection[str], nodes: Mapping[str, Node]) -> set[str]:
    """The layers that outputs are made of, back to the inputs."""
    found: set[str] = set()
    waiting = list(ends)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [] if name in starts else [source for source, _ in nodes[name].sources]
    return found


def _check_outputs(
    ends: Collection[str], found: Collection[str], nodes: Mapping[str, Node], starts: Collection[str]
) -> None:
    for name in found:
        for source, _ in () if name in starts else nodes[name].sources:
            if source in ends:
                raise GraphError(
                    f"submodel outputs: wanted layers that feed no other of the submodel, received {source!r}, which "
                    f"feeds {name!r}; predict(x, output=[{source!r}]) and forward(..., output=[{source!r}]) give it"
                )


def _check_inputs(starts: Collection[str], found: Collection[str], nodes: Mapping[str, Node]) -> None:
    for name in starts:
        if name not in found:
            raise GraphError(f"submodel inputs: wanted layers that lead to the outputs, received {name!r}")
        if len(nodes[name].sources) > 1:
            raise GraphError(
                f"submodel inputs: wanted layers of one source, received {name!r} with "
                f"{[source for source, _ in nodes[name].sources]}; name these"
            )
    for name in found:
        if name not in starts and not nodes[name].sources:
            raise GraphError(
                f"submodel inputs: wanted all that the outputs are made of, received {list(starts)}, which leave out "
                f"{name!r}"
            )
