"""Our side of `budget.py`: the plans of budgets and their lower bounds, and training within one."""

from __future__ import annotations

import importlib.util
from typing import Any

from bound import extra_time, problem
from nets import NETS
from peak_memory import high_water
from singa_lite import FeedForwardNet, device, optimizer
from singa_lite.budget_error import BudgetError
from singa_lite.memory_plan import MemoryPlan
from singa_lite.passes.pipeline import planning, through
from singa_lite.passes.program import Program

from .budget_task import BudgetTask, batch, measured, shape
from .singa_side import use_once


def built(task: BudgetTask, budget: int | None = None) -> FeedForwardNet:
    """The net, compiled."""
    sizes: dict[str, Any] = {}
    if task.image:
        sizes = {"shape": shape(task)} if task.net == "unet" else {"image": task.image}
    net = NETS[task.net].build(device.new_cpu(), **sizes)
    net.compile(optimizer.SGD(0.001, momentum=0.9), memory_budget=budget)
    return net


def plans(task: BudgetTask) -> dict[str, Any]:
    """What the plans say, nothing is run: {"points": of the free plan, of each share, and of the least below these}.

    A share of 0 asks for the least.
    """
    net = built(task)
    free = net.plan_batch(task.batch)
    of = problem(_before_repeats(free)) if task.bound and importlib.util.find_spec("scipy") else None
    points = [_point(free, 0, 1.0, None)]
    for share in task.shares:
        budget = max(1, int(free.total_bytes * share))  # of 1 byte the error names the least
        try:
            plan, total = net.plan_batch(task.batch, memory_budget=budget), 0
        except BudgetError as error:
            plan, total = error.plan, error.total_bytes
            points.append({**_point(plan, total, total / free.total_bytes, total), "least": True})
            break
        points.append(_point(plan, 0, share, budget))
    for point in points:
        point["bound"] = None if of is None else extra_time(of, point["arena"])
    return {"points": points}


def _point(plan: MemoryPlan, total: int, share: float, budget: int | None) -> dict[str, Any]:
    planned = total or plan.total_bytes
    estimated = plan.estimated_slowdown
    return {
        "share": share, "budget": budget, "planned": planned, "arena": plan.arena_bytes,
        "estimated": estimated, "recomputed": plan.recomputed,
    }  # fmt: skip


def _before_repeats(plan: MemoryPlan) -> Program:
    """The program as the search is given it."""
    passes = planning()
    names = [one.name for one in passes]
    return through(plan.placed.rewritten, passes[: names.index("repeat")])


def run(task: BudgetTask) -> dict[str, Any]:
    """Train within `value` bytes, 0 for no budget, and measure."""
    use_once()
    level = high_water()
    x, y = batch(task)
    net = built(task, int(task.value) or None)
    return measured(task, level, lambda: float(net.train_one_batch(x, y)[0]))
