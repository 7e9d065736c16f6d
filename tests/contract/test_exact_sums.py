"""Normalizations and reductions of every kernel set where float32 runs short: large means, long sums, constants.

All results are compared with the reference's in float64 from the very same float32 inputs. A bound is a number of
roundings (half a unit in the last place, 2**-24) of the magnitudes that the formula adds up, element by element; what
cancels in the formula counts as large as it is before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from every_set import every_set
from kernel_case import garbage, run
from kernel_sets import kernel_sets
from layouts import c_order, channels_last
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY

Array = np.ndarray

ROUNDING = 2.0**-24


def normal(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def shifted(*shape: int) -> Array:
    """Mean 10,000, deviation 1: float32 holds ten bits of what a value differs from the mean by."""
    return np.float32(1e4) + normal(*shape)


def bytes_of_images(*shape: int) -> Array:
    """Mean 255, deviation a tenth."""
    return np.float32(255) + np.float32(0.1) * normal(*shape)


def one_apart(*shape: int) -> Array:
    """All equal but for the first value of each channel: a shift to that would lose what all the others have."""
    x = np.broadcast_to(constants(shape[1]).reshape(-1, *(1,) * (len(shape) - 2)), shape).copy()
    x[0].reshape(shape[1], -1)[:, 0] += 1
    return x


def constants(count: int) -> Array:
    """Values that sums round: fractions, large and small ones."""
    return np.resize(np.array([12345.678, 0.1, -7.3e-3, 0, 3e5, -255.3], np.float32), count)


def far_off(*shape: int) -> Array:
    """Mean -1,000,000, deviation 4."""
    return (-1e6 + 4 * normal(*shape)).astype(np.float32)


def first_far(*shape: int) -> Array:
    """The first value of each channel is far from all others."""
    x = normal(*shape)
    x[0].reshape(shape[1], -1)[:, 0] = 1e4
    return x


INPUTS = {
    "large_mean": shifted,
    "bytes": bytes_of_images,
    "centred": normal,
    "one_apart": one_apart,
    "far_off": far_off,
    "first_far": first_far,
}


LAYOUTS = {"channels_last": channels_last, "c_order": np.ascontiguousarray}


def long(kernels: KernelSet) -> tuple[int, ...]:
    """50,000 values a channel and more; on a GPU's stand-in, where each thread takes microseconds, a tenth."""
    return (32, 16, 56, 56) if kernels in kernel_sets() else (8, 5, 25, 28)


def assert_within(got: Array, wanted: Array, roundings: float, magnitude: Array, where: str) -> None:
    allowed = ROUNDING * roundings * magnitude + np.abs(wanted) * ROUNDING
    worst = np.max(np.abs(got - wanted) / np.maximum(allowed, 1e-300))
    assert worst <= 1, f"{where}: off by {worst:.3g} times the bound"


def per_channel(vector: Array, x: Array) -> Array:
    return vector.reshape(-1, *(1,) * (x.ndim - 2))


@every_set
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", INPUTS)
def test_batch_norm(kernels, layout, kind):
    lay, shape = LAYOUTS[layout], long(kernels)
    x, c, settings = lay(INPUTS[kind](*shape)), shape[1], {"momentum": 1.0, "epsilon": 1e-5}
    gamma, beta = normal(c, seed=2), normal(c, seed=3)
    outputs = [np.zeros(c, np.float32) for _ in range(2)] + [lay(garbage(shape, np.float32))]
    outputs += [garbage((c,), np.float32) for _ in range(2)]
    exact = [np.zeros(c), np.zeros(c), np.zeros(shape), np.zeros(c), np.zeros(c)]
    run(kernels, "batch_norm", [x, gamma, beta, *outputs[:2], None, *outputs[2:]], settings)
    given = [a.astype(np.float64) for a in (x, gamma, beta)]
    run(NUMPY, "batch_norm", [*given, *exact[:2], None, *exact[2:]], settings)
    running_mean, running_var, y, mean, inv_std = exact
    wide = x.astype(np.float64)
    deviation = np.sqrt(running_var)
    # The mean is as good as float32 can hold it: of x less a shift the sum is off by roundings of the deviation.
    for got, wanted in ((outputs[0], running_mean), (outputs[3], mean)):
        assert_within(got, wanted, 1, deviation, "mean")
    # Squares are all of one sign, so that a sum by blocks is off by few roundings of itself.
    assert_within(outputs[1], running_var, 16, running_var, "variance")
    assert_within(outputs[4], inv_std, 16, inv_std, "inv_std")
    # y: of the mean as it was rounded, by what the deviation is known to.
    slope = per_channel(np.abs(gamma) * inv_std, x)
    terms = slope * (np.abs(wide - per_channel(mean, x)) * 16 + per_channel(np.abs(mean), x))
    assert_within(outputs[2], y, 2, terms + per_channel(np.abs(beta), x), "y")


