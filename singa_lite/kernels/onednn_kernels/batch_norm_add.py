"""Batch normalization with the sum behind it and the activation behind that, in one pass over activations.

    x -> statistics;   piece of x -> normalised, in the caches -> with the other tensor's piece: summed, activated -> y

The normalised piece and the sum are made by the primitives of the two kernels, so the bits are theirs.
"""

from __future__ import annotations

from typing import NamedTuple

from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels import algorithms as a
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels.batch_norm import add_scale
from singa_lite.kernels.onednn_kernels.batch_norm_activation import by_pixels, cached_piece, masked_derivative
from singa_lite.kernels.onednn_kernels.batch_norm_gradients import plain_derivative
from singa_lite.kernels.onednn_kernels.batch_statistics import add_statistics, columns_of, fit
from singa_lite.kernels.onednn_kernels.columns import SHORT, Activations, Columns
from singa_lite.kernels.onednn_kernels.images import Images
from singa_lite.kernels.onednn_kernels.normalized import Normalized
from singa_lite.kernels.onednn_kernels.pitched import Pitched, Span
from singa_lite.kernels.onednn_kernels.primitive import MemoryDesc, PostOp, Primitive
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine

#: Elements of a piece: with the other tensor's and the result's it stays in a core's own cache.
_PIECE = 1 << 16


class _Sum(NamedTuple):
    """Arguments of the primitive that sums and activates: those that are given the normalised piece, and the other."""

    own: tuple[int, ...]
    theirs: tuple[int, ...]


#: By activation. With relu it is the larger of own and -theirs, and theirs added, as in `elementwise.add_activation`.
_SUMS = {"": _Sum((f.SRC,), (f.SRC_1,)), "relu": _Sum((f.post_op(1),), (f.SRC, f.SRC_1, f.post_op(2)))}

#: What is done in one go.
FUSIONS = [("batch_norm_add", activation) for activation in _SUMS]
FUSIONS += [("batch_norm_derivative_add", activation) for activation in ("", "relu", "relu6")]


def batch_norm_add(
    x: TensorSpec,
    gamma: TensorSpec,
    beta: TensorSpec,
    running_mean: TensorSpec,
    running_var: TensorSpec,
    other: TensorSpec,
    y: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    *,
    momentum: float,
    epsilon: float,
    activation: str,
) -> Routine | None:
    """The statistics, then y by them. Pieces of x are not left in y, which may be the other tensor."""
    if activation not in _SUMS or not fit((x, other, y), gamma, beta, running_mean, running_var, mean, inv_std):
        return None
    images = Images(x, other, y)
    source, theirs = images.source(x), images.source(other)
    vectors = gamma, running_mean, running_var, mean, inv_std
    scale = add_statistics(images, x, source, vectors, momentum, epsilon)
    return _added(images, source, theirs, y, (mean, scale, beta), activation)


def batch_normalize_add(
    x: TensorSpec,
    gamma: TensorSpec,
    beta: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    other: TensorSpec,
    y: TensorSpec,
    *,
    activation: str,
) -> Routine | None:
    """The last step of `batch_norm_add`."""
    if activation not in _SUMS or not fit((x, other, y), gamma, beta, mean, inv_std):
        return None
    images = Images(x, other, y)
    scale = add_scale(images, gamma, inv_std)
    return _added(images, images.source(x), images.source(other), y, (mean, scale, beta), activation)


def batch_norm_derivative_add(
    dy: TensorSpec,
    x: TensorSpec,
    y: TensorSpec | None,
    gamma: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    other: TensorSpec,
    dx: TensorSpec,
    dgamma: TensorSpec,
    dbeta: TensorSpec,
    *,
    activation: str,
) -> Routine | None:
    """One more post-op of the derivative's last pass."""
    vectors, gradients = (gamma, mean, inv_std), (dgamma, dbeta)
    if activation:
        return masked_derivative(dy, x, y, vectors, gradients, other, dx, activation)
    return plain_derivative(dy, x, vectors, gradients, other, dx)


def _added(
    images: Images,
    source: Activations,
    theirs: Activations,
    y: TensorSpec,
    vectors: tuple[BufferView, BufferView, BufferView],
    activation: str,
) -> Images:
    """Add steps: y = the activation of (source - mean) * scale + shift + theirs. vectors: mean, scale, shift."""
    columns = columns_of(images, y, SHORT)
    normalized, step = Normalized(columns, *vectors), _step(columns)
    piece, sums = cached_piece(columns, step), by_pixels(columns, lambda line: _sum(columns, line, activation))

    with images.sink(y) as target:

        def add(span: Span) -> None:
            own = columns.part(piece, Span(0, span.length))
            normalized.add(span.length, columns.part(*columns.near(source, span)), own)
            given = columns.part(*columns.near(theirs, span))
            into = target.dense(span) if isinstance(target, Pitched) else columns.part(target, span)
            views = dict.fromkeys(_SUMS[activation].own, own) | dict.fromkeys(_SUMS[activation].theirs, given)
            images.run(sums(span.length), {**views, f.DST: into})
            if isinstance(target, Pitched):
                target.write(span)

        starts = range(0, columns.pixels, step)
        images.repeat([Span(start, min(step, columns.pixels - start)) for start in starts], add)
    return images


def _step(columns: Columns) -> int:
    """Pixels of a piece; images in C order stay whole."""
    least = 1 if columns.lie_last else columns.unit
    return min(columns.pixels, max(1, _PIECE // (least * columns.channels)) * least)


def _sum(columns: Columns, line: MemoryDesc, activation: str) -> Primitive:
    if not activation:
        return columns.work.make("binary", a.ADD, line, line, line)
    links: list[PostOp] = [
        ("eltwise", a.LINEAR, -1.0, 0.0),
        ("binary", a.MAXIMUM, line),
        ("binary", a.ADD, line),
        ("eltwise", a.LINEAR, 1.0, 0.0),
    ]
    return columns.work.make("binary", a.MAXIMUM, line, line, line, post_ops=links)
