"""Normalizations by every kernel set: tiny numbers, NaN and infinities; `test_exact_sums.py` has far and equal ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from every_set import ON_CPU, WITHOUT_LIBRARIES, every_own_set, every_set, parameter
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
        run(
            kernels,
            "batch_norm",
            [x, ones, zeros, *results[:2], None, *results[2:]],
            {"momentum": 1.0, "epsilon": epsilon},
        )
    return dict(zip(names, results, strict=True))


@every_own_set
def test_one_element_has_no_derivative_however_products_are_rounded(kernels: KernelSet):
    x, dy, gamma, inv_std, dx = normal(500, 1), normal(500, 1, seed=2), normal(1, seed=3), positive(500), empty(500, 1)
    run(kernels, "layer_norm_derivative", [dy, x, gamma, x[:, 0].copy(), inv_std, dx], {})
    np.testing.assert_array_equal(dx, 0)
    dx, gamma, inv_std = empty(20, 25), normal(25, seed=3), inv_std.reshape(20, 25)
    x, dy = x.reshape(20, 25), dy.reshape(20, 25)
    run(kernels, "group_norm_derivative", [dy, x, gamma, x.copy(), inv_std, dx], {})
    np.testing.assert_array_equal(dx, 0)


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
    run(kernels, "batch_norm", [x, gamma, -beta, running_mean, running_var, None, y, mean, inv_std], FORWARD)
    run(kernels, "batch_normalize", [x, gamma, -beta, mean, inv_std, None, again], {})
    np.testing.assert_array_equal(again.view(np.int32), y.view(np.int32))
    run(kernels, "batch_normalize", [x, gamma, -beta, mean, inv_std, None, x], {})
    np.testing.assert_array_equal(x.view(np.int32), y.view(np.int32))


#: Others leave a record alone: what serves them, NumPy's kernels, has other bits than their own.
FUSING = [kernels for kernels in WITHOUT_LIBRARIES if ("batch_norm", "relu") in kernels.fusions]
every_fusing_set = pytest.mark.parametrize("kernels", [parameter(kernels) for kernels in FUSING])
LAYOUTS = pytest.mark.parametrize("lay", [np.ascontiguousarray, channels_last], ids=["C order", "channels last"])
#: One has so many elements that all of a large tensor's pieces, and a shorter last one, are there.
SHAPES = [(3, 16, 5, 7), (4, 5, 6, 9), (5, 24, 131, 97), (1, 2, 1, 1), (3, 1, 7, 5)]
ACTIVATIONS = pytest.mark.parametrize("activation", ["relu", "relu6"])


def bounded(kernels: KernelSet, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape, for CUDA's stand-in with axes of 40 at most: it runs the threads of a block one after the other."""
    return tuple(min(extent, 40) for extent in shape) if kernels.name == "cuda" else shape


def exact(kernels: KernelSet, name: str, tensors: list[Any], **settings: Any) -> list[Any]:
    """Copies of all tensors, as they lie, behind the call."""
    copies = [None if t is None else np.copy(t, order="K") for t in tensors]
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        run(kernels, name, copies, settings)
    return copies


def assert_bits(got: list[Array], wanted: list[Array]) -> None:
    """Equal bits, but for the sign and the digits of NaN."""
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
        np.testing.assert_array_equal(*(np.where(np.isnan(t), 0, t).view(np.int32) for t in (one, other)))


def around_kinks(shape: tuple[int, ...], lay: Any) -> tuple[Array, Array, list[Array]]:
    """x, dy and gamma, beta, running statistics: results below 0, at 0 of both signs, above, and beyond 6."""
    x, dy = lay(5 + 2 * normal(*shape)), lay(normal(*shape, seed=3))
    gamma, beta, *running = vectors(shape[1], 4)
    gamma *= np.where(np.arange(shape[1]) % 3 == 1, -4, 3).astype(np.float32)
    gamma[-1:], beta[-1:] = 0, -0.0  # all results of the channel are zeros
    return x, dy, [gamma, beta, *running]


def normalized(
    kernels: KernelSet, x: Array, given: list[Array], other: Array | None = None, **option: str
) -> list[Array]:
    """Running statistics, y, mean and inv_std of a normalization with these options."""
    c = x.shape[1]
    tensors = [x, *given, other, np.empty_like(x), empty(c), empty(c)]
    made = exact(kernels, "batch_norm", tensors, **option, **FORWARD)
    return [*made[3:5], *made[6:]]


