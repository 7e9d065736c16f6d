"""The curve of budgets for one batch size: what less memory costs in time, by plans alone."""

from __future__ import annotations

from typing import Protocol

from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.graph.budget_error import BudgetError

#: Budgets between the free total and none, as shares of the free one.
SHARES = (0.94, 0.88, 0.82, 0.76, 0.7, 0.64, 0.58, 0.52, 0.47, 0.42, 0.37, 0.33, 0.29, 0.25, 0.2, 0.15, 0.1)

#: (bytes of a budget, estimated slowdown)
Point = tuple[int, float]


class BudgetPlanner(Protocol):
    """Plans for budgets."""

    def __call__(self, budget: int | None, exactly: bool = False, /) -> tuple[int, MemoryPlan]:
        """A budget of so many bytes, or somewhat less if not exactly, and its plan; None: of as many as it takes."""


def curve(plan_within: BudgetPlanner) -> list[Point]:
    """(bytes, estimated slowdown) of budgets: ever less bytes, never for less time.

    A point is left out where a plan of fewer bytes takes no more time, but for the first, that of the free plan.
    """
    total, free = plan_within(None)
    points = [(total, free.estimated_slowdown)]
    for share in SHARES:
        try:
            budget, plan = plan_within(int(total * share))
        except BudgetError as error:
            points.append(_least(plan_within, error))
            break
        points.append((budget, plan.estimated_slowdown))
    return _best(points[0], points[1:])


def _least(plan_within: BudgetPlanner, error: BudgetError) -> Point:
    """The least budget, and what its own plan takes."""
    try:
        least, plan = plan_within(error.total_bytes, True)
    except BudgetError:  # of what else `fit` does, which is counted as it is
        return error.total_bytes, error.plan.estimated_slowdown
    return least, plan.estimated_slowdown


def _best(free: Point, points: list[Point]) -> list[Point]:
    """The free one, and those that nothing beats, by falling bytes."""
    kept: list[Point] = []
    for nbytes, time in sorted(points):
        if nbytes < free[0] and (not kept or time < kept[-1][1]):
            kept.append((nbytes, time))
    return [free, *reversed(kept)]
