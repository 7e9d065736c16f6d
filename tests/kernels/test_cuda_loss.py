"""Losses of the CUDA set: samples of all sizes, targets of other dtypes, halves; the contract shows the rest."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_values import normal

from kernel_case import garbage, run
from layouts import check, serves
from test_loss_values import OVER_SAMPLES, every_loss, ids, rows

Array = np.ndarray

#: Samples of one element, of a warp, of a block, of several blocks.
SAMPLES = [(70, 1), (5, 3, 7), (3, 600), (2, 17, 31, 67), (1, 70_001)]


@every_loss
@pytest.mark.parametrize("shape", SAMPLES, ids=str)
def test_means_over_samples(cuda, name, settings, shape):
    for dtype in (np.float32, np.float64):
        x, target = 2 * normal(*shape, dtype=dtype), normal(*shape, seed=9, dtype=dtype)
        check(cuda, name, [x, target, garbage(shape[:1], dtype)], settings)
        dlosses, dx = normal(shape[0], dtype=dtype), garbage(shape, dtype)
        check(cuda, f"{name}_derivative", [dlosses, x, target, dx], settings)


@pytest.mark.parametrize("dtype", ["bool", "int16", "float64"])
def test_targets_of_any_dtype(cuda, dtype):
    x, target = normal(3, 5, 7), (2 * normal(3, 5, 7, seed=9)).astype(dtype)
    for name, settings in OVER_SAMPLES.items():
        check(cuda, name, [x, target, garbage((3,), x.dtype)], settings)
        check(cuda, f"{name}_derivative", [normal(3), x, target, garbage(x.shape, x.dtype)], settings)
    check(cuda, "squared_error_derivative", [normal(3, 5, 7), x, target, garbage(x.shape, x.dtype)], {})
    if dtype != "bool":  # NumPy subtracts no bool from float in place
        check(cuda, "squared_error", [x, target, garbage(x.shape, x.dtype)], {})


def test_half_is_computed_in_single_precision(cuda):
    x = normal(3, 5, 4, 7, dtype=np.float16)
    losses, p = garbage((3,), np.float16), garbage(x.shape, np.float16)
    for target in (ids(x), rows(x)):
        run(cuda, "softmax_cross_entropy", [x, target, losses, p], {})
        z = x.astype(np.float64)
        log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
        weights = target / target.sum(1, keepdims=True) if target.ndim == 4 else np.eye(5)[target].transpose(0, 3, 1, 2)
        np.testing.assert_allclose(losses, -(weights * log_p).sum(1).mean((1, 2)), rtol=2**-10)
        np.testing.assert_allclose(p, np.exp(log_p), rtol=2**-10, atol=2**-24)
    run(cuda, "huber", [x, np.zeros_like(x), losses], {"delta": 1.0})
    r = np.abs(x.astype(np.float64))
    np.testing.assert_allclose(losses, np.where(r <= 1, r * r / 2, r - 0.5).mean((1, 2, 3)), rtol=2**-10)


def test_what_is_left_to_others(cuda):
    x, losses = normal(3, 5), garbage((3,), np.float32)
    assert not serves(cuda, "softmax_cross_entropy", [x, np.zeros(3, np.float32), losses, x], {}), "ids of floats"
    assert not serves(cuda, "softmax_cross_entropy", [x.astype(np.int32), ids(x), losses, x], {})
    assert not serves(cuda, "huber", [x, x, losses.astype(np.float64)], {"delta": 1.0})
