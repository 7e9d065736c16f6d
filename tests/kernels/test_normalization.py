"""Normalizations against their formulas in float64, and their derivatives against central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import skips
from kernel_case import garbage, run
from singa_lite.kernels.numpy_kernels import NUMPY

Array = np.ndarray

CHANNEL_SHAPES = [(9, 4), (3, 4, 5), (2, 4, 5, 3), (6, 1, 5)]
every_shape = pytest.mark.parametrize("shape", CHANNEL_SHAPES, ids=str)

#: (rows, features) of layer normalization.
ROWS = [((3, 5), (7,)), ((4,), (5, 3, 2)), ((), (6, 7))]
every_row = pytest.mark.parametrize("rows, features", ROWS, ids=str)


def normal(*shape: int, seed: int = 1) -> Array:
    """Normal float64 numbers."""
    return np.asarray(np.random.default_rng(seed).standard_normal(shape))


def per_channel(vector: Array, x: Array) -> Array:
    """(c,) as (c, 1, ...)."""
    return vector.reshape(-1, *(1,) * (x.ndim - 2))


def other_axes(x: Array) -> tuple[int, ...]:
    """All axes but the channels'."""
    return (0, *range(2, x.ndim))


def call(name: str, inputs: list[Array], outputs: list[tuple[int, ...]], **settings: Any) -> list[Array]:
    """Outputs of those shapes from a kernel whose inputs come first."""
    results = [garbage(shape, inputs[0].dtype) for shape in outputs]
    run(NUMPY, name, [*inputs, *results], settings)
    return results


def batch_norm(x: Array, gamma: Array, beta: Array, epsilon: float = 1e-3) -> list[Array]:
    """y, mean, inv_std, new running mean and variance; these begin at 0.5 and 2."""
    running = np.full(x.shape[1], 0.5, x.dtype), np.full(x.shape[1], 2, x.dtype)
    shapes = x.shape, x.shape[1:2], x.shape[1:2]
    results = call("batch_norm", [x, gamma, beta, *running], list(shapes), momentum=0.1, epsilon=epsilon)
    return [*results, *running]


def batch_formula(x: Array, gamma: Array, beta: Array, epsilon: float = 1e-3) -> Array:
    """y, from NumPy's mean and var."""
    mean, variance = x.mean(other_axes(x), keepdims=True), x.var(other_axes(x), keepdims=True)
    return per_channel(gamma, x) * (x - mean) / np.sqrt(variance + epsilon) + per_channel(beta, x)


def layer_formula(x: Array, gamma: Array, beta: Array, epsilon: float = 1e-3) -> Array:
    """y, from NumPy's mean and var."""
    axes = tuple(range(x.ndim - gamma.ndim, x.ndim))
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return gamma * (x - mean) / np.sqrt(variance + epsilon) + beta


def differences(function: Callable[[Array], Array], x: Array, dy: Array) -> Array:
    """Derivative of sum(dy * function(x)) by x, by central differences."""
    dx, step = np.zeros(x.shape), 1e-5
    for at in np.ndindex(*x.shape):
        left, right = x.copy(), x.copy()
        left[at] -= step
        right[at] += step
        dx[at] = np.sum(dy * (function(right) - function(left))) / (2 * step)
    return dx


def assert_close(got: Array, wanted: Any, tolerance: float = 1e-12) -> None:
    """Equal within the tolerance, relative to the larger of 1 and the number."""
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@every_shape
def test_batch_norm_equals_its_formula(shape):
    x, gamma, beta = 3 + 2 * normal(*shape), normal(shape[1], seed=2), normal(shape[1], seed=3)
    y, mean, inv_std, running_mean, running_var = batch_norm(x, gamma, beta)
    assert_close(y, batch_formula(x, gamma, beta))
    assert_close(mean, x.mean(other_axes(x)))
    assert_close(inv_std, 1 / np.sqrt(x.var(other_axes(x)) + 1e-3))
    assert_close(running_mean, 0.9 * 0.5 + 0.1 * x.mean(other_axes(x)))
    assert_close(running_var, 0.9 * 2 + 0.1 * x.var(other_axes(x), ddof=1))


def test_batch_norm_of_an_empty_batch_leaves_the_running_statistics():
    y, mean, inv_std, running_mean, running_var = batch_norm(np.empty((0, 3, 2)), np.ones(3), np.ones(3))
    assert y.shape == (0, 3, 2)
    assert np.isfinite(mean).all() and np.isfinite(inv_std).all()
    assert_close(running_mean, [0.5] * 3)
    assert_close(running_var, [2] * 3)


@every_shape
def test_batch_norm_inference_equals_its_formula(shape):
    x, gamma, beta, mean = normal(*shape), *(normal(shape[1], seed=seed) for seed in (2, 3, 4))
    variance = normal(shape[1], seed=5) ** 2
    (y,) = call("batch_norm_inference", [x, gamma, beta, mean, variance], [shape], epsilon=1e-3)
    factor = per_channel(gamma / np.sqrt(variance + 1e-3), x)
    assert_close(y, factor * (x - per_channel(mean, x)) + per_channel(beta, x))


