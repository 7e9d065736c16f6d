"""Metrics, one number a position, then means over the positions of each sample."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.cuda_kernels.positions import add_means, is_rows, launch, result_of_positions, supports
from singa_lite.kernels.cuda_kernels.routine import Routine, Value
from singa_lite.kernels.kernel_set import TensorSpec

FILE = "metric.cu"


def in_top_k(x: TensorSpec, target: TensorSpec, values: TensorSpec, *, k: int) -> Routine | None:
    """By the rank of the target's class."""
    return _metric(f"in_top_k_of_{'rows' if is_rows(x, target) else 'ids'}", x, target, values, np.int64(k))


def precision_at_k(x: TensorSpec, target: TensorSpec, values: TensorSpec, *, k: int) -> Routine | None:
    """Hits divided by k."""
    return _hits(x, target, values, k, recall=False)


def recall_at_k(x: TensorSpec, target: TensorSpec, values: TensorSpec, *, k: int) -> Routine | None:
    """Hits divided by the number of labels."""
    return _hits(x, target, values, k, recall=True)


def _hits(x: TensorSpec, target: TensorSpec, values: TensorSpec, k: int, recall: bool) -> Routine | None:
    if not is_rows(x, target):
        return None
    return _metric("hits_at_k", x, target, values, np.int64(k), np.bool_(recall))


def _metric(kernel: str, x: TensorSpec, target: TensorSpec, values: TensorSpec, *settings: Value) -> Routine | None:
    if not supports(x, target, values):
        return None
    routine = Routine()
    result = result_of_positions(routine, x, values)
    types = {"T": x.dtype, "S": target.dtype, "L": result.spec.dtype}
    seen, arguments = (result.spec, x, target), (x, target, result.buffer, *settings)
    done = launch(routine, FILE, kernel, x, seen, *arguments, types=types, largest_team=32)
    return routine if done and add_means(routine, x, result, values) else None
