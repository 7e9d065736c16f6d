"""Rows of `summary`: each layer as plain values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from singa_lite.compiler.report.net_text import LayerRow
from singa_lite.layer.layer import Layer, Node
from singa_lite.tensor import Tensor


def layer_rows(nodes: Sequence[Node]) -> Iterator[LayerRow]:
    """A row for each layer, and behind it one for each layer within it.

    A shared parameter counts once, with the first layer that has it: the one that owns it.
    """
    seen: set[int] = set()
    for layer, sources in nodes:
        own = [tensor for tensor in layer.parameters.values() if id(tensor) not in seen]
        names = [name if not index else f"{name}[{index}]" for name, index in sources]
        yield _row(layer, names, own, 0)
        yield from _rows_within(layer, seen, 1)
        seen.update(map(id, own))


def _rows_within(layer: Layer, seen: set[int], depth: int) -> Iterator[LayerRow]:
    for inner in layer.layers.values():
        own = [tensor for tensor in inner.parameters.values() if id(tensor) not in seen]
        yield _row(inner, [], own, depth)
        yield from _rows_within(inner, seen, depth + 1)
        seen.update(map(id, own))


def _row(layer: Layer, sources: list[str], own: Sequence[Tensor], depth: int) -> LayerRow:
    counted = {id(tensor): tensor for tensor in own}.values()
    return LayerRow(
        layer.name,
        type(layer).__name__,
        sources,
        layer.output_sample_shapes,
        sum(tensor.size() for tensor in counted),
        sum(tensor.nbytes for tensor in counted),
        depth,
        not counted or any(tensor.stores_grad for tensor in counted),
        layer.summary_note(),
    )
