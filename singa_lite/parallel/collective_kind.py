"""CollectiveKind: which steps of a sum over the ranks are done."""

from __future__ import annotations

from enum import Enum


class CollectiveKind(Enum):
    """Of a sum: both steps; the first alone, behind which each rank has its part; the second alone, by which all get
    each rank's part.
    """

    SUM = "sum"
    OWN_PART = "own part"
    ALL_PARTS = "all parts"
