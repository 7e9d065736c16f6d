"""Our side of `budget.py`: training within a budget, the points of its curve, and many budgets looked at."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TextIO

from nets import entry
from peak_memory import high_water
from singa_lite import FeedForwardNet, device, optimizer, tensor
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.graph.budget_error import BudgetError

from .budget_task import FIXED, BudgetTask, batch, serve, shape
from .process import read_weights, write_weights
from .singa_side import use_once


def built(task: BudgetTask, budget: int | None = None) -> FeedForwardNet:
    """The net, compiled."""
    sizes: dict[str, Any] = {}
    if task.image and task.net not in FIXED:
        sizes = {"shape": shape(task)}
    net = entry(task.net).build(device.new_cpu(), **sizes)
    if task.folder:
        read_weights(task.folder, ((name, net.device.array(value)) for name, value in net.parameters().items()))
    net.compile(optimizer.SGD(task.lr, momentum=task.momentum), memory_budget=budget, precision=task.precision)
    return net


def write(task: BudgetTask) -> dict[str, Any]:
    """Write the weights that all sides start from, and nothing else, into `folder`."""
    found = built(replace(task, folder="")).parameters().items()
    write_weights(task.folder, ((name, tensor.to_numpy(value)) for name, value in found))
    return {}


def run(task: BudgetTask, told: TextIO) -> None:
    """Train within `value` bytes, 0 for no budget, and measure."""
    use_once()
    level = high_water()
    x, y = batch(task)
    level += x.nbytes + y.nbytes
    net = built(task, int(task.value) or None)
    serve(task, level, lambda: float(net.train_one_batch(x, y)[0]), told)


def plans(task: BudgetTask) -> dict[str, Any]:
    """What the plans say, nothing is run: {"points": the free plan, those nearest to the targets, and the least}."""
    net = built(task)
    free = net.plan_batch(task.batch)
    certificate = task.bound and importlib.util.find_spec("scipy") is not None
    points = [_point(free, None)]
    for budget in nearest(net.budget_curve(task.batch), task.targets):
        try:
            points.append(_point(net.plan_batch(task.batch, memory_budget=budget, certificate=certificate), budget))
        except BudgetError as error:  # which the curve did not say
            points.append({**_point(error.plan, error.total_bytes), "planned": error.total_bytes})
    points[-1]["least"] = True
    for point in points:
        point["share"] = point["planned"] / free.total_bytes
    return {"points": points}


def nearest(curve: Sequence[tuple[int, float]], targets: Sequence[float]) -> list[int]:
    """Bytes of the points of a curve that lie nearest to these slowdowns, without the free one, and of the least."""
    points = list(curve[1:])
    chosen = {min(points, key=lambda point: abs(point[1] - target))[0] for target in targets if points}
    return sorted({*chosen, *(nbytes for nbytes, _ in points[-1:])}, reverse=True)


def _point(plan: MemoryPlan, budget: int | None) -> dict[str, Any]:
    return {
        "budget": budget, "planned": plan.total_bytes, "arena": plan.arena_bytes,
        "estimated": plan.estimated_slowdown, "recomputed": plan.recomputed, "bound": plan.time_bound,
    }  # fmt: skip


def check(task: BudgetTask) -> dict[str, Any]:
    """Budgets from the free total to the least, nothing is run: {"least": that is stated, "below": what an error says
    at 0.97 of it, None if it was planned, "rows": a budget's, its plan's or why there is none}.
    """
    net = built(task)
    free = net.plan_batch(task.batch).total_bytes
    least = _stated(net, task.batch, 1) or free
    steps = max(1, task.budgets - 1)
    rows = [_checked(net, task.batch, free - (free - least) * number // steps) for number in range(task.budgets)]
    return {"free": free, "least": least, "below": _stated(net, task.batch, int(0.97 * least)), "rows": rows}


def _stated(net: FeedForwardNet, size: int, budget: int) -> int | None:
    """The least that the error of a budget names; None if it is planned."""
    try:
        net.plan_batch(size, memory_budget=budget)
    except BudgetError as error:
        return error.total_bytes
    return None


def _checked(net: FeedForwardNet, size: int, budget: int) -> dict[str, Any]:
    try:
        plan = net.plan_batch(size, memory_budget=budget)
    except BudgetError as error:
        return {"budget": budget, "why": str(error).split(":")[0] + f": the least is {error.total_bytes:,}"}
    plan.check()
    held = plan.total_bytes - plan.arena_bytes
    return {**_point(plan, budget), "held": held}
