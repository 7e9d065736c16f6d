"""Sums of the oneDNN set: layouts, exactness over many terms, NaN and infinity; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_onednn_linear import channels_last, normal

from kernel_case import garbage, run
from singa_lite.kernels.kernel_set import KernelSet, specs_of

ORDERS = pytest.mark.parametrize("order", [channels_last, np.ascontiguousarray], ids=["channels_last", "c_order"])
IMAGES = (6, 20, 14, 18)


def summed(kernels: KernelSet, name: str, x: np.ndarray, y: np.ndarray, **settings: Any) -> np.ndarray:
    assert kernels.kernels[name].serves(specs_of((x, y)), settings)
    run(kernels, name, (x, y), settings)
    return y


def assert_is_sum(got: np.ndarray, x: np.ndarray, axes: tuple[int, ...], alpha: float = 1.0) -> None:
    """To 4 roundings of the sum of what is added."""
    wanted = alpha * x.sum(axes, dtype=np.float64, keepdims=True)
    rounding = np.finfo(np.float32).eps * abs(alpha) * np.abs(x).sum(axes, dtype=np.float64, keepdims=True)
    assert np.all(np.abs(got.reshape(wanted.shape) - wanted) <= 4 * rounding)


@pytest.mark.parametrize("shape", [(64, 2048), (96, 1000), (8, 4096)], ids=str)
def test_bias_gradient_of_dense_layers(onednn, shape):
    dy, db = normal(*shape), garbage(shape[1:], np.float32)
    assert_is_sum(summed(onednn, "bias_gradient", dy, db, axis=1), dy, (0,))


@ORDERS
@pytest.mark.parametrize("shape", [(16, 64, 28, 28), (4, 5, 64, 80), (3, 7, 211, 17), (2, 96, 9, 13)], ids=str)
def test_bias_gradient_of_images(onednn, order, shape):
    dy, db = order(normal(*shape)), garbage(shape[1:2], np.float32)
    assert_is_sum(summed(onednn, "bias_gradient", dy, db, axis=1), dy, (0, 2, 3))


def test_bias_gradient_of_some_channels_of_images(onednn):
    dy = normal(3, 16, 18, 40).transpose(0, 3, 1, 2)[:, 5:26]
    db = garbage((21,), np.float32)
    assert_is_sum(summed(onednn, "bias_gradient", dy, db, axis=1), dy, (0, 2, 3))


@ORDERS
@pytest.mark.parametrize("axes", [(2, 3), (0,), (1,), (0, 2, 3), (-1, -2, -3), (3,), (0, 1, 2, 3), (0, 1)], ids=str)
@pytest.mark.parametrize("alpha", [1.0, -0.25])
def test_sums_of_images(onednn, order, axes, alpha):
    x, places = normal(*IMAGES), {axis % 4 for axis in axes}
    wide = order(garbage(tuple(1 if i in places else extent for i, extent in enumerate(IMAGES)), np.float32))
    assert_is_sum(summed(onednn, "reduce_sum", order(x), wide, axes=axes, alpha=alpha), x, axes, alpha)


def test_axes_that_are_summed_over_may_be_left_out(onednn):
    x = channels_last(normal(*IMAGES))
    for axes in ((2, 3), (0,), (1,)):
        shape = tuple(extent for axis, extent in enumerate(IMAGES) if axis not in axes)
        y = garbage(shape, np.float32)
        if axes == (0,):
            y = np.ascontiguousarray(y.transpose(1, 2, 0)).transpose(2, 0, 1)
        assert_is_sum(summed(onednn, "reduce_sum", x, y, axes=axes, alpha=1.0), x, axes)


@ORDERS
def test_two_axes_apart_in_memory(onednn, order):
    """The derivative of an image made larger: each pixel takes the sum of a block of them."""
    dy, (n, c, h, w), (rows, columns) = order(normal(2, 32, 24, 30)), (2, 32, 8, 15), (3, 2)
    per_image, per_channel, per_row, per_column = dy.strides
    strides = per_image, per_channel, rows * per_row, per_row, columns * per_column, per_column
    blocks = np.lib.stride_tricks.as_strided(dy, (n, c, h, rows, w, columns), strides)
    dx = order(garbage((n, c, h, w), np.float32))
    assert_is_sum(summed(onednn, "reduce_sum", blocks, dx, axes=(3, 5), alpha=1.0), blocks, (3, 5))


@pytest.mark.parametrize("shape, axes", [((3 * 211 * 317, 4), (0,)), ((4, 3 * 211 * 317), (1,))])
def test_long_sums_of_one_sign_are_exact_to_a_few_roundings(onednn, shape, axes):
    """Added one by one, so many numbers in float32 are off by a hundred roundings or more."""
    x = np.abs(normal(*shape))
    got = summed(onednn, "reduce_sum", x, garbage((4,), np.float32), axes=axes, alpha=1.0)
    np.testing.assert_allclose(got, x.sum(axes, dtype=np.float64), rtol=8 * np.finfo(np.float32).eps)


def test_sums_that_are_not_served(onednn):
    kernel, x, y = onednn.kernels["reduce_sum"], channels_last(normal(*IMAGES)), np.empty((6, 20, 1, 1), np.float32)
    settings = {"axes": (2, 3), "alpha": 1.0}
    assert kernel.serves(specs_of((x, y)), settings)
    assert not kernel.serves(specs_of((x.astype(np.float64), y.astype(np.float64))), settings), "double precision"
    assert not kernel.serves(specs_of((x[:, ::2], y[:, ::2])), settings), "gaps between channels"
    assert not kernel.serves(specs_of((x, np.empty((20, 6), np.float32).T[..., None, None])), settings), "another order"
    prime = np.empty((100003, 2), np.float32)
    assert not kernel.serves(specs_of((prime, prime[0])), {"axes": (0,), "alpha": 1.0}), "no even groups of terms"
