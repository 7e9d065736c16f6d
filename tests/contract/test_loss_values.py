"""Losses by every kernel set: sizes, layouts, targets of all kinds, NaN and infinities, ids that name no class."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from every_set import ON_CPU, WITHOUT_LIBRARIES, every_own_set, every_set, parameter
from kernel_case import garbage, run
from layouts import channels_last, check
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
#: Where a wrong id is found while the kernel runs, it is an error; a GPU cannot raise one, and gives NaN.
REFUSING = {"numpy", "onednn", "loops"}


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


def check_both(kernels: KernelSet, x: Array, target: Array) -> None:
    """Cross entropy of softmax and its derivative; p and dx may take the place of x and p, with equal bits."""
    losses, p = garbage(x.shape[:1], x.dtype), np.full_like(x, NAN)
    check(kernels, "softmax_cross_entropy", [x, target, losses, p], {}, always=False)
    over = x.copy(order="K")
    run(kernels, "softmax_cross_entropy", [over, target, losses, over], {})
    np.testing.assert_array_equal(over, p)
    dlosses, dx = normal(x.shape[0], dtype=x.dtype), np.full_like(x, NAN)
    check(kernels, "softmax_cross_entropy_derivative", [dlosses, p, target, dx], {}, always=False)
    run(kernels, "softmax_cross_entropy_derivative", [dlosses, over, target, over], {})
    np.testing.assert_array_equal(over, dx)


@every_shape
def test_losses_probabilities_and_derivatives(kernels: KernelSet, shape):
    """Of scores so large that their powers overflow, too."""
    for x in (scores(shape), scores(shape, 2000), 3 * normal(*shape), 3 * normal(*shape, dtype=np.float64)):
        for target in (ids(x), (ids(x) % 251).astype(np.uint8), rows(x)):
            check_both(kernels, x, target)


@of_each((64, 10), (3, 2100))
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


@of_each((64, 10), (3, 2100))
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
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "uint64", "float64"])
def test_targets_of_any_dtype(kernels: KernelSet, dtype):
    x = normal(6, 11, 2, 3)
    check_both(kernels, x, rows(x, dtype))
    if np.dtype(dtype).kind in "iu":
        check_both(kernels, x, ids(x, dtype))
        check_both(kernels, x, np.repeat(ids(x, dtype), 2, axis=-1)[..., ::2])


@every_own_set
def test_large_scores_and_weights_do_not_overflow(kernels: KernelSet):
    x = np.array([[1e4, -1e4, 0], [-1e30, -1e30, -1e30], [80, 90, 100], [3e38, 0, -3e38]], np.float32)
    check_both(kernels, x[:3], np.array([0, 1, 2]))
    check_both(kernels, x[:3], np.full((3, 3), 1e38, np.float32))
    with np.errstate(over="ignore"):  # NumPy warns of the difference that is minus infinity
        losses, p = forward(kernels, x, np.array([0, 0, 0, 0]))
    np.testing.assert_allclose(losses, [0, np.log(3), np.log(1 + np.e**10 + np.e**20), 0], rtol=1e-6)
    np.testing.assert_array_equal(p[3], [1, 0, 0])


@of_each((64, 10), (3, 2100))
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


# --- metrics, against sorting: ties, infinities and NaN

RNG = np.random.default_rng(2)


def values_of(kernels: KernelSet, name: str, x: np.ndarray, target: np.ndarray, k: int) -> np.ndarray:
    """One value a sample."""
    values = garbage(x.shape[:1], x.dtype)
    run(kernels, name, [x, target, values], {"k": k})
    return values


def top_classes(scores: np.ndarray, k: int) -> list[int]:
    """The k best classes of one position: numbers only, higher scores first, then lower classes."""
    real = [c for c in range(len(scores)) if not math.isnan(scores[c])]
    return sorted(real, key=lambda c: (-scores[c], c))[:k]


def positionwise(f: Callable[[np.ndarray, np.ndarray], float], x: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Means over the positions of each sample of f(scores, row of the target)."""
    values = np.empty((x.shape[0], *x.shape[2:]))
    for index in np.ndindex(values.shape):
        whole = (index[0], slice(None), *index[1:])
        values[index] = f(x[whole], target[whole])
    return values.reshape(len(x), -1).mean(1)


def tied_scores(shape: tuple[int, ...]) -> np.ndarray:
    """Scores with many ties, infinities and NaN."""
    choices = np.array([-np.inf, -1.0, 0.0, 0.5, 2.0, np.inf, np.nan])
    return RNG.choice(choices, shape, p=[0.1, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1])


@every_own_set
@pytest.mark.parametrize("shape", [(29, 7), (13, 5, 2, 3), (2, 5, 61, 47), (2, 9001)])
@pytest.mark.parametrize("k", [1, 3, 20])
def test_metrics_against_sorting(kernels: KernelSet, shape, k):
    x, rows = tied_scores(shape), RNG.integers(0, 2, shape)
    ids = RNG.integers(0, shape[1], (shape[0], *shape[2:]))
    one_hot = np.zeros(shape)
    np.put_along_axis(one_hot, np.expand_dims(ids, 1), 1, axis=1)

    def hit(scores: np.ndarray, row: np.ndarray) -> float:
        return float(np.argmax(row) in top_classes(scores, k))

    def found(scores: np.ndarray, row: np.ndarray) -> int:
        return sum(row[c] > 0 for c in top_classes(scores, k))

    wanted = positionwise(hit, x, one_hot)
    for target in (ids, ids.astype(np.uint16), one_hot):
        np.testing.assert_allclose(values_of(kernels, "in_top_k", x, target, k), wanted, rtol=1e-14)
    precision = positionwise(lambda s, row: found(s, row) / k, x, rows)
    np.testing.assert_allclose(values_of(kernels, "precision_at_k", x, rows, k), precision, rtol=1e-14)
    recall = positionwise(lambda s, row: found(s, row) / max(row.sum(), 1), x, rows)
    np.testing.assert_allclose(values_of(kernels, "recall_at_k", x, rows, k), recall, rtol=1e-14)
