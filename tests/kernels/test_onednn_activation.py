"""Activations of the oneDNN set: digits, NaN, infinity and kinks, layouts; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_onednn_linear import channels_last, normal

from kernel_case import garbage, run
from nets import bits
from singa_lite.kernels.kernel_set import KernelSet, specs_of
from singa_lite.kernels.numpy_kernels import NUMPY

Array = np.ndarray
Settings = dict[str, Any]

FORWARD: dict[str, Settings] = {
    "relu": {},
    "relu6": {},
    "leaky_relu": {"slope": 0.1},
    "elu": {"alpha": 0.7},
    "sigmoid": {},
    "tanh": {},
    "gelu": {},
    "silu": {},
}
#: Activations whose derivative takes the input; that of the others takes the result.
FROM_INPUT = {"gelu", "silu"}
NAN, INF = np.nan, np.inf

every_activation = pytest.mark.parametrize("name", FORWARD)


def applied(kernels: KernelSet, name: str, *inputs: Array, **settings: Any) -> Array:
    y = garbage(inputs[0].shape, inputs[0].dtype)
    run(kernels, name, [*inputs, y], settings)
    return y


def known_to_derivative(name: str, x: Array) -> Array:
    return x if name in FROM_INPUT else applied(NUMPY, name, x, **FORWARD[name])


def assert_close(got: Array, wanted: Array, tolerance: float = 4e-7) -> None:
    """To 4e-7 of the largest, about 3 roundings."""
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


@every_activation
@pytest.mark.parametrize("bound", [0.5, 5, 30, 100])
def test_values_to_the_last_digits(onednn, name, bound):
    x = np.linspace(-bound, bound, 20011, dtype=np.float32)
    assert onednn.kernels[name].serves(specs_of((x, x)), FORWARD[name])
    exact = applied(NUMPY, name, x.astype(np.float64), **FORWARD[name])
    assert_close(applied(onednn, name, x, **FORWARD[name]), exact)


@every_activation
@pytest.mark.parametrize("bound", [0.5, 5, 30, 100])
def test_derivatives_to_the_last_digits(onednn, name, bound):
    x, derivative = np.linspace(-bound, bound, 20011, dtype=np.float32), f"{name}_derivative"
    dy, known = normal(x.size), known_to_derivative(name, x)
    assert onednn.kernels[derivative].serves(specs_of((dy, known, x)), FORWARD[name])
    exact = applied(NUMPY, derivative, dy.astype(np.float64), known.astype(np.float64), **FORWARD[name])
    assert_close(applied(onednn, derivative, dy, known, **FORWARD[name]), exact)


@pytest.mark.parametrize("size", [6, 83, 100_003])
@pytest.mark.parametrize(
    "name, wanted",
    [
        ("relu", [NAN, INF, 0, 0, 0, 0]),
        ("relu6", [NAN, 6, 0, 0, 0, 0]),
        ("leaky_relu", [NAN, INF, -INF, 0, 0, -1]),
        ("elu", [NAN, INF, -0.7, 0, 0, 0.7 * np.expm1(-10)]),
        ("sigmoid", [NAN, 1, 0, 0.5, 0.5, 1 / (1 + np.exp(10))]),
        ("tanh", [NAN, 1, -1, 0, 0, np.tanh(-10)]),
    ],
)
def test_nan_and_infinity(onednn, name, wanted, size):
    x = np.resize(np.array([NAN, INF, -INF, 0, -0.0, -10], np.float32), size)
    got = applied(onednn, name, x, **FORWARD[name])
    np.testing.assert_allclose(got, np.resize(np.array(wanted), size), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_nan_stays_nan(onednn, name):
    x = np.resize(np.array([NAN, 1, 2], np.float32), 83)
    np.testing.assert_array_equal(np.isnan(applied(onednn, name, x)), np.isnan(x))


@pytest.mark.parametrize("size", [5, 83])
@pytest.mark.parametrize(
    "name, y, slopes",
    [
        ("relu", [0, -0.0, 1e-30, 3, 7], [0, 0, 1, 1, 1]),
        ("relu6", [0, 6, 1e-30, 3, 5.9999995], [0, 0, 1, 1, 1]),
        ("leaky_relu", [0, -0.0, 1e-30, 3, -2], [0.1, 0.1, 1, 1, 0.1]),
        ("elu", [0, -0.0, 1e-30, 3, -0.5], [0.7, 0.7, 1, 1, 0.2]),
    ],
)
def test_derivatives_at_kinks(onednn, name, y, slopes, size):
    dy, known = np.full(size, 2, np.float32), np.resize(np.array(y, np.float32), size)
    dx = applied(onednn, f"{name}_derivative", dy, known, **FORWARD[name])
    np.testing.assert_allclose(dx, np.resize(2 * np.array(slopes), size), rtol=1e-6)


@every_activation
def test_derivatives_pass_nan_on(onednn, name):
    dy, known = np.resize(np.array([1, NAN, 3], np.float32), 83), np.full(83, 0.5, np.float32)
    dx = applied(onednn, f"{name}_derivative", dy, known, **FORWARD[name])
    np.testing.assert_array_equal(np.isnan(dx), np.isnan(dy))


@every_activation
@pytest.mark.parametrize("lay", [channels_last, np.ascontiguousarray], ids=["channels_last", "c_order"])
def test_layouts(onednn, name, lay):
    x = lay(3 * normal(2, 5, 7, 3))
    y = np.full_like(x, NAN)
    run(onednn, name, [x, y], FORWARD[name])
    assert bits(y) == bits(applied(onednn, name, np.ascontiguousarray(x), **FORWARD[name]))
    dy, dx, known = lay(normal(*x.shape, seed=4)), np.full_like(x, NAN), lay(known_to_derivative(name, x))
    run(onednn, f"{name}_derivative", [dy, known, dx], FORWARD[name])
    plain = [np.ascontiguousarray(a) for a in (dy, known)]
    assert bits(dx) == bits(applied(onednn, f"{name}_derivative", *plain, **FORWARD[name]))


@every_activation
def test_one_thread_or_more_give_equal_bits(onednn, name):
    x = 3 * normal(3, 50_001)
    rows = [applied(onednn, name, row, **FORWARD[name]) for row in x]
    assert bits(applied(onednn, name, x, **FORWARD[name])) == bits(np.array(rows))


@every_activation
def test_sources_that_lie_otherwise(onednn, name):
    """Derivatives of a concatenation's parts are pieces with gaps, and layouts may change between two layers."""
    x, dy = 3 * normal(2, 5, 7, 3), normal(2, 5, 7, 3, seed=4)
    known = known_to_derivative(name, x)
    y, dx = applied(onednn, name, x, **FORWARD[name]), applied(onednn, f"{name}_derivative", dy, known, **FORWARD[name])
    for lay in (channels_last, piece):
        got = channels_last(np.full_like(x, NAN))
        assert onednn.kernels[name].serves(specs_of((lay(x), got)), FORWARD[name])
        run(onednn, name, [lay(x), got], FORWARD[name])
        assert bits(got) == bits(y)
        got.fill(NAN)
        call = [lay(dy), channels_last(known), got]
        assert onednn.kernels[f"{name}_derivative"].serves(specs_of(call), FORWARD[name])
        run(onednn, f"{name}_derivative", call, FORWARD[name])
        assert bits(got) == bits(dx)


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
    gaps, double = piece(plain), plain.astype(np.float64)
    for x, y in ((gaps, gaps), (plain, gaps), (double, double), (double, plain), (plain, plain[:1])):
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


def test_softmax_of_large_scores_and_of_nan(onednn):
    x = np.array([[1e38, 1e38, -1e38], [-INF, 0, -INF], [NAN, 0, 1]], np.float32)
    y = applied(onednn, "softmax", x, axis=1)
    np.testing.assert_array_equal(y[:2], [[0.5, 0.5, 0], [0, 1, 0]])
    assert np.isnan(y[2]).any()
    assert np.isnan(applied(onednn, "softmax_derivative", np.ones_like(y), y, axis=1)[2]).all()


def test_other_rows_are_left_to_the_next_set(onednn):
    kernel, x, long = onednn.kernels["softmax"], normal(6, 5, 4, 3), normal(3, 4097)
    for y, axis in ((x, 1), (x, 0), (channels_last(x), 3), (long, 1), (x[..., :2], 3), (x.astype(np.float64), 3)):
        assert not kernel.serves(specs_of((y, y)), {"axis": axis})
        assert not onednn.kernels["softmax_derivative"].serves(specs_of((y, y, y)), {"axis": axis})
