"""The table that `net.summary()` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_HEAD = ("layer (kind)", "input from", "output shape", "parameters", "bytes")


class LayerRow(NamedTuple):
    """A layer. sources: the names of what feeds it, empty for an input; shapes: one output sample shape each.

    parameters, nbytes: how many numbers it has to train and their bytes, without those that another layer owns, with
    those of the layers that it holds. depth: how many layers it lies within; its sources are that layer's affair.
    trains: whether any of its parameters does, if it has some. note: options that stand behind the kind.
    """

    name: str
    kind: str
    sources: Sequence[str]
    shapes: Sequence[tuple[int, ...]]
    parameters: int
    nbytes: int
    depth: int = 0
    trains: bool = True
    note: str = ""


def table(layers: Sequence[LayerRow], state_bytes: int) -> str:
    """A box table: each layer with its sources, output sample shape, number of parameters and their bytes.

    Layers within others stand behind these, further to the right. The last line gives the sums, state apart.
    """
    outer = [layer for layer in layers if not layer.depth]
    parameters, nbytes = sum(layer.parameters for layer in outer), sum(layer.nbytes for layer in outer)
    box = _box([_cells(layer) for layer in layers])
    return "\n".join([*box, f"parameters: {parameters:,} ({nbytes:,} bytes), state: {state_bytes:,} bytes"])


def _cells(layer: LayerRow) -> tuple[str, ...]:
    sources = "" if layer.depth else ", ".join(layer.sources) or "input"
    shapes = ", ".join(map(str, layer.shapes))
    kind = ", ".join(filter(None, (layer.kind, layer.note)))
    return (
        f"{'  ' * layer.depth}{layer.name} ({kind}){'' if layer.trains else ', not trained'}",
        sources,
        shapes,
        f"{layer.parameters:,}",
        f"{layer.nbytes:,}",
    )


def _box(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in [_HEAD, *rows]) for i in range(len(_HEAD))]

    def rule(left: str, middle: str, right: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + right

    def line(row: tuple[str, ...]) -> str:
        cells = [row[i].rjust(widths[i]) if i > 2 else row[i].ljust(widths[i]) for i in range(len(widths))]
        return "│ " + " │ ".join(cells) + " │"

    return [rule("┌", "┬", "┐"), line(_HEAD), rule("├", "┼", "┤"), *map(line, rows), rule("└", "┴", "┘")]
