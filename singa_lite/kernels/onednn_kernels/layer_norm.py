"""Batch and layer normalization: the library's passes over activations; vectors of channels and rows on the host.

The library keeps the biased variance where the interface keeps 1 / sqrt(variance + epsilon). It sums in float32, one
term after the other in each thread, as PyTorch does for images channels last.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from singa_lite.kernels.kernel_set import Form
from singa_lite.kernels.onednn_kernels import forms
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels import primitive as p
from singa_lite.kernels.onednn_kernels.moments import (
    Operands,
    add_sums,
    add_variance,
    backward,
    forward,
    inverter,
    is_slow,
    piece_of,
)
from singa_lite.kernels.onednn_kernels.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import Routine
from singa_lite.kernels.onednn_kernels.work import Work, lies

Array = np.ndarray[Any, Any]

_AFFINE = f.USE_SCALE | f.USE_SHIFT
#: The statistics are given.
_FIXED = _AFFINE | f.USE_GLOBAL_STATS


def layer_norm(
    x: Form, gamma: Form, beta: Form, y: Form, mean: Form, inv_std: Form, *, epsilon: float
) -> Routine | None:
    """Forward."""
    if not _are_rows(x, gamma, beta, y, mean, inv_std):
        return None
    work = Work(x.size)
    primitive = forward(work, "layer", f.FORWARD_TRAINING, _rows(mean.size, gamma), epsilon, _AFFINE)
    if is_slow(primitive):
        return None
    vectors = {f.SCALE: gamma, f.SHIFT: beta, f.MEAN: mean, f.VARIANCE: inv_std}
    work.run(primitive, {f.SRC: x, f.DST: y, **vectors})
    work.call(inverter(epsilon), inv_std)
    return work


def layer_norm_derivative(dy: Form, x: Form, gamma: Form, mean: Form, inv_std: Form, dx: Form) -> Routine | None:
    """The primitive makes the sums too; in its form without them it takes no scale."""
    if not _are_rows(dy, x, gamma, mean, inv_std, dx):
        return None
    work = Work(x.size)
    primitive = backward(work, "layer", _rows(mean.size, gamma), _AFFINE)
    if is_slow(primitive):
        return None
    dgamma, dbeta = (work.temporary(gamma.shape, "float32") for _ in range(2))
    vectors: Operands = {f.MEAN: mean, f.VARIANCE: add_variance(work, inv_std), f.DIFF_SCALE: dgamma}
    # It asks for the shift and makes no use of it.
    vectors |= {f.DIFF_SHIFT: dbeta, f.SCALE: gamma, f.SHIFT: gamma}
    work.run(primitive, {f.SRC: x, f.DIFF_DST: dy, f.DIFF_SRC: dx, **vectors})
    return work


def layer_norm_gradient(dy: Form, x: Form, mean: Form, inv_std: Form, dgamma: Form, dbeta: Form) -> Routine | None:
    """Over a few rows at a time."""
    if not _are_rows(dy, x, mean, inv_std, dgamma, dbeta):
        return None
    work = Work(x.size)
    variance = add_variance(work, inv_std)

    def statistics(start: int, count: int) -> Operands:
        own = work.part(mean, start, count)
        return {f.MEAN: own, f.VARIANCE: piece_of(variance, start, count), f.SHIFT: dbeta}

    def made(count: int) -> Primitive:
        return backward(work, "layer", _rows(count, dgamma), _AFFINE)

    return add_sums(work, mean.size, (dy, x), (dgamma, dbeta), made, statistics)


def _are_rows(*tensors: Form) -> bool:
    """Whether rows lie one behind the other, and so do the elements of each."""
    return forms.are_floats(*tensors) and all(lies(tensor, range(tensor.ndim)) for tensor in tensors)


def _rows(count: int, parameter: Form) -> tuple[p.Form, p.Form, p.Form]:
    """Forms of x, y and a statistic."""
    matrix = forms.dense((count, parameter.size))
    return matrix, matrix, forms.dense((count,))
