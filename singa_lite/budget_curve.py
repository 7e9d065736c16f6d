"""The budget curve: what less memory costs in time, from the free plan down to the least that is found."""

from __future__ import annotations

from collections.abc import Callable

from singa_lite.memory_plan import BudgetError, MemoryPlan

#: Budgets between the free total and none, as shares of the free one.
SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15, 0.1)


def curve(plan_within: Callable[[int | None], MemoryPlan]) -> list[tuple[int, float]]:
    """(total bytes, estimated slowdown) of plans, ever less bytes for ever more time.

    plan_within: the plan of a budget, None for as many bytes as it takes. Points that another beats are left out.
    """
    free = plan_within(None)
    points = [(free.total_bytes, free.estimated_slowdown)]
    for share in SHARES:
        try:
            plan = plan_within(int(free.total_bytes * share))
        except BudgetError as error:
            points.append((error.total_bytes, error.plan.estimated_slowdown))
            break
        points.append((plan.total_bytes, plan.estimated_slowdown))
    points = sorted(set(points), reverse=True)
    return [(nbytes, time) for nbytes, time in points if not any(b <= nbytes and t < time for b, t in points)]
