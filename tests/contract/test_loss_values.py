"""Losses by every kernel set: sizes, layouts, targets of all kinds, NaN and infinities, ids that name no class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from every_set import ON_CPU, WITHOUT_LIBRARIES, every_own_set, every_set, parameter
from kernel_case import garbage, run
from layouts import c_order, channels_last, check
from singa_lite.kernels.kernel_set import KernelSet
from test_activation_values import normal

Array = np.ndarray
NAN, INF = np.nan, np.inf

#: Few scores; images of a few classes; classes of a thread, parts of a warp, a warp, a block; one position and several.
SHAPES = [(64, 10), (5, 37), (2, 3, 4, 5), (1, 1), (70, 2), (9, 10), (5, 33), (3, 2100), (3, 5, 7, 6), (2, 21, 1, 3)]
SHAPES += [(300, 3, 1, 1), (2, 4, 5)]
#: Many scores, images of few and of many classes; smaller where each thread of a stand-in takes microseconds.
LARGE = [(130, 1000), (4, 5, 61, 90), (2, 150, 17, 19)]
LESS_LARGE = [(9, 1000), (2, 5, 13, 9), (2, 150, 3, 5)]


def of_each(*further: tuple[int, ...]) -> Any:
    """Every set with large shapes and further ones."""
    calls = [(s, shape) for s in WITHOUT_LIBRARIES for shape in (*(LARGE if s in ON_CPU else LESS_LARGE), *further)]
    return pytest.mark.parametrize("kernels, shape", [parameter(*call, label=str(call[1])) for call in calls])


every_shape = of_each(*SHAPES)
#: A loss and its settings.
OVER_SAMPLES: dict[str, dict[str, Any]] = {"sigmoid_cross_entropy": {}, "huber": {"delta": 0.7}}
every_loss = pytest.mark.parametrize("name, settings", OVER_SAMPLES.items(), ids=OVER_SAMPLES)
#: Where a wrong id is found while the kernel runs, it is an error; a GPU cannot raise one, and gives NaN.
REFUSING = {"numpy", "onednn"}


def scores(shape: tuple[int, ...], scale: float = 3) -> Array:
    x = scale * normal(*shape)
    return channels_last(x) if x.ndim == 4 else x


def ids(x: Array, dtype: Any = np.int64) -> Array:
    return np.random.default_rng(5).integers(0, x.shape[1], (x.shape[0], *x.shape[2:])).astype(dtype)


def rows(x: Array, dtype: Any = np.float32) -> Array:
    """Weights, not normalised, or with integers some labels, at least one."""
    weights = np.random.default_rng(6).random(x.shape) * (3 if np.dtype(dtype).kind in "iu" else 1)
    weights[:, 0] = 2
    return weights.astype(dtype)


def forward(kernels: KernelSet, x: Array, target: Array) -> tuple[Array, Array]:
    """losses, p."""
    losses, p = garbage(x.shape[:1], np.float32), np.full_like(x, NAN)
    run(kernels, "softmax_cross_entropy", (x, target, losses, p), {})
    return losses, p


def worked(x: Array, target: Array) -> tuple[Array, Array]:
    """losses, p in double precision by the formula."""
    z = x.astype(np.float64)
    z = z - z.max(1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
    own = np.take_along_axis(log_p, np.expand_dims(target.astype(np.int64), 1), 1)
    return -own.reshape(len(x), -1).mean(1), np.exp(log_p)


def check_both(kernels: KernelSet, x: Array, target: Array) -> None:
    """Cross entropy of softmax and its derivative."""
    losses = garbage(x.shape[:1], x.dtype)
    check(kernels, "softmax_cross_entropy", [x, target, losses, np.full_like(x, NAN)], {}, always=False)
    p = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    p = (p / p.sum(1, keepdims=True)).astype(x.dtype)
    dlosses = normal(x.shape[0], dtype=x.dtype)
    dx = np.full_like(x, NAN)
    check(kernels, "softmax_cross_entropy_derivative", [dlosses, p, target, dx], {}, always=False)


@every_shape
@pytest.mark.parametrize("dtype", ["int64", "uint8"])
def test_losses_and_probabilities(kernels: KernelSet, shape, dtype):
    x = scores(shape)
    target = ids(x) % 251
    losses, p = forward(kernels, x, target.astype(dtype))
    wanted, wanted_p = worked(x, target)
    np.testing.assert_allclose(losses, wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(p, wanted_p, rtol=2e-5, atol=1e-7)
    run(kernels, "softmax_cross_entropy", (x, target, losses, x), {})
    np.testing.assert_array_equal(x, p)


@every_shape
def test_derivative(kernels: KernelSet, shape):
    dlosses, p = normal(shape[0], seed=8), scores(shape)
    target = ids(p)
    p[...] = worked(p, target)[1]
    share = p - (np.expand_dims(target, 1) == np.arange(shape[1]).reshape(-1, *(1,) * (p.ndim - 2)))
    wanted = dlosses.reshape(-1, *(1,) * (p.ndim - 1)) / np.prod(shape[2:]) * share
    dx = np.full_like(p, NAN)
    run(kernels, "softmax_cross_entropy_derivative", (dlosses, p, target, dx), {})
    np.testing.assert_allclose(dx, wanted, rtol=2e-6, atol=1e-9)
    run(kernels, "softmax_cross_entropy_derivative", (dlosses, p, target, p), {})
    np.testing.assert_array_equal(p, dx)


@every_shape
def test_rows_of_weights(kernels: KernelSet, shape):
    for dtype in (np.float32, np.float64):
        x = 3 * normal(*shape, dtype=dtype)
        check_both(kernels, x, rows(x))
        check_both(kernels, x, ids(x))


@every_shape
def test_large_scores_do_not_overflow(kernels: KernelSet, shape):
    x = scores(shape, scale=2000)
    target = ids(x)
    wanted, wanted_p = worked(x, target)
    losses, p = forward(kernels, x, target)
    np.testing.assert_allclose(losses, wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(p, wanted_p, atol=1e-6)


@of_each((64, 10))
@pytest.mark.parametrize("bad", [NAN, INF], ids=["nan", "infinity"])
def test_nan_and_infinity_make_their_row_nan_and_no_other(kernels: KernelSet, shape, bad):
    x, rest = scores(shape), (0,) * (len(shape) - 2)
    target = ids(x)
    x[(1, shape[1] - 1, *rest)] = bad
    x[(1, 0, *rest)] = -INF
    target[(1, *rest)] = 2
    with np.errstate(invalid="ignore"):  # infinity less infinity
        losses, p = forward(kernels, x, target)
    wanted = np.zeros(shape, bool)
    wanted[(1, slice(None), *rest)] = True
    np.testing.assert_array_equal(np.isnan(p), wanted)
    np.testing.assert_array_equal(np.isnan(losses), np.arange(shape[0]) == 1)


@of_each((64, 10))
def test_classes_ruled_out_by_minus_infinity_have_no_probability(kernels: KernelSet, shape):
    x = scores(shape)
    x[:, 3] = -INF
    losses, p = forward(kernels, x, np.zeros_like(ids(x)))
    assert np.all(p[:, 3] == 0)
    assert np.isfinite(losses).all()
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    losses, _ = forward(kernels, x, np.full_like(ids(x), 3))
    np.testing.assert_array_equal(losses, INF)


@every_set
@pytest.mark.parametrize("wrong", [-1, 10, 1 << 40])
def test_ids_that_name_no_class(kernels: KernelSet, wrong):
    """An error that names them, or NaN there alone."""
    x, target = normal(6, 10, 4), np.zeros((6, 4), np.int64)
    target[1, 2] = wrong
    losses, p, dx, values = (
        garbage((6,), x.dtype),
        garbage(x.shape, x.dtype),
        garbage(x.shape, x.dtype),
        x[:, 0, 0].copy(),
    )
    forward, derivative = (x, target, losses, p), (np.ones(6, np.float32), x, target, dx)
    calls = ("softmax_cross_entropy", forward, {}), ("softmax_cross_entropy_derivative", derivative, {})
    for name, tensors, settings in (*calls, ("in_top_k", (x, target, values), {"k": 2})):
        if kernels.name in REFUSING:
            said = rf"class ids: wanted 0 to 9, received {wrong} at \[1, 2\]"
            with pytest.raises(IndexError, match=said):
                run(kernels, name, tensors, settings)
        else:
            run(kernels, name, tensors, settings)
    if kernels.name not in REFUSING:
        np.testing.assert_array_equal(np.isnan(losses), np.arange(6) == 1)
        np.testing.assert_array_equal(np.isnan(values), np.arange(6) == 1)
        assert np.isfinite(p).all()
        nowhere = np.zeros(x.shape, bool)
        nowhere[1, :, 2] = True
        np.testing.assert_array_equal(np.isnan(dx), nowhere)


@every_own_set
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_ids_of_any_integer_dtype(kernels: KernelSet, dtype):
    x = normal(6, 11, 2, 3)
    check_both(kernels, x, ids(x, dtype))
    check_both(kernels, x, np.repeat(ids(x, dtype), 2, axis=-1)[..., ::2])


@every_own_set
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float64"])
def test_rows_of_any_dtype(kernels: KernelSet, dtype):
    x = normal(6, 11, 2, 3)
    check_both(kernels, x, rows(x, dtype))


@every_own_set
def test_large_scores_and_weights_do_not_overflow(kernels: KernelSet):
    x = np.array([[1e4, -1e4, 0], [-1e30, -1e30, -1e30], [80, 90, 100], [3e38, 0, -3e38]], np.float32)
    check_both(kernels, x[:3], np.array([0, 1, 2]))
    check_both(kernels, x[:3], np.full((3, 3), 1e38, np.float32))
    with np.errstate(over="ignore"):  # NumPy warns of the difference that is minus infinity
        losses, p = forward(kernels, x, np.array([0, 0, 0, 0]))
    np.testing.assert_allclose(losses, [0, np.log(3), np.log(1 + np.e**10 + np.e**20), 0], rtol=1e-6)
    np.testing.assert_array_equal(p[3], [1, 0, 0])


@every_own_set
@pytest.mark.parametrize("lay", [channels_last, c_order])
def test_probabilities_may_take_the_place_of_scores(kernels: KernelSet, lay):
    for x in (3 * normal(4, 2100), 3 * normal(3, 21, 5, 4)):
        for target in (ids(x), rows(x)):
            given = lay(x)
            losses, apart = forward(kernels, given, target)
            run(kernels, "softmax_cross_entropy", [given, target, losses, given], {})
            np.testing.assert_array_equal(given, apart)


@of_each((64, 10))
def test_samples_without_a_weight_have_no_derivative_whatever_their_scores_are(kernels: KernelSet, shape):
    p, dlosses = scores(shape), np.ones(shape[0], np.float32)
    p[1], dlosses[1:3] = NAN, 0
    for target in (ids(p), rows(p)):
        dx = garbage(p.shape, p.dtype)
        run(kernels, "softmax_cross_entropy_derivative", (dlosses, p, target, dx), {})
        np.testing.assert_array_equal(dx[1:3], 0)
        assert np.isfinite(dx).all()
    if p.ndim == 2:
        dx = garbage(p.shape, p.dtype)
        settings = {"first": 0, "classes": shape[1], "share": 0.1}
        run(kernels, "softmax_classes_derivative", (dlosses, p, p[:, 0].copy(), ids(p), dx), settings)
        np.testing.assert_array_equal(dx[1:3], 0)
        assert np.isfinite(dx).all()
