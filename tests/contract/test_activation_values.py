"""Activations and softmax by every kernel set, to the last digits; `kernel_edges.py` has NaN, infinities and kinks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from every_set import ON_CPU, every_own_set, every_set
from kernel_case import garbage, run
from singa_lite.kernels.kernel_set import KernelSet
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
    "gelu_tanh": {},
    "silu": {},
    "softplus": {},
}
#: Activations whose derivative takes the input; that of the others takes the result.
FROM_INPUT = {"gelu", "gelu_tanh", "silu"}
#: What of the largest result a set may be off by: about 3 roundings, and 8. The library's 1 + tanh cancels.
DIGITS = {"onednn": 4e-7}
LESS_EXACT = {("onednn", "gelu_tanh_derivative"): 6e-7}
OTHER_DIGITS = 8 * float(np.finfo(np.float32).eps)
#: Sets whose softmax leaves numbers beside NaN in such a line; its derivative then is NaN throughout.
NAN_HERE_AND_THERE = {"onednn"}

every_activation = pytest.mark.parametrize("name", FORWARD)


def normal(*shape: int, seed: int = 3, dtype: Any = np.float32) -> Array:
    """Normal numbers, the same at each call."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def applied(kernels: KernelSet, name: str, *inputs: Array, **settings: Any) -> Array:
    y = garbage(inputs[0].shape, inputs[0].dtype)
    run(kernels, name, [*inputs, y], settings)
    return y


def known_to_derivative(name: str, x: Array) -> Array:
    return x if name in FROM_INPUT else applied(NUMPY, name, x.astype(np.float64), **FORWARD[name]).astype(x.dtype)


@every_own_set
@every_activation
@pytest.mark.parametrize("bound", [0.5, 5, 30, 100])
def test_values_and_derivatives_to_the_last_digits(kernels: KernelSet, name, bound):
    x = np.linspace(-bound, bound, 20011 if kernels in ON_CPU else 2011, dtype=np.float32)
    dy, known = normal(x.size), known_to_derivative(name, x)
    for kernel, inputs in ((name, [x]), (f"{name}_derivative", [dy, known])):
        exact = applied(NUMPY, kernel, *(a.astype(np.float64) for a in inputs), **FORWARD[name])
        digits = LESS_EXACT.get((kernels.name, kernel), DIGITS.get(kernels.name, OTHER_DIGITS))
        atol = digits * np.abs(exact).max()
        np.testing.assert_allclose(applied(kernels, kernel, *inputs, **FORWARD[name]), exact, rtol=0, atol=atol)


@every_set
@pytest.mark.parametrize("length", [3, 7, 1500])
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_does_not_overflow(kernels: KernelSet, length, axis):
    """Large scores, one above infinitely small ones, and wide ranges."""
    lines = np.full((4, length), 0.5, np.float32)
    lines[0] = np.resize(np.float32([1e38, 1e38, -1e38]), length)
    lines[1], lines[1, -1] = -np.inf, 0.5
    lines[2] = np.linspace(-200, 200, length)
    lines[3] = np.linspace(-300, -200, length)
    x = lines if axis else np.ascontiguousarray(lines.T)
    got = applied(kernels, "softmax", x, axis=axis)
    powers = np.exp(lines.astype(np.float64) - lines.max(axis=1, keepdims=True))
    wanted = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(got if axis else got.T, wanted, rtol=0, atol=1e-6)
    assert (got if axis else got.T)[1].tolist() == [0] * (length - 1) + [1]


@every_set
@pytest.mark.parametrize("length", [3, 7, 1500])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_line_without_a_largest_number_is_nan_alone(kernels: KernelSet, length, axis):
    """All scores minus infinity, one infinite, one NaN."""
    lines = normal(4, length)
    lines[0], lines[1, 1], lines[2, -1] = -np.inf, np.inf, np.nan
    x = lines if axis else np.ascontiguousarray(lines.T)
    with np.errstate(invalid="ignore"):  # NumPy warns of infinity less infinity
        y = applied(kernels, "softmax", x, axis=axis)
    dx = applied(kernels, "softmax_derivative", np.ones_like(y), y, axis=axis)
    for result in (y, dx):
        spoilt = np.isnan(result if axis else result.T)
        assert spoilt[:3].all() or (kernels.name in NAN_HERE_AND_THERE and result is y)
        assert spoilt[:3].any(axis=1).all() and not spoilt[3].any()
