"""Cross entropy of the oneDNN set: sizes and layouts that go different ways, NaN and infinity, ids out of range."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from test_onednn_linear import channels_last, normal

from kernel_case import garbage, run
from singa_lite.kernels.kernel_set import KernelSet, specs_of

#: Few scores; many; images of few and of many classes; a few of them.
SHAPES = [(64, 10), (5, 37), (130, 1000), (4, 5, 61, 90), (2, 150, 17, 19), (2, 3, 4, 5)]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def scores(shape: tuple[int, ...], scale: float = 3) -> np.ndarray:
    x = scale * normal(*shape)
    return channels_last(x) if x.ndim == 4 else x


def ids(shape: tuple[int, ...], dtype: Any = np.int64) -> np.ndarray:
    return np.random.default_rng(5).integers(0, shape[1], (shape[0], *shape[2:])).astype(dtype)


def forward(kernels: KernelSet, x: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """losses, p."""
    losses, p = garbage(x.shape[:1], np.float32), np.full_like(x, np.nan)
    assert kernels.kernels["softmax_cross_entropy"].serves(specs_of((x, target, losses, p)), {})
    run(kernels, "softmax_cross_entropy", (x, target, losses, p), {})
    return losses, p


def worked(x: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """losses, p in double precision by the formula."""
    z = x.astype(np.float64)
    z = z - z.max(1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
    own = np.take_along_axis(log_p, np.expand_dims(target.astype(np.int64), 1), 1)
    return -own.reshape(len(x), -1).mean(1), np.exp(log_p)


@every_shape
@pytest.mark.parametrize("dtype", ["int64", "uint8"])
def test_losses_and_probabilities(onednn, shape, dtype):
    x, target = scores(shape), ids(shape) % 251
    losses, p = forward(onednn, x, target.astype(dtype))
    wanted, wanted_p = worked(x, target)
    np.testing.assert_allclose(losses, wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(p, wanted_p, rtol=2e-5, atol=1e-7)
    run(onednn, "softmax_cross_entropy", (x, target, losses, x), {})
    np.testing.assert_array_equal(x, p)


@every_shape
def test_derivative(onednn, shape):
    dlosses, p, target = normal(shape[0], seed=8), scores(shape), ids(shape)
    p[...] = worked(p, target)[1]
    share = p - (np.expand_dims(target, 1) == np.arange(shape[1]).reshape(-1, *(1,) * (p.ndim - 2)))
    wanted = dlosses.reshape(-1, *(1,) * (p.ndim - 1)) / np.prod(shape[2:]) * share
    dx = np.full_like(p, np.nan)
    assert onednn.kernels["softmax_cross_entropy_derivative"].serves(specs_of((dlosses, p, target, dx)), {})
    run(onednn, "softmax_cross_entropy_derivative", (dlosses, p, target, dx), {})
    np.testing.assert_allclose(dx, wanted, rtol=2e-6, atol=1e-9)
    run(onednn, "softmax_cross_entropy_derivative", (dlosses, p, target, p), {})
    np.testing.assert_array_equal(p, dx)


@every_shape
def test_large_scores_do_not_overflow(onednn, shape):
    x, target = scores(shape, scale=2000), ids(shape)
    wanted, wanted_p = worked(x, target)
    losses, p = forward(onednn, x, target)
    np.testing.assert_allclose(losses, wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(p, wanted_p, atol=1e-6)


@pytest.mark.parametrize("shape", [(64, 10), (130, 1000), (4, 5, 61, 90), (2, 150, 17, 19)], ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=["nan", "infinity"])
def test_nan_and_infinity_make_their_row_nan_and_no_other(onednn, shape, bad):
    x, target, rest = scores(shape), ids(shape), (0,) * (len(shape) - 2)
    x[(1, shape[1] - 1, *rest)] = bad
    x[(1, 0, *rest)] = -np.inf
    target[(1, *rest)] = 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # infinity less infinity
        losses, p = forward(onednn, x, target)
    wanted = np.zeros(shape, bool)
    wanted[(1, slice(None), *rest)] = True
    np.testing.assert_array_equal(np.isnan(p), wanted)
    np.testing.assert_array_equal(np.isnan(losses), np.arange(shape[0]) == 1)


@pytest.mark.parametrize("shape", [(64, 10), (130, 1000), (4, 5, 61, 90)], ids=str)
def test_classes_ruled_out_by_minus_infinity_have_no_probability(onednn, shape):
    x = scores(shape)
    x[:, 3] = -np.inf
    losses, p = forward(onednn, x, np.zeros_like(ids(shape)))
    assert np.all(p[:, 3] == 0)
    assert np.isfinite(losses).all()
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("wrong", [-1, 10])
def test_ids_that_name_no_class(onednn, wrong):
    target = ids((64, 10))
    target[7] = wrong
    with pytest.raises(IndexError, match=rf"class ids must be in 0\.\.9, received {min(wrong, 0)}\.\.{max(wrong, 9)}"):
        forward(onednn, scores((64, 10)), target)


def test_losses_that_are_not_served(onednn):
    kernel, x, target = onednn.kernels["softmax_cross_entropy"], scores((4, 5, 61, 90)), ids((4, 5, 61, 90))
    losses = np.empty(4, np.float32)
    assert kernel.serves(specs_of((x, target, losses, x)), {})
    assert not kernel.serves(specs_of((x, x, losses, x)), {}), "a target of rows"
    assert not kernel.serves(specs_of((x, target.astype(np.uint64), losses, x)), {}), "ids that NumPy cannot add"
    assert not kernel.serves(specs_of((x, target[:, ::-1], losses, x)), {}), "a target that lies otherwise"
    plain = np.ascontiguousarray(x)
    assert not kernel.serves(specs_of((plain, target, losses, plain)), {}), "classes that do not lie innermost"
    double = x.astype(np.float64)
    assert not kernel.serves(specs_of((double, target, losses, double)), {}), "double precision"
