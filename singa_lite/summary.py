"""The table that `net.summary()` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from singa_lite.run import Node

_HEAD = ("layer (kind)", "input from", "output shape", "parameters", "bytes")


def table(nodes: Sequence[Node]) -> str:
    """A box table: each layer with its sources, output sample shape, number of parameters and their bytes.

    A shared parameter counts once, with the layer that owns it. The last lines give the sums, state apart.
    """
    seen: set[int] = set()
    rows = [_row(node, seen) for node in nodes]
    parameters = sum(int(row[3].replace(",", "")) for row in rows)
    nbytes = sum(int(row[4].replace(",", "")) for row in rows)
    state = sum(t.nbytes for node in nodes for t in node.layer.states.values())
    return "\n".join([*_box(rows), f"parameters: {parameters:,} ({nbytes:,} bytes), state: {state:,} bytes"])


def _row(node: Node, seen: set[int]) -> tuple[str, ...]:
    layer = node.layer
    own = [t for t in layer.parameters.values() if id(t) not in seen]
    seen.update(id(t) for t in own)
    sources = ", ".join(name if not index else f"{name}[{index}]" for name, index in node.sources)
    count, nbytes = sum(t.size() for t in own), sum(t.nbytes for t in own)
    kind = type(layer).__name__
    return f"{layer.name} ({kind})", sources or "input", _shape(layer.output_sample_shape), f"{count:,}", f"{nbytes:,}"


def _shape(shape: Any) -> str:
    return ", ".join(str(s) for s in shape) if isinstance(shape, list) else str(shape)


def _box(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in [_HEAD, *rows]) for i in range(len(_HEAD))]

    def rule(left: str, middle: str, right: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + right

    def line(row: tuple[str, ...]) -> str:
        cells = [row[i].rjust(widths[i]) if i > 2 else row[i].ljust(widths[i]) for i in range(len(widths))]
        return "│ " + " │ ".join(cells) + " │"

    return [rule("┌", "┬", "┐"), line(_HEAD), rule("├", "┼", "┤"), *map(line, rows), rule("└", "┴", "┘")]