def apart(
    kernels: KernelSet, x: Array, dy: Array, given: list[Array], activation: str
) -> tuple[list[Array], list[Array], list[Array]]:
    """Results of kernels one after the other: running statistics, y, mean, inv_std; y; dx, dgamma, dbeta."""
    c, (gamma, beta, *_) = x.shape[1], given
    results = normalized(kernels, x, given)
    z, mean, inv_std = results[2:]
    y = exact(kernels, activation, [z, np.empty_like(x)])[1]
    again = exact(kernels, "batch_normalize", [x, gamma, beta, mean, inv_std, None, np.empty_like(x)])[-1]
    again = exact(kernels, activation, [again, np.empty_like(x)])[1]
    masked = exact(kernels, f"{activation}_derivative", [dy, y, np.empty_like(x)])[2]
    tensors = [masked, x, gamma, None, mean, inv_std, None, np.empty_like(x), empty(c), empty(c)]
    return [*results[:2], y, mean, inv_std], [again], exact(kernels, "batch_norm_derivative", tensors)[-3:]


def at_once(
    kernels: KernelSet, x: Array, dy: Array, given: list[Array], activation: str
) -> tuple[list[Array], list[Array], list[Array]]:
    """The same of the fused kernels; y is written over x, and dx over dy, as a plan may have it."""
    c, (gamma, beta, *_) = x.shape[1], given
    results = normalized(kernels, x, given, activation=activation)
    mean, inv_std = results[3:]
    again = np.copy(x, order="K")
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        tensors = [again, gamma, beta, mean, inv_std, None, again]
        run(kernels, "batch_normalize", tensors, {"activation": activation})
        dx, dgamma, dbeta = np.copy(dy, order="K"), empty(c), empty(c)
        tensors = [dx, x, gamma, beta, mean, inv_std, None, dx, dgamma, dbeta]
        run(kernels, "batch_norm_derivative", tensors, {"activation": activation})
    return results, [again], [dx, dgamma, dbeta]


def assert_alike(kernels: KernelSet, x: Array, dy: Array, given: list[Array], activation: str) -> None:
    for got, wanted in zip(
        at_once(kernels, x, dy, given, activation), apart(kernels, x, dy, given, activation), strict=True
    ):
        assert_bits(got, wanted)


@every_fusing_set
@LAYOUTS
@ACTIVATIONS
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_normalization_with_its_activation_gives_the_bits_of_the_two(kernels: KernelSet, shape, lay, activation):
    x, dy, given = around_kinks(bounded(kernels, shape), lay)
    assert_alike(kernels, x, dy, given, activation)


@every_fusing_set
@LAYOUTS
@ACTIVATIONS
@pytest.mark.parametrize("mean", [0.0, 1e4])
def test_a_large_mean_changes_no_bit_of_the_two(kernels: KernelSet, mean, lay, activation):
    """Sums are then of shifted x, by another row of steps."""
    x, dy, given = around_kinks((3, 8, 9, 7), lay)
    assert_alike(kernels, x + np.float32(mean), dy, given, activation)


@every_fusing_set
@LAYOUTS
@ACTIVATIONS
@pytest.mark.parametrize(
    "spoilt", [np.nan, np.inf, -np.inf, np.float32(3.2e38), np.float32(-3.2e38)], ids=lambda v: f"{v:.0e}"
)
def test_normalization_with_its_activation_shows_what_is_no_number(kernels: KernelSet, spoilt, lay, activation):
    """NaN and infinities go through as through the two, and stay within their channel."""
    x, dy, given = around_kinks((3, 8, 9, 7), lay)
    x[1, 3, 2, 2], dy[2, 5, 1, 1], dy[0, 6, 0, 0] = spoilt, np.inf, np.nan
    x[0, 3, 0, 0] = -np.sign(spoilt) * np.float32(3.2e38)
    assert_alike(kernels, x, dy, given, activation)
    if not abs(spoilt) < np.inf:
        y = at_once(kernels, x, dy, given, activation)[0][2]
        assert np.isnan(y[:, 3]).all()
        assert np.isfinite(np.delete(y, 3, axis=1)).all()