@every_set
@pytest.mark.parametrize("layout", LAYOUTS)
def test_batch_norm_of_constants(kernels, layout):
    """The variance is 0, and y is beta, to the bit: a mean off by one rounding would be multiplied by 300."""
    lay, shape = LAYOUTS[layout], long(kernels)
    c, settings = shape[1], {"momentum": 1.0, "epsilon": 1e-5}
    values, gamma, beta = constants(c), normal(c, seed=2), normal(c, seed=3)
    x, y = lay(np.broadcast_to(per_channel(values, np.empty(shape)), shape)), lay(garbage(shape, np.float32))
    running_mean, running_var = np.zeros(c, np.float32), np.ones(c, np.float32)
    mean, inv_std = garbage((c,), np.float32), garbage((c,), np.float32)
    run(kernels, "batch_norm", [x, gamma, beta, running_mean, running_var, None, y, mean, inv_std], settings)
    np.testing.assert_array_equal(mean, values)
    np.testing.assert_array_equal(running_mean, values)
    assert np.all((running_var >= 0) & (running_var <= 1e-12 * np.square(values, dtype=np.float64)))
    np.testing.assert_allclose(inv_std, 1 / np.sqrt(1e-5), rtol=4 * ROUNDING)
    np.testing.assert_array_equal(y, np.broadcast_to(per_channel(beta, x), shape))


@every_set
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["large_mean", "bytes", "centred"])
def test_gradients_of_batch_norm(kernels, layout, kind):
    """Terms of both signs cancel to the root of their squares' sum, and few roundings of that are what is allowed."""
    lay, shape = LAYOUTS[layout], long(kernels)
    x, dy, c = lay(INPUTS[kind](*shape)), lay(normal(*shape, seed=5)), shape[1]
    wide, axes = x.astype(np.float64), (0, 2, 3)
    mean, inv_std = wide.mean(axes).astype(np.float32), (1 / wide.std(axes)).astype(np.float32)
    gamma, dx = normal(c, seed=2), lay(garbage(shape, np.float32))
    terms = dy * (wide - per_channel(mean.astype(np.float64), x)) * per_channel(inv_std.astype(np.float64), x)
    exact = {"dgamma": terms.sum(axes), "dbeta": dy.sum(axes, dtype=np.float64)}
    sizes = {"dgamma": np.sqrt(np.square(terms).sum(axes)), "dbeta": np.sqrt(np.square(dy, dtype=float).sum(axes))}
    for name in ("batch_norm_derivative", "batch_norm_gradient"):
        sums = {key: garbage((c,), np.float32) for key in exact}
        given = [dy, x, mean, inv_std]
        given = [dy, x, gamma, None, mean, inv_std, None, dx] if name == "batch_norm_derivative" else given
        run(kernels, name, [*given, *sums.values()], {})
        for key, got in sums.items():
            assert_within(got, exact[key], 16, sizes[key], f"{name}: {key}")
    m, xhat = x.size // c, terms / np.where(dy == 0, 1, dy)
    inner = dy - per_channel(exact["dbeta"] / m, x) - xhat * per_channel(exact["dgamma"] / m, x)
    slope = per_channel((np.abs(gamma) * inv_std).astype(np.float64), x)
    wanted = per_channel((gamma * inv_std.astype(np.float64)), x) * inner
    assert_within(dx, wanted, 8, slope * (np.abs(dy) + np.abs(xhat) + 1), "dx")


