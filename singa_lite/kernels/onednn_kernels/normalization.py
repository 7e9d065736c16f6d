"""Batch and layer normalization: the library's passes over activations; vectors of channels and rows on the host.

The library keeps the biased variance where the interface keeps 1 / sqrt(variance + epsilon). It sums in float32, one
term after the other in each thread, as PyTorch does for images channels last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from singa_lite.kernels.kernel_set import Form
from singa_lite.kernels.onednn_kernels import forms
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels import primitive as p
from singa_lite.kernels.onednn_kernels.images import Images
from singa_lite.kernels.onednn_kernels.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import Operand, Routine, Temporary
from singa_lite.kernels.onednn_kernels.work import Work, lies

Array = np.ndarray[Any, Any]
Operands = dict[int, Operand]

_AFFINE = f.USE_SCALE | f.USE_SHIFT
_FIXED = _AFFINE | f.USE_GLOBAL_STATS
#: Elements of a derivative that is made for its sums alone, piece after piece in one place.
_PIECE = 1 << 19


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
    images = Images(x, y)
    primitive = _forward(images, "batch", f.FORWARD_TRAINING, (images.form(x),) * 2, epsilon, _AFFINE)
    if _is_slow(primitive):
        return None
    parameters = {f.SCALE: gamma, f.SHIFT: beta, f.MEAN: mean, f.VARIANCE: inv_std}
    source = images.read(x)
    with images.written(y) as target:
        images.run(primitive, {f.SRC: source, f.DST: target, **parameters})
    count = x.size // x.shape[1]

    def move(running_mean: Array, running_var: Array, mean: Array, variance: Array, share: Array) -> None:
        _move(running_mean, mean, momentum, 1.0, share)
        _move(running_var, variance, momentum, count / max(1, count - 1), share)

    share = images.temporary(mean.shape, "float32")
    images.call(move, running_mean, running_var, mean, inv_std, share)
    images.call(_inverter(epsilon), inv_std)
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
    images = Images(x, y)
    primitive = _forward(images, "batch", f.FORWARD_INFERENCE, (images.form(x),) * 2, epsilon, _FIXED)
    if _is_slow(primitive):
        return None
    parameters = {f.SCALE: gamma, f.SHIFT: beta, f.MEAN: running_mean, f.VARIANCE: running_var}
    source = images.read(x)
    with images.written(y) as target:
        images.run(primitive, {f.SRC: source, f.DST: target, **parameters})
    return images


def batch_norm_derivative(
    dy: Form, x: Form, gamma: Form, mean: Form, inv_std: Form, dx: Form, dgamma: Form, dbeta: Form
) -> Routine | None:
    """One primitive."""
    if not _fit((dy, x, dx), gamma, mean, inv_std, dgamma, dbeta):
        return None
    images = Images(dy, x, dx)
    image = images.form(x)
    primitive = _backward(images, "batch", (image, image, image), _AFFINE)
    if _is_slow(primitive):
        return None
    parameters: Operands = {f.SCALE: gamma, f.MEAN: mean, f.VARIANCE: _variance(images, inv_std)}
    gradients = {f.DIFF_SCALE: dgamma, f.DIFF_SHIFT: dbeta}
    sources = {f.SRC: images.read(x), f.DIFF_DST: images.read(dy)}
    with images.written(dx) as target:
        images.run(primitive, {**sources, **parameters, **gradients, f.DIFF_SRC: target})
    return images


def batch_norm_gradient(dy: Form, x: Form, mean: Form, inv_std: Form, dgamma: Form, dbeta: Form) -> Routine | None:
    """Over a few images at a time, with the statistics taken as given."""
    if not _fit((dy, x), mean, inv_std, dgamma, dbeta):
        return None
    images = Images(dy, x)
    if not images.keep(dy, x):
        return None
    statistics: Operands = {f.MEAN: mean, f.VARIANCE: _variance(images, inv_std)}
    channels, values = x.shape[1], x.size // (x.shape[0] * x.shape[1])

    def made(count: int) -> Primitive:
        image = forms.dense((count, channels, 1, values), axes=images.axes)
        return _backward(images, "batch", (image, image, image), _AFFINE | f.USE_GLOBAL_STATS)

    return _sums(images, x.shape[0], (dy, x), (dgamma, dbeta), made, lambda _start, _count: statistics)


def layer_norm(
    x: Form, gamma: Form, beta: Form, y: Form, mean: Form, inv_std: Form, *, epsilon: float
) -> Routine | None:
    """Forward."""
    if not _are_rows(x, gamma, beta, y, mean, inv_std):
        return None
    work, row = Work(x.size), forms.dense((mean.size,))
    matrix = forms.dense((mean.size, gamma.size))
    primitive = _forward(work, "layer", f.FORWARD_TRAINING, (matrix, matrix, row), epsilon, _AFFINE)
    if _is_slow(primitive):
        return None
    parameters = {f.SCALE: gamma, f.SHIFT: beta, f.MEAN: mean, f.VARIANCE: inv_std}
    work.run(primitive, {f.SRC: x, f.DST: y, **parameters})
    work.call(_inverter(epsilon), inv_std)
    return work


def layer_norm_derivative(dy: Form, x: Form, gamma: Form, mean: Form, inv_std: Form, dx: Form) -> Routine | None:
    """The primitive makes the sums too; its form without them has no scale."""
    if not _are_rows(dy, x, gamma, mean, inv_std, dx):
        return None
    work = Work(x.size)
    primitive = _layer_backward(work, mean.size, gamma.size)
    if _is_slow(primitive):
        return None
    statistics: Operands = {f.MEAN: mean, f.VARIANCE: _variance(work, inv_std)}
    dgamma, dbeta = (work.temporary((gamma.size,), "float32") for _ in range(2))
    # It asks for the shift, and does not use it.
    operands = {f.SRC: x, f.DIFF_DST: dy, f.DIFF_SRC: dx, f.SCALE: gamma, f.SHIFT: gamma, **statistics}
    work.run(primitive, {**operands, f.DIFF_SCALE: dgamma, f.DIFF_SHIFT: dbeta})
    return work


def layer_norm_gradient(dy: Form, x: Form, mean: Form, inv_std: Form, dgamma: Form, dbeta: Form) -> Routine | None:
    """Over a few rows at a time."""
    if not _are_rows(dy, x, mean, inv_std, dgamma, dbeta):
        return None
    work = Work(x.size)
    variance = _variance(work, inv_std)

    def statistics(start: int, count: int) -> Operands:
        vectors: Operands = {f.MEAN: work.part(mean, start, count), f.VARIANCE: _slice(variance, start, count)}
        return {**vectors, f.SHIFT: dbeta}

    def made(count: int) -> Primitive:
        return _layer_backward(work, count, dgamma.size)

    return _sums(work, mean.size, (dy, x), (dgamma, dbeta), made, statistics)


def _sums(
    work: Work,
    rows: int,
    slopes: tuple[Form, Form],
    gradients: tuple[Form, Form],
    made: Callable[[int], Primitive],
    statistics: Callable[[int, int], Operands],
) -> Routine | None:
    """dgamma and dbeta. The library makes dx with them, so it does so a few rows at a time, always in one place.

    rows: of dy and x (slopes), which lie one behind the other, images or rows; made: the primitive for so many of them;
    statistics: their operands, from a first row on.
    """
    (dy, x), size = slopes, gradients[0].size
    width, made = x.size // rows, cache(made)
    step = min(rows, max(1, _PIECE // width))
    starts = range(0, rows, step)
    dx = work.temporary((step * width,), "float32")
    dgamma, dbeta = (work.temporary((len(starts), size), "float32") for _ in range(2))
    for place, start in enumerate(starts):
        count = min(step, rows - start)
        if _is_slow(made(count)):
            return None
        operands: Operands = {f.SRC: work.part(x, start * width, count * width), f.SCALE: gradients[0]}
        operands |= {f.DIFF_DST: work.part(dy, start * width, count * width), f.DIFF_SRC: dx}
        operands |= {f.DIFF_SCALE: _slice(dgamma, place * size, size), f.DIFF_SHIFT: _slice(dbeta, place * size, size)}
        work.run(made(count), {**operands, **statistics(start, count)})
    for parts, target in zip((dgamma, dbeta), gradients, strict=True):
        work.call(_add_up, parts, target)
    return work


def _add_up(parts: Array, target: Array) -> None:
    np.add.reduce(parts, axis=0, out=target.reshape(-1))


def _slice(vector: Temporary, start: int, count: int) -> Temporary:
    """Elements of a temporary in the order of memory."""
    return Temporary(vector.offset + start * np.dtype(vector.dtype).itemsize, (count,), vector.dtype)


def _variance(work: Work, inv_std: Form) -> Temporary:
    """Adds a step: the variance with epsilon in it, 1 / inv_std**2; primitives that are given it have no epsilon."""

    def invert(inv_std: Array, variance: Array) -> None:
        np.reciprocal(inv_std, out=variance)
        np.square(variance, out=variance)

    variance = work.temporary(inv_std.shape, "float32")
    work.call(invert, inv_std, variance)
    return variance


def _inverter(epsilon: float) -> Callable[[Array], None]:
    """A step: 1 / sqrt(variance + epsilon) in the place of the variance."""

    def invert(variance: Array) -> None:
        np.add(variance, epsilon, out=variance)
        np.sqrt(variance, out=variance)
        np.reciprocal(variance, out=variance)

    return invert


def _forward(work: Work, kind: str, prop: int, tensors: tuple[p.Form, ...], epsilon: float, flags: int) -> Primitive:
    return work.make(f"{kind}_normalization_forward", prop, *tensors, epsilon, flags)


def _backward(work: Work, kind: str, tensors: tuple[p.Form, ...], flags: int) -> Primitive:
    """tensors: dx, dy and x, which lie alike, and behind them the statistics of layers."""
    hint = _forward(work, kind, f.FORWARD_TRAINING, tensors[1:], 0.0, flags)
    return work.make(f"{kind}_normalization_backward", f.BACKWARD, *tensors, 0.0, flags, forward=hint)


def _layer_backward(work: Work, rows: int, size: int) -> Primitive:
    matrix = forms.dense((rows, size))
    return _backward(work, "layer", (matrix, matrix, matrix, forms.dense((rows,))), _AFFINE)


def _fit(images: tuple[Form, ...], *vectors: Form) -> bool:
    """Whether the library can take these activations and vectors of channels."""
    return forms.are_floats(*images, *vectors) and Images.fit(*images) and all(lies(v, (0,)) for v in vectors)


def _are_rows(*tensors: Form) -> bool:
    """Whether rows lie one behind the other, and so do the elements of each."""
    return forms.are_floats(*tensors) and all(lies(tensor, range(tensor.ndim)) for tensor in tensors)


def _is_slow(primitive: Primitive) -> bool:
    """Plain loops."""
    return "ref" in primitive.implementation
