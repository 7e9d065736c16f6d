"""Gradients of batch normalization, from exact sums, and its derivative in one more pass over activations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.library import algorithms as a
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library.primitive import Primitive
from singa_lite.kernels.onednn_kernels.pitched import Pitched
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine
from singa_lite.kernels.onednn_kernels.sums.batch_statistics import BatchSums, fit, images_of, sums_of
from singa_lite.kernels.onednn_kernels.sums.channel_sums import Before
from singa_lite.kernels.onednn_kernels.sums.columns import SHORT, Activations, Columns

#: Algorithms of post-ops, and whether their operand is a whole tensor, not a vector.
Links = Sequence[tuple[int, bool]]
_DERIVATIVE: Links = (a.MULTIPLY, False), (a.ADD, False), (a.ADD, True), (a.MULTIPLY, False)


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
    return derivative(dy, x, (gamma, mean, inv_std), (dgamma, dbeta), None, dx)


def derivative(
    dy: TensorSpec,
    x: TensorSpec,
    vectors: tuple[TensorSpec, TensorSpec, TensorSpec],
    gradients: tuple[TensorSpec, TensorSpec],
    other: TensorSpec | None,
    dx: TensorSpec,
) -> Routine | None:
    """dx, and what is added to it, if anything. vectors: gamma, mean, inv_std; gradients: dgamma, dbeta."""
    tensors = (dy, x, dx) if other is None else (dy, x, dx, other)
    if not fit(tensors, *vectors, *gradients):
        return None
    images = images_of(*tensors)
    sums = sums_of(images, x)
    source, slope = images.source(x), images.source(dy)
    summand = None if other is None else images.source(other)
    add_gradients(sums, source, slope, *vectors[1:], *gradients)
    with images.sink(dx) as target:
        propagate(sums, source, slope, target, vectors, summand)
    return images


def propagate(
    sums: BatchSums,
    source: Activations,
    derivative: Activations,
    target: Activations,
    vectors: tuple[TensorSpec, TensorSpec, TensorSpec],
    summand: Activations | None = None,
) -> None:
    """Add steps: dx into the target, from x, dy and their sums. vectors: gamma, mean, inv_std; summand: added to it."""
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
    operands, links = [*before, derivative, after], [*_DERIVATIVE]
    if summand is not None:
        operands.append(summand)
        links.append((a.ADD, True))
    _chain(columns, target, source, operands, links)


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
    images = images_of(dy, x)
    if not images.lie(dy, x):
        return None
    sums = sums_of(images, x)
    add_gradients(sums, images.source(x), images.source(dy), mean, inv_std, dgamma, dbeta)
    return images


def add_gradients(
    sums: BatchSums,
    x: Activations,
    dy: Activations,
    mean: TensorSpec,
    inv_std: TensorSpec,
    dgamma: TensorSpec,
    dbeta: TensorSpec,
    before: Before | None = None,
) -> None:
    """Add steps: both gradients, which `sums.totals` have in float64.

    before: as of `ChannelSums.add`.
    """

    def finish(products: Array, total: Array, inv_std: Array, dgamma: Array, dbeta: Array) -> None:
        np.multiply(products, inv_std, out=products)
        np.copyto(dgamma, products, casting="same_kind")
        np.copyto(dbeta, total, casting="same_kind")

    sums.add_products(x, dy, mean, inv_std, before)
    sums.work.call(finish, *sums.totals, inv_std, dgamma, dbeta)