ROWS = {"large_mean": shifted(64, 1000), "bytes": bytes_of_images(64, 1000), "centred": normal(64, 1000)}
ROWS["long"] = shifted(5, 40_000)
ROWS["constant"] = np.repeat(constants(12)[:, None], 777, axis=1)


@every_set
@pytest.mark.parametrize("kind", ROWS)
def test_layer_norm(kernels, kind):
    """As for batch normalization, row by row; a row is added up in float32, in sixteen lanes or more."""
    x = ROWS[kind]
    rows, features = x.shape
    gamma, beta = normal(features, seed=2), normal(features, seed=3)
    outputs = [garbage(x.shape, np.float32), garbage((rows,), np.float32), garbage((rows,), np.float32)]
    run(kernels, "layer_norm", [x, gamma, beta, *outputs], {"epsilon": 1e-5})
    exact = [np.zeros(x.shape), np.zeros(rows), np.zeros(rows)]
    run(NUMPY, "layer_norm", [a.astype(np.float64) for a in (x, gamma, beta)] + exact, {"epsilon": 1e-5})
    y, mean, inv_std = exact
    wide = x.astype(np.float64)
    assert_within(outputs[1], mean, 4, wide.std(1), "mean")
    assert_within(outputs[2], inv_std, 16, inv_std, "inv_std")
    rounded = np.where(wide.std(1) > 0, np.abs(mean) + 4 * wide.std(1), 0)
    offset = np.abs(wide - mean[:, None]) * 16 + rounded[:, None]
    assert_within(outputs[0], y, 2, np.abs(gamma) * inv_std[:, None] * offset + np.abs(beta), "y")


@every_set
@pytest.mark.parametrize("kind", ["large_mean", "bytes", "centred", "long"])
def test_gradients_of_layer_norm(kernels, kind):
    x = ROWS[kind].T.copy() if kind == "long" else ROWS[kind]
    features = x.shape[1]
    dy, wide = normal(*x.shape, seed=5), x.astype(np.float64)
    mean, inv_std = wide.mean(1).astype(np.float32), (1 / wide.std(1)).astype(np.float32)
    terms = dy * (wide - mean[:, None].astype(float)) * inv_std[:, None].astype(float)
    sums = [garbage((features,), np.float32) for _ in range(2)]
    run(kernels, "layer_norm_gradient", [dy, x, mean, inv_std, *sums], {})
    for got, parts, where in ((sums[0], terms, "dgamma"), (sums[1], dy.astype(float), "dbeta")):
        assert_within(got, parts.sum(0), 16, np.sqrt(np.square(parts).sum(0)), where)


@every_set
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axes", [(0, 2, 3), (2, 3), (1,)], ids=str)
@pytest.mark.parametrize("kind", ["large_mean", "centred", "constant"])
def test_sums_and_means(kernels, layout, kind, axes):
    """Means of images are sums of this kind too. Of one sign: roundings of the sum; else of the squares' root.

    Equal terms round alike: a stage of a hundred of them is off by ten roundings, and there are up to three.
    """
    lay, shape = LAYOUTS[layout], long(kernels)
    x = lay(np.full(shape, np.float32(12345.678)) if kind == "constant" else INPUTS[kind](*shape))
    wide = x.astype(np.float64)
    count = np.prod([shape[axis] for axis in axes])
    y = lay(garbage(tuple(1 if axis in axes else extent for axis, extent in enumerate(shape)), np.float32))
    run(kernels, "reduce_sum", [x, y], {"axes": axes, "alpha": 1 / count})
    size = np.sqrt(np.square(wide).sum(axes, keepdims=True)) / count + np.abs(wide.mean(axes, keepdims=True))
    assert_within(y, wide.mean(axes, keepdims=True), 32, size, "mean")
    if axes == (0, 2, 3):
        db = garbage(shape[1:2], np.float32)
        run(kernels, "bias_gradient", [x, db], {"axis": 1})
        assert_within(db, wide.sum(axes), 32, size.reshape(-1) * count, "sum")


