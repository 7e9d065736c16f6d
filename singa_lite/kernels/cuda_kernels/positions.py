"""Scores (n, c, ...) position by position, for losses and metrics, and means over the positions of each sample."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from singa_lite.kernels.cuda_kernels.reduction import MOST, BufferAs, add_sum
from singa_lite.kernels.cuda_kernels.routine import THREADS, BufferView, Routine, Types, Value
from singa_lite.kernels.cuda_kernels.softmax import MOST_LENGTH, MOST_THREADS, threads_of_row
from singa_lite.kernels.cuda_kernels.source import TYPES, are_floats, are_ids, computed
from singa_lite.kernels.cuda_kernels.walk import axis_spec, dense, power_of_two, steps, walk
from singa_lite.kernels.kernel_set import TensorSpec

#: Classes from which a whole block does one position, if the kernel can.
MANY = 2048


def is_rows(x: TensorSpec, target: TensorSpec) -> bool:
    """Whether the target holds rows of x's shape, not class ids."""
    return target.ndim == x.ndim


def supports(x: TensorSpec, target: TensorSpec, *others: TensorSpec) -> bool:
    """Whether the kernels do dtypes like these: all but the target as x, ids of an integer dtype."""
    return are_floats(x, *others) and (target.dtype.name in TYPES if is_rows(x, target) else are_ids(target))


def positions_of(x: TensorSpec) -> int:
    """Positions of a sample."""
    return prod(x.shape[2:])


def launch(
    routine: Routine,
    file: str,
    kernel: str,
    x: TensorSpec,
    seen: Sequence[TensorSpec],
    *arguments: BufferView | Value,
    types: Types,
    largest_team: int = MOST_THREADS,
) -> bool:
    """Add the launch of `kernel(Walk<N>, Classes<N>, *arguments)` over the positions of x. False if it cannot be done.

    seen: specs of the N operands in the walk's order, scores and rows (n, c, ...), ids and numbers of positions
    (n, ...), numbers of samples (n,).
    """
    shape = (x.shape[0], *x.shape[2:])
    found = walk(shape, [_of_positions(spec, x.ndim) for spec in seen])
    if found is None or prod(shape) >= MOST or x.shape[1] >= MOST_LENGTH:
        return False
    classes = np.zeros((), np.dtype([("count", "i8"), ("steps", "i8", len(seen))]))
    classes["count"] = x.shape[1]
    classes["steps"] = [steps(spec)[1] if spec.ndim == x.ndim else 0 for spec in seen]
    team = min(largest_team, _team([spec for spec in seen if spec.ndim == x.ndim]))
    block = (team, max(THREADS // team, 1))
    grid = -(-prod(shape) // block[1])
    routine.launch(file, kernel, found, classes, *arguments, types=types, grid=grid, block=block)
    return True


def means(
    file: str,
    kernel: str,
    x: TensorSpec,
    target: TensorSpec,
    values: TensorSpec,
    *more: TensorSpec,
    numbers: Sequence[Value] = (),
    largest_team: int = MOST_THREADS,
) -> Routine | None:
    """values (n,) = means of the results of `kernel(..., x, target, results, *more, *numbers)`, one a position."""
    if not supports(x, target, values, *more):
        return None
    routine, positions = Routine(), positions_of(x)
    result = BufferAs(values, values)
    if positions > 1:
        spec = dense((x.shape[0], *x.shape[2:]), computed(x.dtype))
        result = BufferAs(routine.temporary(spec.shape, spec.dtype), spec)
    types = {"T": x.dtype, "S": target.dtype, "L": result.spec.dtype}
    seen, arguments = (result.spec, x, target, *more), (x, target, result.buffer, *more, *numbers)
    if not launch(routine, file, kernel, x, seen, *arguments, types=types, largest_team=largest_team):
        return None
    if positions == 1:
        return routine
    axes = range(1, result.spec.ndim)
    return routine if add_sum(routine, result, BufferAs(values, values), axes, 1 / positions) else None


def _of_positions(spec: TensorSpec, ndim: int) -> TensorSpec:
    """Scores or rows at class 0, numbers of samples for all of their positions."""
    if spec.ndim == ndim:
        return axis_spec((0, *range(2, ndim)), spec)
    if spec.ndim < ndim - 1:
        beside = ndim - 1 - spec.ndim
        return TensorSpec((*spec.shape, *(1,) * beside), spec.dtype, (*spec.strides, *(0,) * beside))
    return spec


def _team(rows: Sequence[TensorSpec]) -> int:
    """Threads of a position: several where its classes are neighbours, else neighbouring threads take neighbours.

    rows: the operands that have classes.
    """
    classes = rows[0].shape[1]
    if any(steps(spec)[1] != 1 for spec in rows):
        return 1
    return threads_of_row(classes) if classes >= MANY else min(32, power_of_two(classes))