@every_shape
def test_batch_norm_derivatives_equal_differences(shape):
    x, dy = 3 + 2 * normal(*shape), normal(*shape, seed=6)
    gamma, beta = normal(shape[1], seed=2), normal(shape[1], seed=3)
    _, mean, inv_std, *_ = batch_norm(x, gamma, beta)
    shapes = [shape, shape[1:2], shape[1:2]]
    dx, dgamma, dbeta = call("batch_norm_derivative", [dy, x, gamma, mean, inv_std], shapes)
    assert_close(dx, differences(lambda x: batch_formula(x, gamma, beta), x, dy), 1e-7)
    assert_close(dgamma, differences(lambda gamma: batch_formula(x, gamma, beta), gamma, dy), 1e-7)
    assert_close(dbeta, differences(lambda beta: batch_formula(x, gamma, beta), beta, dy), 1e-7)
    alone = call("batch_norm_gradient", [dy, x, mean, inv_std], shapes[1:])
    np.testing.assert_array_equal(alone, [dgamma, dbeta])


@every_row
def test_layer_norm_equals_its_formula(rows, features):
    x, gamma, beta = 3 + 2 * normal(*rows, *features), normal(*features, seed=2), normal(*features, seed=3)
    y, mean, inv_std = call("layer_norm", [x, gamma, beta], [x.shape, rows, rows], epsilon=1e-3)
    axes = tuple(range(len(rows), x.ndim))
    assert_close(y, layer_formula(x, gamma, beta))
    assert_close(mean, x.mean(axes))
    assert_close(inv_std, 1 / np.sqrt(x.var(axes) + 1e-3))


def test_layer_norm_of_many_rows_and_of_long_rows_equals_its_formula():
    for shape, features in (((301, 107), (107,)), ((3, 211, 103), (211, 103))):
        x, gamma, beta = normal(*shape), normal(*features, seed=2), normal(*features, seed=3)
        rows = shape[: len(shape) - len(features)]
        y, _, _ = call("layer_norm", [x, gamma, beta], [shape, rows, rows], epsilon=1e-3)
        assert_close(y, layer_formula(x, gamma, beta))


@every_row
def test_layer_norm_derivatives_equal_differences(rows, features):
    x, dy = 3 + 2 * normal(*rows, *features), normal(*rows, *features, seed=6)
    gamma, beta = normal(*features, seed=2), normal(*features, seed=3)
    _, mean, inv_std = call("layer_norm", [x, gamma, beta], [x.shape, rows, rows], epsilon=1e-3)
    (dx,) = call("layer_norm_derivative", [dy, x, gamma, mean, inv_std], [x.shape])
    dgamma, dbeta = call("layer_norm_gradient", [dy, x, mean, inv_std], [features, features])
    assert_close(dx, differences(lambda x: layer_formula(x, gamma, beta), x, dy), 1e-7)
    assert_close(dgamma, differences(lambda gamma: layer_formula(x, gamma, beta), gamma, dy), 1e-7)
    assert_close(dbeta, differences(lambda beta: layer_formula(x, gamma, beta), beta, dy), 1e-7)


def response_scale(x: Array, size: int, alpha: float, k: float) -> Array:
    """lrn's scale, channel by channel."""
    scale = np.empty(x.shape)
    for c in range(x.shape[1]):
        neighbours = x[:, max(0, c - size // 2) : c + size // 2 + 1]
        scale[:, c] = k + alpha / size * np.sum(neighbours**2, axis=1)
    return scale


@pytest.mark.parametrize("size", [1, 3, 5, 11])
@every_shape
def test_lrn_and_its_derivative_equal_formula_and_differences(shape, size):
    settings = {"size": size, "alpha": 0.7, "beta": 0.75}
    x, dy = normal(*shape), normal(*shape, seed=6)
    y, scale = call("lrn", [x], [shape, shape], k=1.5, **settings)
    wanted = response_scale(x, size, 0.7, 1.5)
    assert_close(scale, wanted)
    assert_close(y, x * wanted**-0.75)
    (dx,) = call("lrn_derivative", [dy, x, scale], [shape], **settings)
    assert_close(dx, differences(lambda x: x * response_scale(x, size, 0.7, 1.5) ** -0.75, x, dy), 1e-8)


def l2_formula(x: Array) -> Array:
    """y of l2_norm."""
    return x / np.sqrt(np.sum(x**2, axis=tuple(range(1, x.ndim)), keepdims=True) + 1e-3)


@every_shape
def test_l2_norm_and_its_derivative_equal_formula_and_differences(shape):
    x, dy = normal(*shape), normal(*shape, seed=6)
    y, norm = call("l2_norm", [x], [shape, shape[:1]], epsilon=1e-3)
    assert_close(y, l2_formula(x))
    assert_close(norm, np.sqrt(np.sum(x**2, axis=tuple(range(1, x.ndim))) + 1e-3))
    (dx,) = call("l2_norm_derivative", [dy, y, norm], [shape])
    assert_close(dx, differences(l2_formula, x, dy), 1e-8)


@pytest.mark.peer
def test_batch_norm_and_lrn_equal_pytorch():
    torch = skips.library("torch")
    x, gamma, beta = 3 + 2 * normal(5, 4, 3, 2), normal(4, seed=2), normal(4, seed=3)
    running = torch.full((4,), 0.5, dtype=torch.float64), torch.full((4,), 2.0, dtype=torch.float64)
    wanted = torch.nn.functional.batch_norm(
        torch.tensor(x), *running, torch.tensor(gamma), torch.tensor(beta), True, 0.1, 1e-3
    )
    y, _, _, running_mean, running_var = batch_norm(x, gamma, beta)
    assert_close(y, wanted.numpy())
    assert_close(running_mean, running[0].numpy())
    assert_close(running_var, running[1].numpy())
    (y, _) = call("lrn", [x], [x.shape, x.shape], size=3, alpha=0.7, beta=0.75, k=1.5)
    assert_close(y, torch.nn.functional.local_response_norm(torch.tensor(x), 3, 0.7, 0.75, 1.5).numpy())
