"""PlacedRow: one block of a planned step, and where in the arena it lies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlacedRow:
    """A block or scratch in the arena: steps [lower, upper), bytes [offset, offset + nbytes).

    kind: the phase of the operation that first writes it, "again" where that is a repeat, or "scratch".
    """

    name: str
    layer: str
    kind: str
    nbytes: int
    lower: int
    upper: int
    offset: int
