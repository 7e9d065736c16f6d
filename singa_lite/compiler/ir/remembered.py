"""Caches of planning from call to call, and how they are dropped: a plan is made once in a while."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import ParamSpec, TypeVar

from singa_lite.common.machine import give_back
from singa_lite.kernels.kernel_set import KernelSet

P = ParamSpec("P")
R = TypeVar("R")

_forget: list[Callable[[], None]] = []


def remembered(most: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The function, whose last `most` answers are remembered until planning is over."""

    def made(function: Callable[P, R]) -> Callable[P, R]:
        known = lru_cache(maxsize=most)(function)
        _forget.append(known.cache_clear)
        return known  # type: ignore[return-value]  # of hashable arguments

    return made


def forget_planning(kernels: KernelSet) -> None:
    """Planning is over: what it and these kernels remember goes, and its memory back to the system."""
    kernels.forget()
    for clear in _forget:
        clear()
    give_back()
