"""Root mean square normalization, a few rows at a time; sums in float64."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.pieces import pieces
from singa_lite.kernels.numpy_kernels.rows import per_feature, per_row, piece_buffer, row_blocks, row_buffers
from singa_lite.kernels.numpy_kernels.scratch import BufferSpec, Bytes, Shaped, bytes_for, carve, scratch
from singa_lite.kernels.numpy_kernels.standardize import invert_std
from singa_lite.kernels.numpy_kernels.sums import add_sum, sum_products


@scratch(lambda x, gamma, y, inv_rms, **_: bytes_for(piece_buffer(x, np.float64), *row_buffers(x, inv_rms, 2)))
def rms_norm(x: Array, gamma: Array, y: Array, inv_rms: Array, *, epsilon: float, scratch: Bytes) -> None:
    """The mean square, then one factor a row and one a feature."""
    buffer, (sums, partial), _ = carve(scratch, piece_buffer(x, np.float64), *row_buffers(x, inv_rms, 2))
    features, gamma = max(1, gamma.size), per_feature(gamma, x)
    for rows in row_blocks(x, inv_rms):
        factors = per_row(inv_rms[rows], x)
        total = shaped(sums, factors.shape)
        sum_products(x[rows], x[rows], total, buffer, partial)
        np.divide(total, features, out=total)
        np.copyto(factors, invert_std(total, epsilon), casting="same_kind")
        for piece, factor, slope, target in pieces(x[rows], factors, gamma, y[rows]):
            np.multiply(piece, factor, out=target)
            np.multiply(target, slope, out=target)


def _derivative_buffers(dy: Shaped, inv_rms: Shaped) -> list[BufferSpec]:
    return [piece_buffer(dy, np.float64), piece_buffer(dy, dy.dtype), *row_buffers(dy, inv_rms, 2, 1)]


@scratch(lambda dy, x, gamma, inv_rms, dx: bytes_for(*_derivative_buffers(dy, inv_rms)))
def rms_norm_derivative(dy: Array, x: Array, gamma: Array, inv_rms: Array, dx: Array, *, scratch: Bytes) -> None:
    """A few rows at a time; dx holds g until it is written."""
    buffer, temporary, (sums, partial), (slopes,) = carve(scratch, *_derivative_buffers(dy, inv_rms))
    features, gamma = max(1, gamma.size), per_feature(gamma, x)
    for rows in row_blocks(x, inv_rms):
        factors = per_row(inv_rms[rows], x)
        total, slope = shaped(sums, factors.shape), shaped(slopes, factors.shape)
        g = np.multiply(dy[rows], gamma, out=dx[rows])
        sum_products(g, x[rows], total, buffer, partial)
        np.multiply(total, factors, out=total)
        np.multiply(total, factors, out=total)
        np.divide(total, features, out=total)
        np.copyto(slope, total, casting="same_kind")
        for piece, target, along, factor in pieces(x[rows], g, slope, factors):
            np.multiply(piece, along, out=shaped(temporary, piece.shape))
            np.subtract(target, shaped(temporary, piece.shape), out=target)
            np.multiply(target, factor, out=target)


@scratch(lambda dy, x, inv_rms, dgamma: bytes_for(piece_buffer(dy, np.float64), ((2, dgamma.size), np.float64)))
def rms_norm_gradient(dy: Array, x: Array, inv_rms: Array, dgamma: Array, *, scratch: Bytes) -> None:
    """The sum over the rows of dy * x * inv_rms."""
    buffer, (sums, partial) = carve(scratch, piece_buffer(dy, np.float64), ((2, dgamma.size), np.float64))
    total = per_feature(shaped(sums, dgamma.shape), x)
    total.fill(0)
    for piece, values, factor, target in pieces(x, dy, per_row(inv_rms, x), total):
        products = np.multiply(piece, values, dtype=np.float64, out=shaped(buffer, piece.shape))
        add_sum(np.multiply(products, factor, out=products), target, partial)
    np.copyto(dgamma, shaped(sums, dgamma.shape), casting="same_kind")
