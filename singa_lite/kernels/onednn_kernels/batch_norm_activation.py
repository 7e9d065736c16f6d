"""Batch normalization with the activation behind it, in one pass over activations each way.

    forward:    x -> normalised and activated -> y
    backward:   piece of x -> normalised, in the caches -> mask -> masked piece of dy -> dx, and its sums
                x, masked dy, sums -> dx

The mask is that of the forward direction, as pieces are normalised by the same arithmetic. So y is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.batch_norm import add_scale
from singa_lite.kernels.onednn_kernels.batch_norm_gradients import add_gradients, propagate
from singa_lite.kernels.onednn_kernels.images import Images
from singa_lite.kernels.onednn_kernels.library import algorithms as a
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import memory_descs
from singa_lite.kernels.onednn_kernels.library.primitive import MemoryDesc, Primitive
from singa_lite.kernels.onednn_kernels.pieces import piece_size
from singa_lite.kernels.onednn_kernels.pitched import Pitched, Span
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine
from singa_lite.kernels.onednn_kernels.sums.batch_statistics import (
    BatchSums,
    add_statistics,
    columns_of,
    fit,
    images_of,
    sums_of,
)
from singa_lite.kernels.onednn_kernels.sums.channel_sums import Before
from singa_lite.kernels.onednn_kernels.sums.columns import SHORT, Activations, Columns, read_through
from singa_lite.kernels.onednn_kernels.sums.line import bound_primitive, run_bound
from singa_lite.kernels.onednn_kernels.sums.normalized import End, Normalized
from singa_lite.kernels.onednn_kernels.work import Work

#: The largest result of each activation.
_LARGEST: dict[str, float | None] = {"relu": None, "relu6": 6.0}
#: The activations, of numbers.
_BOUNDS: dict[str, End] = {"relu": (a.RELU, 0.0, 0.0), "relu6": (a.CLIP, 0.0, 6.0)}
#: The derivatives by what goes into the activation, which at these is as good as what comes out of it.
_DERIVATIVES = {"relu": (a.RELU_FROM_RESULT, 0.0, 0.0), "relu6": (a.CLIP_FROM_RESULT, 0.0, 6.0)}

#: What is done in one go.
FUSIONS = [(kernel, activation) for kernel in ("batch_norm", "batch_norm_derivative") for activation in _LARGEST]

#: Elements that a piece lies off the start of its temporary, fewer than a vector register holds.
_ASIDE = 4
#: Elements of a piece that one primitive leaves in the caches for the next.
_MASKED = 1 << 16


def batch_norm_activation(
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
    activation: str,
) -> Routine | None:
    """The statistics, then y by them."""
    if not fit((x, y), gamma, beta, running_mean, running_var, mean, inv_std):
        return None
    images = images_of(x, y)
    source = images.source(x, copy=y)
    vectors = gamma, running_mean, running_var, mean, inv_std
    scale = add_statistics(images, x, source, vectors, momentum, epsilon)
    return _activated(images, read_through(source), y, (mean, scale, beta), inv_std, activation)


def batch_normalize_activation(
    x: TensorSpec,
    gamma: TensorSpec,
    beta: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    y: TensorSpec,
    *,
    activation: str,
) -> Routine | None:
    """The last step of `batch_norm_activation`."""
    if not fit((x, y), gamma, beta, mean, inv_std):
        return None
    images = images_of(x, y)
    scale = add_scale(images, gamma, inv_std)
    return _activated(images, images.source(x), y, (mean, scale, beta), inv_std, activation)


def _activated(
    images: Images,
    source: Activations,
    y: TensorSpec,
    vectors: tuple[BufferView, BufferView, BufferView],
    inv_std: TensorSpec,
    activation: str,
) -> Images:
    """Add steps: y = the activation of (source - mean) * scale + shift. vectors: mean, scale and shift, of channels.

    What the library bounds by takes NaN for 0; where there may be any, the two are done one after the other.
    """
    columns = columns_of(images, y, SHORT)
    normalized = Normalized(columns, *vectors)
    ends = (_BOUNDS[activation],)
    with images.sink(y) as target:
        calm, other = normalized.find_calm(inv_std)
        with images.only_if(calm, likely=True):
            columns.each([source], target, lambda pixels, reads, target: normalized.add(pixels, reads[0], target, ends))
        with images.only_if(other):
            one_after_the_other(normalized, [source], target, activation)
    return images


def one_after_the_other(
    normalized: Normalized, sources: Sequence[Activations], target: Activations, activation: str
) -> None:
    """Add steps: normalised, then bounded, as the activation by itself does it. sources: x, and what is added to it."""
    columns, work, largest = normalized.columns, normalized.work, _LARGEST[activation]
    bounds = [*([] if largest is None else [(largest, a.MINIMUM)]), (0.0, a.MAXIMUM)]
    bounded = [_by_pixels(columns, partial(_bound, work, *bound)) for bound in bounds]

    def add(pixels: int, reads: Sequence[BufferView], target: BufferView) -> None:
        normalized.add(pixels, reads[0], target, (a.ADD,) * len(reads[1:]), reads[1:])
        for primitive in bounded:
            run_bound(work, primitive(pixels), target, target)

    columns.each(sources, target, add)


def _bound(work: Work, bound: float, algorithm: int, line: MemoryDesc) -> Primitive:
    with work.making():
        return bound_primitive(line, bound, algorithm)


def _cached_piece(columns: Columns, pixels: int) -> BufferView:
    """A temporary of so many pixels, which stays in the caches when the library writes it.

    To what lies at a multiple of its vectors' length it writes past the caches: this one does not.
    """
    size = pixels * columns.channels
    return columns.work.temporary((size + _ASIDE,), columns.dtype).part(_ASIDE, size, columns.dtype)


def _by_pixels(columns: Columns, make: Callable[[MemoryDesc], Primitive]) -> Callable[[int], Primitive]:
    """What gives the primitive for so many pixels taken as a line of elements; each is made once."""
    made: dict[int, Primitive] = {}

    def give(pixels: int) -> Primitive:
        if pixels not in made:
            made[pixels] = make(memory_descs.dense((pixels * columns.channels,), str(columns.dtype)))
        return made[pixels]

    return give


def batch_norm_activation_derivative(
    dy: TensorSpec,
    x: TensorSpec,
    gamma: TensorSpec,
    beta: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    dx: TensorSpec,
    dgamma: TensorSpec,
    dbeta: TensorSpec,
    *,
    activation: str,
) -> Routine | None:
    """The sums of masked dy, which goes into dx, then dx from them as without an activation."""
    if not fit((dy, x, dx), gamma, beta, mean, inv_std, dgamma, dbeta):
        return None
    images = images_of(dy, x, dx)
    sums = sums_of(images, x)
    source, derivative = images.source(x), images.source(dy)
    normalized = Normalized(sums.columns.at_least(SHORT), mean, add_scale(images, gamma, inv_std), beta)
    with images.sink(dx) as target:
        mask = _mask(sums, normalized, source, derivative, target, activation)
        add_gradients(sums, source, target, mean, inv_std, dgamma, dbeta, mask)
        propagate(sums, source, target, target, (gamma, mean, inv_std))
    return images


def _mask(
    sums: BatchSums,
    normalized: Normalized,
    source: Activations,
    derivative: Activations,
    target: Activations,
    activation: str,
) -> Before:
    """What adds steps for a span: the source is normalised, and the activation's derivative goes into the target."""
    columns, work = sums.columns, sums.work
    step = sums.longest
    if columns.lie_last:  # in C order images stay whole
        unit = normalized.columns.unit
        most = max(1, _MASKED // (unit * columns.channels))
        step = min(step, (most if step % unit else piece_size(step // unit, most)) * unit)
    piece = _cached_piece(columns, step)
    algorithm, alpha, beta = _DERIVATIVES[activation]

    def masked(line: MemoryDesc) -> Primitive:
        forward = work.make("eltwise_forward", f.FORWARD_TRAINING, algorithm, line, line, alpha, beta)
        return work.make("eltwise_backward", algorithm, line, line, line, alpha, beta, forward=forward)

    masks = _by_pixels(columns, masked)

    def add(span: Span) -> Mapping[int, tuple[BufferView, Span]]:
        near = columns.near(source, span), columns.near(derivative, span), columns.far(target, span)
        for start in range(0, span.length, step):
            count = min(step, span.length - start)
            x, slope, masked = (columns.part(view, Span(own.start + start, count)) for view, own in near)
            y = columns.part(piece, Span(0, count))
            normalized.add(count, x, y)
            work.run(masks(count), {f.DST: y, f.DIFF_DST: slope, f.DIFF_SRC: masked})
        if isinstance(target, Pitched):
            target.write(span)
        return {id(source): near[0], id(target): near[2]}

    return add
