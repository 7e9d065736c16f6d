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
from singa_lite.kernels.onednn_kernels.images import Images
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


def batch_norm(
    x: Form,
    gamma: Form,
    beta: Form,
    running_mean: Form,
    running_var: Form,
    y: Form,
    mean: Form,
    inv_std: Form,
    *,
    momentum: float,
    epsilon: float,
) -> Routine | None:
    """Forward with the batch's statistics, which then move the running ones."""
    if not _fit((x, y), gamma, beta, running_mean, running_var, mean, inv_std):
        return None
    vectors: Operands = {f.SCALE: gamma, f.SHIFT: beta, f.MEAN: mean, f.VARIANCE: inv_std}
    images = _forward(x, y, vectors, f.FORWARD_TRAINING, epsilon, _AFFINE)
    if images is None:
        return None
    count = x.size // x.shape[1]

    def move(running_mean: Array, running_var: Array, mean: Array, variance: Array, share: Array) -> None:
        _move(running_mean, mean, momentum, 1.0, share)
        _move(running_var, variance, momentum, count / max(1, count - 1), share)

    images.call(move, running_mean, running_var, mean, inv_std, images.temporary(mean.shape, "float32"))
    images.call(inverter(epsilon), inv_std)
    return images


def _move(running: Array, batch: Array, momentum: float, correction: float, share: Array) -> None:
    """running = (1 - momentum) * running + momentum * correction * batch."""
    np.multiply(batch, momentum * correction, out=share)
    np.multiply(running, 1 - momentum, out=running)
    np.add(running, share, out=running)


def batch_norm_inference(
    x: Form, gamma: Form, beta: Form, running_mean: Form, running_var: Form, y: Form, *, epsilon: float
) -> Routine | None:
    """Forward with the statistics given."""
    if not _fit((x, y), gamma, beta, running_mean, running_var):
        return None
    vectors: Operands = {f.SCALE: gamma, f.SHIFT: beta, f.MEAN: running_mean, f.VARIANCE: running_var}
    return _forward(x, y, vectors, f.FORWARD_INFERENCE, epsilon, _FIXED)


def _forward(x: Form, y: Form, vectors: Operands, prop: int, epsilon: float, flags: int) -> Images | None:
    images = Images(x, y)
    primitive = forward(images, "batch", prop, (images.form(x), images.form(y)), epsilon, flags)
    if is_slow(primitive):
        return None
    source = images.read(x)
    with images.written(y) as target:
        images.run(primitive, {f.SRC: source, f.DST: target, **vectors})
    return images


def batch_norm_derivative(
    dy: Form, x: Form, gamma: Form, mean: Form, inv_std: Form, dx: Form, dgamma: Form, dbeta: Form
) -> Routine | None:
    """One primitive."""
    if not _fit((dy, x, dx), gamma, mean, inv_std, dgamma, dbeta):
        return None
    images = Images(dy, x, dx)
    primitive = backward(images, "batch", (images.form(x), images.form(dy)), _AFFINE)
    if is_slow(primitive):
        return None
    vectors: Operands = {f.SCALE: gamma, f.MEAN: mean, f.VARIANCE: add_variance(images, inv_std)}
    vectors |= {f.DIFF_SCALE: dgamma, f.DIFF_SHIFT: dbeta}
    source, slope = images.read(x), images.read(dy)
    with images.written(dx) as target:
        images.run(primitive, {f.SRC: source, f.DIFF_DST: slope, f.DIFF_SRC: target, **vectors})
    return images


def batch_norm_gradient(dy: Form, x: Form, mean: Form, inv_std: Form, dgamma: Form, dbeta: Form) -> Routine | None:
    """Over a few images at a time, with the statistics taken as given."""
    if not _fit((dy, x), mean, inv_std, dgamma, dbeta):
        return None
    images = Images(dy, x)
    if not images.keep(dy, x):
        return None
    samples, channels, *extents = images.shape(x)
    statistics: Operands = {f.MEAN: mean, f.VARIANCE: add_variance(images, inv_std)}

    def made(count: int) -> Primitive:
        some = forms.dense((count, channels, *extents), axes=images.axes)
        return backward(images, "batch", (some, some), _FIXED)

    return add_sums(images, samples, (dy, x), (dgamma, dbeta), made, lambda start, count: statistics)


def _fit(images: tuple[Form, ...], *vectors: Form) -> bool:
    """Whether the library can take these activations and vectors of channels."""
    return forms.are_floats(*images, *vectors) and Images.fit(*images) and all(lies(v, (0,)) for v in vectors)


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
