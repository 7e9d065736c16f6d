"""Remedies where a budget is too small: a smaller batch, another optimizer; each tried or counted."""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import copy

import numpy as np

from singa_lite.common.errors import ShapeError
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.graph.budget_error import BudgetError
from singa_lite.net.largest_batch import bisected
from singa_lite.optimizer import SGD, Optimizer
from singa_lite.optimizer.state_dtype import NAMES
from singa_lite.tensor import Tensor
from singa_lite.training.step_limits import state_bytes


def remedies(
    error: BudgetError,
    size: int,
    plan_of: Callable[[int], MemoryPlan],
    fits: Callable[[int], bool],
    optimizer: Optimizer,
    trained: Collection[Tensor],
) -> list[str]:
    """Returns ways to use less memory as text, each with its bytes. size: of the batch; plan_of: the plan of another
    within the same budget; fits: whether there is likely to be one.
    """
    left, held = error.bound.left, sum(value.nbytes for value in trained)
    if held > left:
        return [f"nothing but a larger budget, as the parameters alone take {held:,} bytes"]
    return [*_smaller_batch(error, size, plan_of, fits), *_less_state(error, optimizer, trained)]


def _smaller_batch(
    error: BudgetError, size: int, plan_of: Callable[[int], MemoryPlan], fits: Callable[[int], bool]
) -> list[str]:
    """The largest that the choice of values of the least found leads to, planned as a step of that size would be."""
    if size == 1:
        return []
    too_many = error.total_bytes - error.budget
    guess = size - max(1, size * too_many // max(1, error.plan.arena_bytes))  # as the arena grows with the batch
    most, step = bisected(fits, 0, size, lambda: guess), 1
    while most > 0:
        try:
            return [
                f"a batch of {most} in the place of {size}, the largest that was found to fit, takes "
                f"{plan_of(most).total_bytes:,} bytes"
            ]
        except (BudgetError, ShapeError):
            most, step = most - step, 2 * step  # each try plans the net anew
    return ["no smaller batch, not even one sample fits"]


def _less_state(error: BudgetError, optimizer: Optimizer, trained: Collection[Tensor]) -> list[str]:
    """State in fewer bits; and SGD, which keeps one tensor of state a parameter, or without momentum only a count."""
    others: dict[str, Optimizer] = {}
    if optimizer.state_dtype is None and all(value.dtype == np.float32 for value in trained):
        others = {f"state_dtype={name!r} (other results)": _kept_as(optimizer, name) for name in NAMES}
    others |= {"SGD with momentum": SGD(momentum=0.9), "SGD without momentum": SGD()}
    for other in others.values():
        other.gathering = optimizer.gathering  # for its count alone
    now, said = state_bytes(optimizer, trained), []
    for name, other in others.items():
        saved = now - state_bytes(other, trained)
        if saved > 0:
            enough = "enough" if error.total_bytes - saved <= error.budget else "not enough alone"
            said.append(f"{name} keeps {saved:,} bytes less state, {enough}")
    return said


def _kept_as(optimizer: Optimizer, state_dtype: str) -> Optimizer:
    """The same optimizer, for its forms of state alone."""
    made = copy(optimizer)
    made.state_dtype = state_dtype
    return made
