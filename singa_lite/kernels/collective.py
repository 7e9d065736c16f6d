"""Collectives in plans: calls in which several processes take part, and which go on between two of them.

A sum over the ranks is begun by one call and waited for by another; between the two its tensors belong to it. What is
sent and received, the object says that each call has as its setting `call` (`parallel/`).
"""

from __future__ import annotations

from enum import Enum
from itertools import pairwise
from typing import Protocol, cast

from singa_lite.kernels.kernel_set import Settings


class CollectiveKind(Enum):
    """Steps of a sum over ranks that are done: both, or one of them.

    OWN_PART: the first, behind which each rank has its part; ALL_PARTS: the second, by which all get each rank's part.
    """

    SUM = "sum"
    OWN_PART = "own part"
    ALL_PARTS = "all parts"


class Collective(Protocol):
    """The setting `call` of a kernel whose `Facts.collective` says something. ranks: how many processes take part.

    rank: which of them this one is. of_own_part: whether only this rank's part is a sum behind the end, and the rest
    means nothing. unit: elements that are of one rank together, where each has its part (`parts_of`).
    in_flight_bytes: of all that is begun and not waited for, the most there may be. is_urgent: whether it is waited for
    at once, as what comes behind it needs it. in_line: whether it is begun behind all that stands before it and waits:
    some ranks have work between, by which it is so anyway, and sums begin in one order everywhere.
    """

    ranks: int
    rank: int
    unit: int
    of_own_part: bool
    in_flight_bytes: int
    is_urgent: bool
    in_line: bool

    def polling(self) -> object | None:
        """The setting `call` of a call that lets all that is begun go on; None: it goes on by itself."""

    def landing_elements(self, elements: int) -> int:
        """How many elements of their dtype a sum of so many wants beside them while it is under way."""


def collective_of(settings: Settings) -> Collective:
    """The object that says what a collective does."""
    return cast(Collective, settings["call"])


def landing_elements(elements: int, ranks: int, unit: int = 1) -> int:
    """Elements that a sum of so many receives from the other ranks: each sends what this one adds up."""
    return (ranks - 1) * _part_size(elements, ranks, unit)


def _part_size(elements: int, ranks: int, unit: int) -> int:
    return -(-elements // (unit * ranks)) * unit


def parts_of(elements: int, ranks: int, unit: int = 1) -> list[slice]:
    """Which elements each rank adds up: equally many, fewer or none at the end. unit: so many stay together."""
    each = _part_size(elements, ranks, unit)
    borders = [min(elements, rank * each) for rank in range(ranks + 1)]
    return [slice(start, stop) for start, stop in pairwise(borders)]
