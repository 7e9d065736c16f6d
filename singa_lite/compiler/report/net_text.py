"""A net as text: the table of layers that `net.summary()` prints, its repr, and text that a notebook shows once."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from singa_lite.common import terminal

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


def table(layers: Sequence[LayerRow], state_bytes: int, frozen_bytes: int = 0) -> str:
    """A box table: each layer with its sources, output sample shape, number of parameters and their bytes.

    Layers within others stand behind these, further to the right. The last line gives the sums, state apart,
    and what quantised weights take, where there are some.
    """
    outer = [layer for layer in layers if not layer.depth]
    parameters, nbytes = sum(layer.parameters for layer in outer), sum(layer.nbytes for layer in outer)
    box = _box([_cells(layer) for layer in layers])
    frozen = f", frozen: {frozen_bytes:,} bytes" if frozen_bytes else ""
    return "\n".join([*box, f"parameters: {parameters:,} ({nbytes:,} bytes), state: {state_bytes:,} bytes{frozen}"])


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


#: So many layers are named; of more the first and the last ones.
_NAMED = 8


class Printed(str):
    """Text that was printed already: a session or a notebook that ends on it shows it no second time.

    It is the text for all else; its repr is empty, and IPython is told that there is nothing to display.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return ""

    def _ipython_display_(self) -> None:
        """Nothing: it is there already."""


def printed(text: str) -> Printed:
    """Print the text, as wide as the terminal can show it."""
    shown = terminal.printable(text, sys.stdout)
    terminal.write_line(shown, sys.stdout)
    return Printed(shown)


def brief(kind: str, device: str, layers: Sequence[str], dtype: str, sizes: Iterable[int], criteria: str) -> str:
    """A repr of a few lines. sizes: how many numbers each parameter has; criteria: "" before it is compiled."""
    count = sum(sizes)
    shown = ", ".join(layers if len(layers) <= _NAMED else [*layers[: _NAMED - 2], "...", layers[-1]])
    return "\n ".join(
        [
            f"<{kind} of {len(layers)} layers on {device}{': ' if layers else ''}{shown}",
            f"{count:,} parameters of {dtype}",
            f"compiled with {criteria}>" if criteria else "not compiled>",
        ]
    )


def kinds(*given: object) -> str:
    """The classes of what a net was compiled with, of those in lists and dicts too; None is left out."""
    found: list[str] = []
    for each in given:
        if isinstance(each, Mapping):
            found.append(", ".join(f"{name}: {kinds(value)}" for name, value in each.items()))
        elif isinstance(each, list | tuple):
            found.append(kinds(*each))
        elif each is not None:
            found.append(type(each).__name__)
    return ", ".join(filter(None, found))
