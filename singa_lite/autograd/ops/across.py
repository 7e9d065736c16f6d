"""RankShare: what operations know of other processes that do the same step with other samples."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import NamedTuple

from singa_lite.tensor import Tensor


class RankShare(NamedTuple):
    """share: this process's share of all samples, float64 (); total: how many samples there are, float64 (). Both are
    read at each replay. add_up: makes of a tensor without gaps the sum of all processes'.
    """

    share: Tensor
    total: Tensor
    add_up: Callable[[Tensor], None]


#: Of the present call, where statistics are those of all processes; None: those of this one.
across: ContextVar[RankShare | None] = ContextVar("across", default=None)
