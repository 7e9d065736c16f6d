"""Normalizations by every kernel set: tiny numbers, NaN and infinities; `test_exact_sums.py` has far and equal ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from every_set import ON_CPU, every_own_set, every_set
from kernel_case import garbage, run
from layouts import channels_last, check
from singa_lite.kernels.kernel_set import KernelSet

Array = np.ndarray


#: Settings of `batch_norm`.
FORWARD = {"momentum": 0.1, "epsilon": 1e-3}


def normal(*shape: int, seed: int = 1, dtype: Any = np.float32) -> Array:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def positive(*shape: int, seed: int = 1, dtype: Any = np.float32) -> Array:
    return np.asarray(np.random.default_rng(seed).uniform(0.5, 2, shape)).astype(dtype)


def vectors(channels: int, count: int, dtype: Any = np.float32) -> list[Array]:
    """Vectors of channels, all positive."""
    return [positive(channels, seed=seed, dtype=dtype) for seed in range(count)]


def empty(*shape: int, dtype: Any = np.float32) -> Array:
    return garbage(shape, dtype)


def forward(kernels: KernelSet, x: Array, epsilon: float = 1e-5) -> dict[str, Array]:
    """Results of batch_norm with gamma 1, beta 0, and running statistics that begin at 0."""
    c = x.shape[1]
    names = "running_mean", "running_var", "y", "mean", "inv_std"
    results = [np.zeros(c, x.dtype), np.zeros(c, x.dtype), np.empty_like(x), empty(c), empty(c)]
    ones, zeros = np.ones(c, x.dtype), np.zeros(c, x.dtype)
    with np.errstate(invalid="ignore"):  # NumPy warns of what infinity less infinity is
        run(kernels, "batch_norm", [x, ones, zeros, *results], {"momentum": 1.0, "epsilon": epsilon})
    return dict(zip(names, results, strict=True))


@every_own_set
def test_batch_norm_of_tiny_numbers(kernels: KernelSet):
    x = channels_last(3e-16 * normal(4, 4, 9, 7))
    got = forward(kernels, x, epsilon=1e-36)
    np.testing.assert_allclose(got["inv_std"], 1 / x.astype(np.float64).std((0, 2, 3)), rtol=1e-4)


@every_own_set
def test_one_value_a_channel(kernels: KernelSet):
    got = forward(kernels, np.array([[3.0, -5.0, 7.0]], np.float32), epsilon=0.25)
    np.testing.assert_array_equal(got["mean"], [3, -5, 7])
    np.testing.assert_array_equal(got["inv_std"], [2, 2, 2])
    np.testing.assert_array_equal(got["running_var"], [0, 0, 0])


@every_set
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(3, 16, 5, 7), (3, 5, 6, 7), (32, 64, 28, 28)], ids=str)
@pytest.mark.parametrize("index", [(0, 3, 0, 0), (2, 3, 4, 6)])
def test_what_is_not_finite_spoils_its_channel_alone(kernels: KernelSet, value, shape, index):
    if kernels not in ON_CPU:  # each thread of a stand-in takes microseconds
        shape = min(shape, (8, 5, 28, 28))
    x = channels_last(normal(*shape))
    x[index] = value
    results = forward(kernels, x)
    for name, result in results.items():
        per_channel = np.moveaxis(result, min(1, result.ndim - 1), 0).reshape(shape[1], -1)
        assert not np.isfinite(per_channel[3]).any()
        assert name.endswith("mean") or np.isnan(per_channel[3]).all()
        assert np.isfinite(np.delete(per_channel, 3, axis=0)).all()


@every_own_set
def test_what_is_not_finite_spoils_its_element_alone_in_inference(kernels: KernelSet):
    x = channels_last(normal(3, 16, 5, 7))
    x[1, 3, 2, 2], x[2, 4, 0, 0] = np.nan, -np.inf
    check(kernels, "batch_norm_inference", [x, *vectors(16, 4), channels_last(empty(*x.shape))], {"epsilon": 1e-3})


@every_set
@pytest.mark.parametrize("features", [40, 5001])
def test_nan_spoils_its_row_alone(kernels: KernelSet, features):
    x, y, mean, inv_std = 4000 + normal(9, features), empty(9, features), empty(9), empty(9)
    x[4, 7] = np.nan
    run(kernels, "layer_norm", [x, *vectors(features, 2), y, mean, inv_std], {"epsilon": 1e-5})
    for result in (y, mean, inv_std):
        assert np.isnan(result[4]).all()
        assert np.isfinite(np.delete(result, 4, axis=0)).all()


@every_own_set
def test_l2_norm_of_numbers_whose_squares_overflow(kernels: KernelSet):
    x, y, norm = np.array([[3e30, 4e30], [3e-30, 4e-30]], np.float32), empty(2, 2), empty(2)
    run(kernels, "l2_norm", [x, y, norm], {"epsilon": 0.0})
    np.testing.assert_allclose(y, [[0.6, 0.8], [0.6, 0.8]], rtol=1e-6)
    np.testing.assert_allclose(norm, [5e30, 5e-30], rtol=1e-6)


@every_own_set
@pytest.mark.parametrize("lay", [np.ascontiguousarray, channels_last], ids=["C order", "channels last"])
@pytest.mark.parametrize("shape", [(3, 16, 5, 7), (4, 5, 6, 9), (7, 3), (1, 2, 1, 1)], ids=str)
def test_batch_normalize_gives_the_bits_of_batch_norm_again(kernels: KernelSet, shape, lay):
    """In place of x too, as a plan may write it."""
    if len(shape) == 2:
        lay = np.ascontiguousarray
    x, c = lay(7 + 3 * normal(*shape)), shape[1]
    gamma, beta, running_mean, running_var = vectors(c, 4)
    y, mean, inv_std, again = np.empty_like(x), empty(c), empty(c), np.empty_like(x)
    run(kernels, "batch_norm", [x, gamma, -beta, running_mean, running_var, y, mean, inv_std], FORWARD)
    run(kernels, "batch_normalize", [x, gamma, -beta, mean, inv_std, again], {})
    np.testing.assert_array_equal(again.view(np.int32), y.view(np.int32))
    run(kernels, "batch_normalize", [x, gamma, -beta, mean, inv_std, x], {})
    np.testing.assert_array_equal(x.view(np.int32), y.view(np.int32))
