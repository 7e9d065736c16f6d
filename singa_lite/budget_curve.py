"""Budgets for one batch size, and batch sizes for one budget: what less memory costs in time, by plans alone."""

from __future__ import annotations

from collections.abc import Callable

from singa_lite.budget_error import BudgetError
from singa_lite.memory_plan import MemoryPlan

#: Budgets between the free total and none, as shares of the free one.
SHARES = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1)

#: (bytes in all, estimated slowdown)
Point = tuple[int, float]


def curve(plan_within: Callable[[int | None], MemoryPlan]) -> list[Point]:
    """(total bytes, estimated slowdown) of plans: ever less bytes, never for less time.

    plan_within: the plan of a budget, None for as many bytes as it takes. A point is left out where a plan of fewer
    bytes takes no more time, but for the first, that of the free plan.
    """
    free = plan_within(None)
    points = [(free.total_bytes, free.estimated_slowdown)]
    for share in SHARES:
        budget = int(free.total_bytes * share)
        if points[-1][0] <= budget:  # the last plan is smaller than it had to be
            continue
        try:
            plan = plan_within(budget)
        except BudgetError as error:
            points.append((error.total_bytes, error.plan.estimated_slowdown))
            break
        points.append((plan.total_bytes, max(0.0, plan.estimated_slowdown)))
    return _best(points[0], points[1:])


def _best(free: Point, points: list[Point]) -> list[Point]:
    """The free one, and those that nothing beats, by falling bytes."""
    kept: list[Point] = []
    for nbytes, time in sorted(points):
        if nbytes < free[0] and (not kept or time < kept[-1][1]):
            kept.append((nbytes, time))
    return [free, *reversed(kept)]


def bisected(fits: Callable[[int], bool], known: int, too_many: int | None = None, guess: int = 0) -> int:
    """A size that fits while the next one does not.

    known: one that fits, or 0; too_many: one that does not, else sought; guess: tried first, and its neighbour.
    """
    if too_many is None:
        too_many = known + max(1, known // 4)
        while fits(too_many):
            known, too_many = too_many, too_many + max(1, too_many // 2)
    tries = 0
    while too_many - known > 1:
        tries += 1
        tried = guess if tries <= 2 and known < guess < too_many else (known + too_many) // 2
        known, too_many, guess = (tried, too_many, tried + 1) if fits(tried) else (known, tried, tried - 1)
    return known