def far_rows(*shape: int) -> Array:
    """Scores far from 0: e**(x - top) is exact to a few roundings of x's own last digit."""
    return np.float32(100) + normal(*shape)


WINDOW = {"window": Window((64, 64)), "count_pad": True}
#: (kernel, inputs, shapes of results, settings, roundings of each result); a large window is added up as a random walk.
LONG: dict[str, tuple[str, list[Array], list[tuple[int, ...]], dict[str, Any], list[float]]] = {
    "average": ("avg_pool2d", [shifted(2, 16, 64, 64)], [(2, 16, 1, 1)], WINDOW, [64]),
    "average, last": ("avg_pool2d", [channels_last(shifted(2, 16, 64, 64))], [(2, 16, 1, 1)], WINDOW, [64]),
    "sigmoid": ("sigmoid_cross_entropy", [normal(3, 50_000), normal(3, 50_000, seed=2)], [(3,)], {}, [16]),
    "huber": ("huber", [normal(3, 50_000), normal(3, 50_000, seed=2)], [(3,)], {"delta": 1.0}, [16]),
}
for rows in ((64, 1000), (7, 40_000)):
    LONG |= {
        f"softmax {rows}": ("softmax", [far_rows(*rows)], [rows], {"axis": 1}, [32]),
        f"loss {rows}": (
            "softmax_cross_entropy", [far_rows(*rows), np.arange(rows[0])], [rows[:1], rows], {}, [40, 32],
        ),
        f"norm {rows}": ("l2_norm", [shifted(*rows)], [rows, rows[:1]], {"epsilon": 1e-6}, [16, 8]),
    }  # fmt: skip


@every_set
@pytest.mark.parametrize("key", LONG)
def test_long_rows(kernels, key):
    """Sums of one sign, beside NumPy's in float64."""
    name, given, shapes, settings, roundings = LONG[key]
    found, exact = ([garbage(shape, dtype) for shape in shapes] for dtype in (np.float32, np.float64))
    run(kernels, name, [*given, *found], settings)
    run(NUMPY, name, [*(a.astype(np.float64) if a.dtype.kind == "f" else a for a in given), *exact], settings)
    for got, wanted, most in zip(found, exact, roundings, strict=True):
        assert_within(got, wanted, most, np.abs(wanted), key)


# --- NaN and infinities reach what they are added to, and nothing else

NAN, INF = np.nan, np.inf
IMAGES = (3, 8, 14, 18)


@every_set
@pytest.mark.parametrize("rows", [6, 33, 150])
@pytest.mark.parametrize("transpose_b", [False, True], ids=["by rows", "transposed"])
def test_nan_and_infinity_stay_in_their_rows(kernels: KernelSet, rows, transpose_b):
    a, b, y = normal(rows, 520), np.abs(normal(520, 70, seed=4)), garbage((rows, 70), np.float32)
    a[3, 5], a[5, 2] = NAN, INF
    calls = [("matmul", [a, b.T.copy() if transpose_b else b], {"transpose_a": False, "transpose_b": transpose_b})]
    calls += [("linear", [a, b, None], {}), ("linear", [a, b, None], {"activation": "relu"})]
    for name, given, settings in calls:
        with np.errstate(invalid="ignore"):  # NumPy's may warn of NaN
            run(kernels, name, [*given, y], settings)
        assert np.isnan(y[3]).all()
        assert (y[5] == INF).all()
        assert np.isfinite(np.delete(y, (3, 5), axis=0)).all()


@every_set
@pytest.mark.parametrize("lay", [channels_last, c_order])
@pytest.mark.parametrize("axes", [(2, 3), (0, 2, 3), (1,)], ids=str)
def test_nan_and_infinity_reach_their_sum_and_no_other(kernels: KernelSet, lay, axes):
    x = np.abs(normal(*IMAGES))
    x[1, 2, 3, 4], x[1, 4, 5, 6] = NAN, INF
    wanted = x.sum(axes, keepdims=True)
    y = lay(garbage(wanted.shape, np.float32))
    run(kernels, "reduce_sum", [lay(x), y], {"axes": axes, "alpha": 0.5})
    np.testing.assert_array_equal(np.isnan(y), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(y), np.isinf(wanted))
