"""Activations of the CUDA set: layouts, digits, NaN, infinity and kinks, halves; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_values import INF, NAN, normal

from kernel_case import garbage, run
from layouts import PAIRS, check
from singa_lite.kernels.cuda_kernels import activation, routine
from singa_lite.kernels.kernel_set import Form, KernelSet
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
    "softplus": {},
}
#: Activations whose derivative takes the input; that of the others takes the result.
FROM_INPUT = {"gelu", "silu"}
#: A pack of four, one less, one more, and a little more than a block takes.
SIZES = [1, 3, 4, 5, 1024, 1031]

every_activation = pytest.mark.parametrize("name", FORWARD)


def applied(kernels: KernelSet, name: str, *inputs: Array, **settings: Any) -> Array:
    y = garbage(inputs[0].shape, inputs[0].dtype)
    run(kernels, name, [*inputs, y], settings)
    return y


def known_to_derivative(name: str, x: Array) -> Array:
    return x if name in FROM_INPUT else applied(NUMPY, name, x.astype(np.float64), **FORWARD[name]).astype(x.dtype)


def check_both(kernels: KernelSet, name: str, x: Array, lay: Any = PAIRS["c order"], roundings: int = 8) -> None:
    """The activation of x and its derivative."""
    one, other = lay
    dy = normal(*x.shape, seed=4, dtype=x.dtype)
    known = known_to_derivative(name, x)
    check(kernels, name, [one(x), other(np.full_like(x, NAN))], FORWARD[name], roundings)
    call = [one(dy), other(known), one(np.full_like(x, NAN))]
    check(kernels, f"{name}_derivative", call, FORWARD[name], roundings)


@every_activation
@pytest.mark.parametrize("size", SIZES)
def test_sizes(cuda, name, size):
    check_both(cuda, name, 4 * normal(size, 1))


@every_activation
@pytest.mark.parametrize("lay", PAIRS.values(), ids=PAIRS)
def test_layouts(cuda, name, lay):
    for shape in ((2, 5, 7, 3), (3, 8, 4, 12)):
        check_both(cuda, name, 3 * normal(*shape), lay)


@every_activation
@pytest.mark.parametrize("bound", [0.5, 5, 30, 100])
def test_digits(cuda, name, bound):
    check_both(cuda, name, np.linspace(-bound, bound, 2011, dtype=np.float32).reshape(1, -1))


@every_activation
@pytest.mark.parametrize("lay", [PAIRS["channels last"], PAIRS["mixed"]], ids=["packs", "elements"])
def test_half(cuda, name, lay):
    check_both(cuda, name, normal(2, 16, 3, 5, dtype=np.float16), lay, roundings=2**13)


@pytest.mark.parametrize("name", ["gelu", "gelu_derivative"])
def test_the_tail_of_gelu_keeps_its_digits(cuda, name):
    """1 + erf(x) would have none left at -9."""
    for dtype, low, digits in (np.float64, -35, 1e-12), (np.float32, -11, 2e-5):
        x = np.linspace(low, -2, 501, dtype=dtype)
        inputs = [x] if name == "gelu" else [np.ones_like(x), x]
        exact = applied(NUMPY, name, *(a.astype(np.float64) for a in inputs))
        np.testing.assert_allclose(applied(cuda, name, *inputs), exact, rtol=digits)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "name, wanted",
    [
        ("relu", [NAN, INF, 0, 0, 0, 0]),
        ("relu6", [NAN, 6, 0, 0, 0, 0]),
        ("leaky_relu", [NAN, INF, -INF, 0, 0, -1]),
        ("elu", [NAN, INF, -0.7, 0, 0, 0.7 * np.expm1(-10)]),
        ("sigmoid", [NAN, 1, 0, 0.5, 0.5, 1 / (1 + np.exp(10))]),
        ("tanh", [NAN, 1, -1, 0, 0, np.tanh(-10)]),
        ("gelu", [NAN, INF, 0, 0, 0, 0]),
        ("silu", [NAN, INF, NAN, 0, 0, -10 / (1 + np.exp(10))]),
        ("softplus", [NAN, INF, 0, np.log(2), np.log(2), np.log1p(np.exp(-10))]),
    ],
)
def test_nan_and_infinity(cuda, name, wanted, dtype):
    x = np.resize(np.array([NAN, INF, -INF, 0, -0.0, -10], dtype), 83)
    np.testing.assert_allclose(applied(cuda, name, x, **FORWARD[name]), np.resize(wanted, 83), rtol=1e-6, atol=1e-20)


@pytest.mark.parametrize(
    "name, known, slopes",
    [
        ("relu", [0, -0.0, 1e-30, 3, 7, NAN], [0, 0, 1, 1, 1, 0]),
        ("relu6", [0, 6, 1e-30, 3, 5.9999995, NAN], [0, 0, 1, 1, 1, 0]),
        ("leaky_relu", [0, -0.0, 1e-30, 3, -2, INF], [0.1, 0.1, 1, 1, 0.1, 1]),
        ("elu", [0, -0.0, 1e-30, 3, -0.5, NAN], [0.7, 0.7, 1, 1, 0.2, NAN]),
        ("gelu", [0, INF, -INF, 50, -50, NAN], [0.5, 1, 0, 1, 0, NAN]),
        ("silu", [0, 1000, -80, 90, -0.0, NAN], [0.5, 1, 0, 1, 0.5, NAN]),
        ("softplus", [0, INF, np.log(2), 90, 1e-30, NAN], [0, 1, 0.5, 1, 1e-30, NAN]),
    ],
)
def test_derivatives_at_kinks_and_far_out(cuda, name, known, slopes):
    dx = applied(
        cuda, f"{name}_derivative", np.full(83, 2.0, np.float32), np.resize(np.float32(known), 83), **FORWARD[name]
    )
    np.testing.assert_allclose(dx, 2 * np.resize(slopes, 83), rtol=1e-6, atol=1e-20)


@pytest.mark.parametrize("name", ["relu", "relu6"])
def test_what_is_cut_off_is_zero_whatever_it_held(cuda, name):
    dy = np.resize(np.array([NAN, INF, 1], np.float32), 83)
    np.testing.assert_array_equal(applied(cuda, f"{name}_derivative", dy, np.zeros_like(dy)), np.zeros_like(dy))


def test_more_elements_than_threads(cuda, monkeypatch):
    monkeypatch.setattr(routine, "MOST_BLOCKS", 2)
    for lay in PAIRS.values():
        check_both(cuda, "silu", normal(3, 7, 19, 31), lay)


def test_only_floats_of_one_dtype_are_served():
    forms = {dtype: Form((5,), np.dtype(dtype), (np.dtype(dtype).itemsize,)) for dtype in ("f2", "f4", "f8", "i4")}
    for dtype, form in forms.items():
        assert (activation.relu(form, form) is not None) == (dtype != "i4")
    assert activation.relu(forms["f4"], forms["f8"]) is None