# --- a normalization with the sum behind it, and its derivative with one: the bits of the kernels apart


#: Each set that takes in a sum, with each activation behind it.
SUMMING = [kernels for kernels in WITHOUT_LIBRARIES if ("batch_norm", "other") in kernels.fusions]
BEHIND = [parameter(kernels, a, label=a or "sum") for kernels in SUMMING for a in ("", "relu", "relu6")]


def activated(kernels: KernelSet, activation: str, y: Array) -> Array:
    return exact(kernels, activation, [y, np.empty_like(y)])[1] if activation else y


#: Of several pieces with a shorter last one; of one; of a single value a channel.
SHAPES_OF_SUMS = [(3, 16, 5, 7), (5, 24, 131, 97), (1, 2, 1, 1), (3, 1, 7, 5)]


@pytest.mark.parametrize("kernels, activation", BEHIND)
@LAYOUTS
@pytest.mark.parametrize("shape", SHAPES_OF_SUMS, ids=str)
@pytest.mark.parametrize("over", ["apart", "x", "other"])
def test_a_normalization_with_its_sum_gives_the_bits_of_the_kernels(kernels, activation, shape, lay, over):
    """y is written over x or over the other tensor, as a plan may have it."""
    shape = bounded(kernels, shape)
    x, other, given = around_kinks(shape, lay)
    x[0, 0, 0, 0], other[-1, -1, -1, -1] = np.nan, np.nan
    c, (gamma, beta, *_) = shape[1], given
    results = normalized(kernels, x, given)
    z, mean, inv_std = results[2:]
    y = activated(kernels, activation, exact(kernels, "add", [z, other, np.empty_like(x)])[2])
    wanted = [*results[:2], y, mean, inv_std]
    for name, known in (("batch_norm", given), ("batch_normalize", [gamma, beta, mean, inv_std])):
        tensors = [np.copy(t, order="K") for t in (x, *known, other)]
        target = {"apart": np.empty_like(x), "x": tensors[0], "other": tensors[-1]}[over]
        found = [empty(c), empty(c)] if name == "batch_norm" else []
        settings = ({"activation": activation} if activation else {}) | (FORWARD if found else {})
        with np.errstate(invalid="ignore"):
            run(kernels, name, [*tensors, target, *found], settings)
        got = [*tensors[3:5], target, *found] if found else [target]
        assert_bits(got, wanted if found else [y])
    assert np.isnan(y[:, 0]).all()


def test_statistics_of_a_large_mean_are_those_of_the_normalization():
    """Sums are then of shifted x."""
    x, other, given = around_kinks((3, 8, 9, 7), channels_last)
    x += np.float32(1e4)
    for kernels in SUMMING:
        z, y = normalized(kernels, x, given), normalized(kernels, x, given, other)
        assert_bits([*y[:2], *y[3:]], [*z[:2], *z[3:]])
        assert_bits([y[2]], [z[2] + other])


@pytest.mark.parametrize("kernels", [parameter(k) for k in FUSING])
@LAYOUTS
@pytest.mark.parametrize("shape", SHAPES_OF_SUMS, ids=str)
@pytest.mark.parametrize("form", ["apart", "over dy", "a piece"])
def test_a_derivative_with_its_sum_gives_the_bits_of_the_two(kernels, shape, lay, form):
    shape = bounded(kernels, shape)
    x, dy, (gamma, *_) = around_kinks(shape, lay)
    c, (mean, inv_std) = shape[1], vectors(shape[1], 2)
    wide = lay(normal(shape[0], c + 5, *shape[2:], seed=6))
    other = wide[:, 2:-3] if form == "a piece" else lay(normal(*shape, seed=6))
    given, spare = [x, gamma, None, mean, inv_std], [np.empty_like(x), empty(c), empty(c)]
    dx, *gradients = exact(kernels, "batch_norm_derivative", [dy, *given, None, *spare])[-3:]
    wanted = [exact(kernels, "add", [dx, other, np.empty_like(x)])[2], *gradients]
    target = np.copy(dy, order="K") if form == "over dy" else np.empty_like(x)
    got = [target, empty(c), empty(c)]
    tensors = [target if form == "over dy" else dy, *given, other, *got]
    run(kernels, "batch_norm_derivative", tensors, {})
    assert_bits(got, wanted)
