"""Batch normalization: statistics and gradients from exact sums (`channel_sums.py`), then passes over activations.

The library's own primitives add up in float32, one term after the other in each thread. Only the one that takes given
statistics is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from singa_lite.array_types import Array
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels import algorithms as a
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels import layouts
from singa_lite.kernels.onednn_kernels.channel_sums import Before, ChannelSums
from singa_lite.kernels.onednn_kernels.columns import COLUMNS, Activations, Columns
from singa_lite.kernels.onednn_kernels.images import Images
from singa_lite.kernels.onednn_kernels.normalized import Normalized
from singa_lite.kernels.onednn_kernels.pitched import Pitched
from singa_lite.kernels.onednn_kernels.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine
from singa_lite.kernels.onednn_kernels.work import lies
from singa_lite.kernels.routine import Temporary

#: Algorithms of post-ops, and whether their operand is a whole tensor, not a vector.
Links = Sequence[tuple[int, bool]]
_DERIVATIVE: Links = (a.MULTIPLY, False), (a.ADD, False), (a.ADD, True), (a.MULTIPLY, False)

#: Columns of the matrix in a pass over activations: several vectors of this length must stay in the first cache.
SHORT = 1 << 9

#: x is summed without a shift as long as the square of its mean is at most this many times its variance: the variance,
#: a difference of squares, is then off by a few roundings only. Most layers of ResNet-50 have a channel or two over 4,
#: few have one over 16, and one channel over the limit costs a second pass over all of them.
_NEAR = 16.0
#: How often x is summed again, shifted by the mean that came out, at most.
_SHIFTS = 2


def batch_norm(
    x: TensorSpec,
    gamma: TensorSpec,
    beta: TensorSpec,
    running_mean: TensorSpec,
    running_var: TensorSpec,
    y: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    *,
    momentum: float,
    epsilon: float,
) -> Routine | None:
    """Sums of x, shifted where its mean is large, give the statistics; then x is normalized by them."""
    if not fit((x, y), gamma, beta, running_mean, running_var, mean, inv_std):
        return None
    images = Images(x, y)
    source = images.source(x)
    vectors = gamma, running_mean, running_var, mean, inv_std
    scale = add_statistics(images, x, source, vectors, momentum, epsilon)
    return _normalized(images, source, y, mean, scale, beta)


def add_statistics(
    images: Images,
    x: TensorSpec,
    source: Activations,
    vectors: tuple[TensorSpec, TensorSpec, TensorSpec, TensorSpec, TensorSpec],
    momentum: float,
    epsilon: float,
) -> Temporary:
    """Add steps: mean and inv_std of x, which is read from the source, and the running ones. Returns gamma * inv_std.

    vectors: gamma, running_mean, running_var, mean, inv_std.
    """
    columns = columns_of(images, x)
    sums, count = ChannelSums(columns), columns.pixels
    shift = _add_moments(sums, source)
    share, scale = (images.temporary((columns.channels,), dtype) for dtype in ("float64", "float32"))

    def finish(squares: Array, total: Array, shift: Array, share: Array, *vectors: Array) -> None:
        """Turns the sums into the variance and the mean, and updates the running ones."""
        gamma, running_mean, running_var, mean, inv_std, scale = vectors
        _to_moments(squares, total, share, count)
        np.add(total, shift, out=total)
        _move(running_mean, total, momentum, 1.0, share)
        _move(running_var, squares, momentum, count / max(1, count - 1), share)
        np.copyto(mean, total, casting="same_kind")
        np.divide(1, np.sqrt(np.add(squares, epsilon, out=squares), out=squares), out=squares)
        np.copyto(inv_std, squares, casting="same_kind")
        np.multiply(gamma, inv_std, out=scale)

    images.call(finish, *sums.totals, shift, share, *vectors, scale)
    return scale


def batch_normalize(
    x: TensorSpec, gamma: TensorSpec, beta: TensorSpec, mean: TensorSpec, inv_std: TensorSpec, y: TensorSpec
) -> Routine | None:
    """The last step of `batch_norm`."""
    if not fit((x, y), gamma, beta, mean, inv_std):
        return None
    images = Images(x, y)
    scale = add_scale(images, gamma, inv_std)
    return _normalized(images, images.source(x), y, mean, scale, beta)


def add_scale(images: Images, gamma: TensorSpec, inv_std: TensorSpec) -> Temporary:
    """Add a step. Returns gamma * inv_std."""
    scale = images.temporary(gamma.shape, "float32")
    images.call(lambda gamma, inv_std, scale: np.multiply(gamma, inv_std, out=scale), gamma, inv_std, scale)
    return scale


def _add_moments(sums: ChannelSums, x: Activations) -> Temporary:
    """Add steps: the sums of x - shift and of its squares. Returns the shift, float32.

    It is 0 where the mean is small: the variance, a difference of squares, is then off by a few roundings at most. Else
    x is summed again with its mean as the shift, and once more if that mean was still too far off.
    """
    columns, images = sums.columns, sums.work
    moments = [images.temporary((columns.channels,), "float64") for _ in range(3)]
    shift = images.temporary((columns.channels,), "float32")
    times, is_far = images.temporary((1,), "int64"), images.temporary((1,), "bool")

    def begin(shift: Array, times: Array) -> None:
        shift.fill(0)
        times.fill(0)

    def choose(squares: Array, total: Array, variance: Array, mean: Array, spare: Array, *results: Array) -> None:
        shift, times, is_far = results
        np.copyto(variance, squares)
        np.copyto(mean, total)
        _to_moments(variance, mean, spare, columns.pixels)
        is_far[0] = times[0] < _SHIFTS and _is_far(mean, np.multiply(variance, _NEAR, out=variance), spare)
        times += 1
        if is_far[0]:
            np.add(shift, mean, out=shift, where=np.isfinite(mean), casting="same_kind")

    images.call(begin, shift, times)
    sums.add(x)
    images.call(choose, *sums.totals, *moments, shift, times, is_far)
    with images.repeat_while(is_far):
        sums.add(x, move=sums.less(shift))
        images.call(choose, *sums.totals, *moments, shift, times, is_far)
    return shift


def _to_moments(squares: Array, total: Array, spare: Array, count: int) -> None:
    """Turns sums of squares and of values into the variance and the mean, in place."""
    np.divide(squares, count, out=squares)
    np.divide(total, count, out=total)
    np.subtract(squares, np.square(total, out=spare), out=squares)
    np.maximum(squares, 0, out=squares)


def _is_far(mean: Array, limit: Array, spare: Array) -> bool:
    """Whether the square of any mean is over its limit, or one of the two is NaN or infinite."""
    return not np.all(np.square(mean, out=spare) <= limit) or not np.all(np.isfinite(limit))


def _move(running: Array, batch: Array, momentum: float, correction: float, share: Array) -> None:
    """running = (1 - momentum) * running + momentum * correction * batch."""
    np.multiply(running, 1 - momentum, out=running)
    np.add(running, np.multiply(batch, momentum * correction, out=share), out=running)


def batch_norm_inference(
    x: TensorSpec,
    gamma: TensorSpec,
    beta: TensorSpec,
    running_mean: TensorSpec,
    running_var: TensorSpec,
    y: TensorSpec,
    *,
    epsilon: float,
) -> Routine | None:
    """Forward with the statistics given."""
    if not fit((x, y), gamma, beta, running_mean, running_var):
        return None
    images = Images(x, y)
    scale, wide = (images.temporary(gamma.shape, dtype) for dtype in ("float32", "float64"))

    def finish(gamma: Array, variance: Array, wide: Array, scale: Array) -> None:
        np.sqrt(np.add(variance, epsilon, out=wide), out=wide)
        np.divide(gamma, wide, out=scale)

    images.call(finish, gamma, running_var, wide, scale)
    return _normalized(images, images.source(x), y, running_mean, scale, beta)


def _normalized(
    images: Images, source: Activations, y: TensorSpec, mean: BufferView, scale: BufferView, shift: BufferView
) -> Images:
    """Add steps: y = (source - mean) * scale + shift, of vectors of channels."""
    columns = columns_of(images, y, SHORT)
    normalized = Normalized(columns, mean, scale, shift)
    with images.sink(y) as target:
        columns.each([source], target, lambda pixels, reads, target: normalized.add(pixels, reads[0], target))
    return images


def batch_norm_derivative(
    dy: TensorSpec,
    x: TensorSpec,
    gamma: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    dx: TensorSpec,
    dgamma: TensorSpec,
    dbeta: TensorSpec,
) -> Routine | None:
    """The sums, then dx = scale * (dy + offset + slope * (x - mean)), one primitive with a row of post-ops."""
    if not fit((dy, x, dx), gamma, mean, inv_std, dgamma, dbeta):
        return None
    images = Images(dy, x, dx)
    sums = ChannelSums(columns_of(images, x))
    source, derivative = images.source(x), images.source(dy)
    add_gradients(sums, source, derivative, mean, inv_std, dgamma, dbeta)
    with images.sink(dx) as target:
        propagate(sums, source, derivative, target, (gamma, mean, inv_std))
    return images


def propagate(
    sums: ChannelSums,
    source: Activations,
    derivative: Activations,
    target: Activations,
    vectors: tuple[TensorSpec, TensorSpec, TensorSpec],
) -> None:
    """Add steps: dx into the target, from x, dy and their sums. vectors: gamma, mean, inv_std."""
    gamma, mean, inv_std = vectors
    work, count = sums.work, sums.columns.pixels
    scale, slope, offset = (work.temporary(mean.shape, "float32") for _ in range(3))

    def finish(products: Array, total: Array, *vectors: Array) -> None:
        gamma, inv_std, scale, slope, offset = vectors
        np.multiply(products, inv_std, out=products)
        np.divide(products, -count, out=slope)
        np.divide(total, -count, out=offset)
        np.multiply(gamma, inv_std, out=scale)

    work.call(finish, *sums.totals, gamma, inv_std, scale, slope, offset)
    columns = sums.columns.at_least(SHORT)
    before, after = [columns.vector(v) for v in (mean, slope, offset)], columns.vector(scale)
    _chain(columns, target, source, (*before, derivative, after), _DERIVATIVE)


def _chain(
    columns: Columns, target: Activations, source: Activations, operands: Sequence[Activations], links: Links
) -> None:
    """Add steps: target = source - operands[0], a vector; then each link with its operand, in order."""
    given = list(zip((f.SRC_1, *map(f.post_op, range(len(links)))), operands, strict=True))
    wholes = [f.post_op(index) for index, (_, is_whole) in enumerate(links) if is_whole]
    vectors = {at: view for at, view in given if at not in wholes and not isinstance(view, Pitched)}

    @cache
    def made(pixels: int) -> Primitive:
        line, vector = columns.part_desc(pixels), columns.vector_desc
        others = [("binary", algorithm, line if is_whole else vector) for algorithm, is_whole in links]
        return columns.work.make("binary", a.SUBTRACT, line, vector, line, post_ops=others)

    def add(pixels: int, reads: Sequence[BufferView], target: BufferView) -> None:
        activations = dict(zip([f.SRC, *wholes], reads, strict=True))
        columns.work.run(made(pixels), {**activations, f.DST: target, **vectors})

    columns.each([source, *(view for at, view in given if at in wholes)], target, add)


def batch_norm_gradient(
    dy: TensorSpec, x: TensorSpec, mean: TensorSpec, inv_std: TensorSpec, dgamma: TensorSpec, dbeta: TensorSpec
) -> Routine | None:
    """dgamma and dbeta alone."""
    if not fit((dy, x), mean, inv_std, dgamma, dbeta):
        return None
    images = Images(dy, x)
    if not images.lie(dy, x):
        return None
    columns = columns_of(images, x)
    sums = ChannelSums(columns)
    add_gradients(sums, images.source(x), images.source(dy), mean, inv_std, dgamma, dbeta)
    return images


def add_gradients(
    sums: ChannelSums,
    x: Activations,
    dy: Activations,
    mean: TensorSpec,
    inv_std: TensorSpec,
    dgamma: TensorSpec,
    dbeta: TensorSpec,
    before: Before | None = None,
) -> None:
    """Add steps: both gradients, which `sums.totals` have in float64. x is shifted by its mean where that is large.

    before: as of `ChannelSums.add`.
    """
    images = sums.work
    is_far, is_near = (images.temporary((1,), "bool") for _ in range(2))
    spare, limit = (images.temporary(mean.shape, "float64") for _ in range(2))

    def choose(mean: Array, inv_std: Array, spare: Array, limit: Array, is_far: Array, is_near: Array) -> None:
        np.divide(_NEAR, np.square(inv_std, dtype=np.float64, out=limit), out=limit)
        is_far[0] = _is_far(mean, limit, spare)
        is_near[0] = not is_far[0]

    def centre(products: Array, total: Array, mean: Array, spare: Array) -> None:
        np.subtract(products, np.multiply(total, mean, out=spare), out=products)

    def finish(products: Array, total: Array, inv_std: Array, dgamma: Array, dbeta: Array) -> None:
        np.multiply(products, inv_std, out=products)
        np.copyto(dgamma, products, casting="same_kind")
        np.copyto(dbeta, total, casting="same_kind")

    images.call(choose, mean, inv_std, spare, limit, is_far, is_near)
    with images.only_if(is_near):
        sums.add(x, dy, before=before)
        images.call(centre, *sums.totals, mean, spare)
    with images.only_if(is_far):
        sums.add(x, dy, sums.less(mean), before)
    images.call(finish, *sums.totals, inv_std, dgamma, dbeta)


def columns_of(images: Images, tensor: TensorSpec, least: int = COLUMNS) -> Columns:
    """The matrix of a tensor, with so many columns at least."""
    return Columns(images, images.shape(tensor), images.axes == layouts.CHANNELS_LAST, least)


def fit(images: tuple[TensorSpec, ...], *vectors: TensorSpec) -> bool:
    """Whether the library can take these activations and vectors of channels."""
    return layouts.are_floats(*images, *vectors) and Images.fit(*images) and all(lies(v, (0,)) for v in vectors)
