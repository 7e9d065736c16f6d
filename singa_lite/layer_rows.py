"""What `net.summary()` says of each layer, as plain rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from singa_lite.layer import Node
from singa_lite.reports.summary import LayerRow


def layer_rows(nodes: Sequence[Node]) -> Iterator[LayerRow]:
    """A row for each layer. A shared parameter counts once, with the first layer that has it: the one that owns it."""
    seen: set[int] = set()
    for layer, sources in nodes:
        own = [tensor for tensor in layer.parameters.values() if id(tensor) not in seen]
        seen.update(map(id, own))
        shape = layer.output_sample_shape
        yield LayerRow(
            layer.name,
            type(layer).__name__,
            [name if not index else f"{name}[{index}]" for name, index in sources],
            shape if isinstance(shape, list) else [shape] if shape is not None else [],
            sum(tensor.size() for tensor in own),
            sum(tensor.nbytes for tensor in own),
        )
