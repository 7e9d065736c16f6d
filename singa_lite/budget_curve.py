"""The curve of budgets for one batch size: what less memory costs in time, by plans alone."""

from __future__ import annotations

from collections.abc import Callable

from singa_lite.budget_error import BudgetError
from singa_lite.memory_plan import MemoryPlan

#: Budgets between the free total and none, as shares of the free one.
SHARES = (0.94, 0.88, 0.82, 0.76, 0.7, 0.64, 0.58, 0.52, 0.47, 0.42, 0.37, 0.33, 0.29, 0.25, 0.2, 0.15, 0.1)

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
        points.append((plan.total_bytes, plan.estimated_slowdown))
    return _best(points[0], points[1:])


def _best(free: Point, points: list[Point]) -> list[Point]:
    """The free one, and those that nothing beats, by falling bytes."""
    kept: list[Point] = []
    for nbytes, time in sorted(points):
        if nbytes < free[0] and (not kept or time < kept[-1][1]):
            kept.append((nbytes, time))
    return [free, *reversed(kept)]
