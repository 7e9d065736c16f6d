"""Losses of the CUDA set: teams of all sizes, layouts, targets, infinities, wrong ids; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_values import INF, NAN, normal

from kernel_case import garbage, run
from layouts import PAIRS, c_order, channels_last, check, serves

Array = np.ndarray

#: Classes of a thread, parts of a warp, a warp, a block; one position a sample and several.
SHAPES = [(1, 1), (70, 2), (9, 10), (5, 33), (3, 2100), (3, 5, 7, 6), (2, 21, 1, 3), (300, 3, 1, 1), (2, 4, 5)]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
every_layout = pytest.mark.parametrize("lay", PAIRS.values(), ids=PAIRS)
#: Samples of one element, of a warp, of a block, of several blocks.
SAMPLES = [(70, 1), (5, 3, 7), (3, 600), (2, 17, 31, 67), (1, 70_001)]
#: A loss and its settings.
OVER_SAMPLES: dict[str, dict[str, Any]] = {"sigmoid_cross_entropy": {}, "huber": {"delta": 0.7}}
every_loss = pytest.mark.parametrize("name, settings", OVER_SAMPLES.items(), ids=OVER_SAMPLES)


def ids(x: Array, dtype: Any = np.int64) -> Array:
    return np.random.default_rng(5).integers(0, x.shape[1], (x.shape[0], *x.shape[2:])).astype(dtype)


def rows(x: Array, dtype: Any = np.float32) -> Array:
    """Weights, not normalised, or with integers some labels, at least one."""
    weights = np.random.default_rng(6).random(x.shape) * (3 if np.dtype(dtype).kind in "iu" else 1)
    weights[:, 0] = 2
    return weights.astype(dtype)


def check_both(kernels: Any, x: Array, target: Array, lay: Any = PAIRS["c order"]) -> None:
    """Cross entropy of softmax and its derivative."""
    one, other = lay
    target = other(target) if target.ndim == x.ndim else target
    losses = garbage(x.shape[:1], x.dtype)
    check(kernels, "softmax_cross_entropy", [one(x), target, losses, other(np.full_like(x, NAN))], {})
    p = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    p = (p / p.sum(1, keepdims=True)).astype(x.dtype)
    dlosses = normal(x.shape[0], dtype=x.dtype)
    dx = other(np.full_like(x, NAN))
    check(kernels, "softmax_cross_entropy_derivative", [dlosses, one(p), target, dx], {})


@every_shape
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sizes(cuda, shape, dtype):
    x = 3 * normal(*shape, dtype=dtype)
    for target in (ids(x), rows(x)):
        check_both(cuda, x, target)


@every_layout
def test_layouts(cuda, lay):
    for shape in ((3, 5, 4, 7), (2, 40, 3, 3)):
        x = 3 * normal(*shape)
        for target in (ids(x), rows(x)):
            check_both(cuda, x, target, lay)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_ids_of_any_integer_dtype(cuda, dtype):
    x = normal(6, 11, 2, 3)
    check_both(cuda, x, ids(x, dtype))
    check_both(cuda, x, np.repeat(ids(x, dtype), 2, axis=-1)[..., ::2])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float64"])
def test_rows_of_any_dtype(cuda, dtype):
    x = normal(6, 11, 2, 3)
    check_both(cuda, x, rows(x, dtype))


@pytest.mark.parametrize("lay", [channels_last, c_order])
def test_probabilities_may_take_the_place_of_scores(cuda, lay):
    for x in (3 * normal(4, 2100), 3 * normal(3, 21, 5, 4)):
        for target in (ids(x), rows(x)):
            scores, apart, losses = lay(x), lay(garbage(x.shape, x.dtype)), garbage(x.shape[:1], x.dtype)
            run(cuda, "softmax_cross_entropy", [scores, target, losses, apart], {})
            run(cuda, "softmax_cross_entropy", [scores, target, losses, scores], {})
            np.testing.assert_array_equal(scores, apart)


def test_large_scores_and_weights_do_not_overflow(cuda):
    x = np.array([[1e4, -1e4, 0], [-1e30, -1e30, -1e30], [80, 90, 100], [3e38, 0, -3e38]], np.float32)
    check_both(cuda, x[:3], np.array([0, 1, 2]))
    check_both(cuda, x[:3], np.full((3, 3), 1e38, np.float32))
    losses, p = garbage((4,), np.float32), garbage((4, 3), np.float32)
    run(cuda, "softmax_cross_entropy", [x, np.array([0, 0, 0, 0]), losses, p], {})
    np.testing.assert_allclose(losses, [0, np.log(3), np.log(1 + np.e**10 + np.e**20), 0], rtol=1e-6)
    np.testing.assert_array_equal(p[3], [1, 0, 0])


def test_infinite_scores_and_nan(cuda):
    x = np.array([[0, -INF, 1], [NAN, 0, 1], [INF, 0, 1], [0, 1, 2]], np.float32)
    losses, p = garbage((4,), np.float32), garbage((4, 3), np.float32)
    run(cuda, "softmax_cross_entropy", [x, np.array([1, 2, 2, 2]), losses, p], {})
    np.testing.assert_array_equal(p[0, 1], 0)
    np.testing.assert_array_equal(np.isnan(losses), [False, True, True, False])
    np.testing.assert_array_equal(np.isnan(p).any(axis=1), [False, True, True, False])
    assert losses[0] == INF


@pytest.mark.parametrize("wrong", [-1, 3, 1 << 40])
def test_ids_that_name_no_class_give_nan(cuda, wrong):
    x, target = normal(2, 3, 4), np.zeros((2, 4), np.int64)
    target[1, 2] = wrong
    losses, p, dx = garbage((2,), np.float32), garbage(x.shape, x.dtype), garbage(x.shape, x.dtype)
    run(cuda, "softmax_cross_entropy", [x, target, losses, p], {})
    run(cuda, "softmax_cross_entropy_derivative", [losses[:1].repeat(2), p, target, dx], {})
    np.testing.assert_array_equal(np.isnan(losses), [False, True])
    assert np.isfinite(p).all()
    nowhere = np.zeros(x.shape, bool)
    nowhere[1, :, 2] = True
    np.testing.assert_array_equal(np.isnan(dx), nowhere)


@every_loss
@pytest.mark.parametrize("shape", SAMPLES, ids=str)
def test_means_over_samples(cuda, name, settings, shape):
    for dtype in (np.float32, np.float64):
        x, target = 2 * normal(*shape, dtype=dtype), normal(*shape, seed=9, dtype=dtype)
        check(cuda, name, [x, target, garbage(shape[:1], dtype)], settings)
        dlosses, dx = normal(shape[0], dtype=dtype), garbage(shape, dtype)
        check(cuda, f"{name}_derivative", [dlosses, x, target, dx], settings)


@every_loss
@every_layout
def test_layouts_of_samples(cuda, name, settings, lay):
    for shape in ((3, 5, 4, 7), (2, 8, 3, 12)):
        x, target, dx = lay[0](normal(*shape)), lay[1](normal(*shape, seed=9)), lay[1](np.full(shape, NAN, np.float32))
        check(cuda, name, [x, target, garbage((2 * shape[0],), np.float32)[::2]], settings)
        check(cuda, f"{name}_derivative", [normal(2 * shape[0])[::2], x, target, dx], settings)


@pytest.mark.parametrize("dtype", ["bool", "int16", "float64"])
def test_targets_of_any_dtype(cuda, dtype):
    x, target = normal(3, 5, 7), (2 * normal(3, 5, 7, seed=9)).astype(dtype)
    for name, settings in OVER_SAMPLES.items():
        check(cuda, name, [x, target, garbage((3,), x.dtype)], settings)
        check(cuda, f"{name}_derivative", [normal(3), x, target, garbage(x.shape, x.dtype)], settings)
    check(cuda, "squared_error_derivative", [normal(3, 5, 7), x, target, garbage(x.shape, x.dtype)], {})
    if dtype != "bool":  # NumPy subtracts no bool from float in place
        check(cuda, "squared_error", [x, target, garbage(x.shape, x.dtype)], {})


@pytest.mark.parametrize("name, settings", [*OVER_SAMPLES.items(), ("squared_error", {})])
def test_nan_and_infinity(cuda, name, settings):
    x = np.array([[NAN], [INF], [-INF], [200], [-200], [0]], np.float32)
    target = np.full_like(x, 0.5)
    check(cuda, name, [x, target, garbage((6, 1) if name == "squared_error" else (6,), np.float32)], settings)
    check(
        cuda,
        f"{name}_derivative",
        [np.ones((6, 1) if name == "squared_error" else 6, np.float32), x, target, garbage((6, 1), np.float32)],
        settings,
    )


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
