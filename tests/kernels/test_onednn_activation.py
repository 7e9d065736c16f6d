"""Activations of the oneDNN set: what is served, threads, softmax; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_onednn_linear import channels_last, normal

from kernel_case import run
from nets import bits
from singa_lite.kernels.kernel_set import specs_of
from test_activation_values import FORWARD, applied

Array = np.ndarray
Settings = dict[str, Any]

#: All but softplus.
SERVED = [name for name in FORWARD if name != "softplus"]

every_activation = pytest.mark.parametrize("name", SERVED)


NAN = np.nan


def assert_close(got: Array, wanted: Array, tolerance: float = 4e-7) -> None:
    """To 4e-7 of the largest, about 3 roundings."""
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


@every_activation
def test_one_thread_or_more_give_equal_bits(onednn, name):
    x = 3 * normal(3, 50_001)
    rows = [applied(onednn, name, row, **FORWARD[name]) for row in x]
    assert bits(applied(onednn, name, x, **FORWARD[name])) == bits(np.array(rows))


def piece(a: Array) -> Array:
    """The same among the channels of a larger tensor."""
    return np.concatenate([a, a, a], 1)[:, a.shape[1] : -a.shape[1]]


@every_activation
def test_which_forms_are_served(onednn, name):
    kernel, derivative, settings = onednn.kernels[name], onednn.kernels[f"{name}_derivative"], FORWARD[name]
    last, plain = channels_last(np.zeros((16, 64, 56, 56), np.float32)), np.zeros((16, 64, 56, 56), np.float32)
    for x in (last, plain, plain[0], plain[3:5], np.empty((64, 2048), np.float32)):
        assert kernel.serves(specs_of((x, x)), settings)
        assert derivative.serves(specs_of((x, x, x)), settings)
    few = np.zeros((2, 5, 7, 3), np.float32)
    for lay in (channels_last, piece):  # a concatenation's parts; layouts that change between two layers
        assert kernel.serves(specs_of((lay(few), channels_last(few))), settings)
        assert derivative.serves(specs_of((lay(few), channels_last(few), channels_last(few))), settings)
    gaps, double = piece(plain), plain.astype(np.float64)
    for x, y in ((gaps, gaps), (plain, gaps)):  # what is written into a concatenation
        assert kernel.serves(specs_of((x, y)), settings)
        assert derivative.serves(specs_of((x, y, y)), settings)
    for x, y in ((double, double), (double, plain), (plain, plain[:1])):
        assert not kernel.serves(specs_of((x, y)), settings)
        assert not derivative.serves(specs_of((x, y, y)), settings)
    assert not kernel.serves(specs_of((np.broadcast_to(plain[:1], plain.shape), plain)), settings)
    assert not derivative.serves(specs_of((last, plain, last)), settings)


@pytest.mark.parametrize("name", ["softplus", "softplus_derivative"])
def test_softplus_is_left_to_the_next_set(onednn, name):
    assert name not in onednn.kernels


# Softmax


ROWS = {
    "classes": (normal(64, 1000), 1),
    "few": (normal(7, 3), -1),
    "pixels": (channels_last(normal(3, 21, 11, 6)), 1),
    "attention": (normal(2, 5, 19, 19), -1),
    "longest": (normal(3, 4096), 1),
    "large": (normal(70, 1001), 1),
}
every_row = pytest.mark.parametrize("x, axis", ROWS.values(), ids=ROWS)


@every_row
def test_softmax(onednn, x, axis):
    y = np.full_like(x, NAN)
    assert onednn.kernels["softmax"].serves(specs_of((x, y)), {"axis": axis})
    run(onednn, "softmax", [4 * x, y], {"axis": axis})
    powers = np.exp(4 * x.astype(np.float64))
    # Without AVX-512 a row of 1,000 is added up in eight lanes; that is off by up to 12 roundings, in PyTorch too.
    assert_close(y, powers / powers.sum(axis, keepdims=True), 12 * 2.0**-24)


@every_row
def test_softmax_derivative(onednn, x, axis):
    y, dx = np.full_like(x, NAN), np.full_like(x, NAN)
    dy = np.empty_like(x)
    dy[...] = normal(*x.shape, seed=4)
    run(onednn, "softmax", [x, y], {"axis": axis})
    assert onednn.kernels["softmax_derivative"].serves(specs_of((dy, y, dx)), {"axis": axis})
    run(onednn, "softmax_derivative", [dy, y, dx], {"axis": axis})
    wide, slope = y.astype(np.float64), dy.astype(np.float64)
    wanted = wide * (slope - (wide * slope).sum(axis, keepdims=True))
    np.testing.assert_allclose(dx, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


def test_other_rows_are_left_to_the_next_set(onednn):
    kernel, x, long = onednn.kernels["softmax"], normal(6, 5, 4, 3), normal(3, 4097)
    for y, axis in ((x, 1), (x, 0), (channels_last(x), 3), (long, 1), (x[..., :2], 3), (x.astype(np.float64), 3)):
        assert not kernel.serves(specs_of((y, y)), {"axis": axis})
        assert not onednn.kernels["softmax_derivative"].serves(specs_of((y, y, y)), {"axis": axis})
