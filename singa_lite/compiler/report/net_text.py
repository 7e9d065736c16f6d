"""What a net says of itself in a line or a few, and text that a notebook does not show a second time."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from singa_lite.common import terminal

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
