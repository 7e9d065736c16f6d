"""CUDA normalizations on the host: layouts, awkward extents, sums of many slabs, far and equal numbers, NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import host_loader
from host_kernels import cuda_on_host
from host_loader import Build, missing_to_run
from kernel_case import garbage, run
from kernel_sets import cuda_sets
from layouts import PAIRS, c_order, channels_last, check, image, piece_of_channels_last
from singa_lite.kernels.cuda_kernels.plane import plane
from singa_lite.kernels.kernel_set import Form, KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY

Array = np.ndarray

#: Channels that are packs, nearly so, one, three; a row just over a block's; a single value a channel.
SHAPES = [(3, 8, 5, 7), (2, 130, 3, 1), (5, 1, 7, 3), (17, 3, 5, 5), (1, 4, 257), (9, 12), (2, 5), (1, 6)]
FORWARD = {"momentum": 0.1, "epsilon": 1e-3}
RESPONSE: dict[str, Any] = {"size": 5, "alpha": 0.3, "beta": 0.75}

needs_fma = pytest.mark.skipif(not host_loader.rounds_once(), reason="this processor has no product and sum in one")
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
every_pair = pytest.mark.parametrize("first, second", PAIRS.values(), ids=PAIRS)
every_float = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@pytest.fixture(scope="module")
def cuda() -> KernelSet:
    """The set on the host."""
    sets = cuda_sets()
    if not sets:
        pytest.skip(f"the CUDA kernels on the host want {missing_to_run()}")
    return sets[0]


def normal(*shape: int, seed: int = 1, dtype: Any = np.float32) -> Array:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


def positive(*shape: int, seed: int = 1, dtype: Any = np.float32) -> Array:
    return np.asarray(np.random.default_rng(seed).uniform(0.5, 2, shape)).astype(dtype)


def vectors(channels: int, count: int, dtype: Any = np.float32) -> list[Array]:
    """Vectors of channels, all positive."""
    return [positive(channels, seed=seed, dtype=dtype) for seed in range(count)]


def empty(*shape: int, dtype: Any = np.float32) -> Array:
    return garbage(shape, dtype)


def forward(cuda: KernelSet, x: Array, y: Array | None = None, epsilon: float = 1e-5) -> dict[str, Array]:
    """Results of batch_norm with gamma 1, beta 0, and running statistics that begin at 0."""
    c = x.shape[1]
    names = "running_mean", "running_var", "y", "mean", "inv_std"
    out = np.empty_like(x) if y is None else y
    results = [np.zeros(c, x.dtype), np.zeros(c, x.dtype), out, empty(c, dtype=x.dtype), empty(c, dtype=x.dtype)]
    ones, zeros = np.ones(c, x.dtype), np.zeros(c, x.dtype)
    run(cuda, "batch_norm", [x, ones, zeros, *results], {"momentum": 1.0, "epsilon": epsilon})
    return dict(zip(names, results, strict=True))


@every_shape
@every_pair
def test_batch_norm(cuda, shape, first, second):
    x, y, c = first(1 + 2 * normal(*shape)), second(empty(*shape)), shape[1]
    check(cuda, "batch_norm", [x, *vectors(c, 4), y, empty(c), empty(c)], FORWARD)
    check(cuda, "batch_norm_inference", [x, *vectors(c, 4), second(empty(*shape))], {"epsilon": 1e-3})


@every_shape
@every_pair
def test_batch_norm_derivatives(cuda, shape, first, second):
    dy, x, dx, c = first(normal(*shape)), second(normal(*shape, seed=2)), second(empty(*shape)), shape[1]
    check(cuda, "batch_norm_derivative", [dy, x, *vectors(c, 3), dx, empty(c), empty(c)], {})
    check(cuda, "batch_norm_gradient", [dy, x, *vectors(c, 2), empty(c), empty(c)], {})


#: Several slabs of several rows a thread, the last of each shorter, in one tile of channels and in two.
LONG = [(3, 4, 61, 97), (2, 136, 29, 151), (31, 3, 23, 29)]


@pytest.mark.parametrize("shape", LONG, ids=str)
@pytest.mark.parametrize("layout", [channels_last, c_order])
@every_float
def test_batch_norm_of_many_slabs(cuda, shape, layout, dtype):
    x, dy, c = layout(1 + 2 * normal(*shape, dtype=dtype)), layout(normal(*shape, seed=2, dtype=dtype)), shape[1]
    blank = [empty(c, dtype=dtype) for _ in range(2)]
    out = layout(empty(*shape, dtype=dtype))
    assert plane((1,), [Form(x.shape, x.dtype, x.strides)]).slabs > 1
    check(cuda, "batch_norm", [x, *vectors(c, 4, dtype), out, *blank], FORWARD)
    check(cuda, "batch_norm_derivative", [dy, x, *vectors(c, 3, dtype), out, *blank], {}, roundings=128)


@pytest.mark.parametrize("layout", [channels_last, c_order, piece_of_channels_last])
@pytest.mark.parametrize("offset", [4000, -1e6])
def test_batch_norm_keeps_the_variance_of_numbers_far_from_0(cuda, layout, offset):
    x = layout((offset + 4 * normal(8, 4, 31, 17)).astype(np.float32))
    exact = x.astype(np.float64)
    got = forward(cuda, x)
    np.testing.assert_allclose(got["inv_std"], 1 / np.sqrt(exact.var((0, 2, 3)) + 1e-5), rtol=1e-6)
    np.testing.assert_allclose(got["running_var"], exact.var((0, 2, 3), ddof=1), rtol=1e-6)
    np.testing.assert_allclose(got["mean"], exact.mean((0, 2, 3)), rtol=1e-7)


def test_batch_norm_whose_first_number_is_far_from_all_others(cuda):
    x = normal(8, 4, 31, 17)
    x[0, :, 0, 0] = 1e4
    got = forward(cuda, channels_last(x))
    exact = x.astype(np.float64)
    np.testing.assert_allclose(got["running_var"], exact.var((0, 2, 3), ddof=1), rtol=1e-6)
    np.testing.assert_allclose(got["mean"], exact.mean((0, 2, 3)), rtol=3e-6)


def test_batch_norm_of_tiny_and_of_equal_numbers(cuda):
    x = channels_last(3e-16 * normal(4, 4, 9, 7))
    got = forward(cuda, x, epsilon=1e-36)
    np.testing.assert_allclose(got["inv_std"], 1 / x.astype(np.float64).std((0, 2, 3)), rtol=1e-4)
    equal = forward(cuda, np.full((4, 4, 9, 7), 0.1, np.float32), epsilon=0.25)
    np.testing.assert_array_equal(equal["inv_std"], np.full(4, 2, np.float32))
    np.testing.assert_array_equal(equal["running_var"], np.zeros(4, np.float32))
    np.testing.assert_array_equal(equal["y"], np.zeros((4, 4, 9, 7), np.float32))


def test_one_value_a_channel(cuda):
    got = forward(cuda, np.array([[3.0, -5.0, 7.0]], np.float32), epsilon=0.25)
    np.testing.assert_array_equal(got["mean"], [3, -5, 7])
    np.testing.assert_array_equal(got["inv_std"], [2, 2, 2])
    np.testing.assert_array_equal(got["running_var"], [0, 0, 0])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 3, 0, 0), (2, 3, 4, 6)])
def test_what_is_not_finite_spoils_its_channel_alone(cuda, value, place):
    x = channels_last(normal(3, 8, 5, 7))
    x[place] = value
    results = forward(cuda, x)
    spoilt = 3
    for name in ("y", "running_var", "inv_std"):
        per_channel = np.moveaxis(results[name], min(1, results[name].ndim - 1), 0).reshape(8, -1)
        assert np.isnan(per_channel[spoilt]).all()
        assert np.isfinite(np.delete(per_channel, spoilt, axis=0)).all()
    np.testing.assert_array_equal(results["mean"][spoilt], value)
    assert np.isfinite(np.delete(results["mean"], spoilt)).all()


def test_one_nan_in_inference_spoils_its_element_alone(cuda):
    x = channels_last(normal(3, 16, 5, 7))
    x[1, 3, 2, 2], x[2, 4, 0, 0] = np.nan, -np.inf
    check(cuda, "batch_norm_inference", [x, *vectors(16, 4), channels_last(empty(3, 16, 5, 7))], {"epsilon": 1e-3})


def test_batch_norm_of_float16_with_statistics_of_float32(cuda):
    shape, c = (3, 16, 5, 7), 16
    x, dy = (channels_last(normal(*shape, seed=seed, dtype=np.float16)) for seed in (1, 2))
    y, dx = (channels_last(empty(*shape, dtype=np.float16)) for _ in range(2))
    statistics, gradients = [empty(c), empty(c)], [empty(c), empty(c)]
    gamma, *others = vectors(c, 4)
    forwards = [x, gamma, *others, y, *statistics]
    backwards = [dy, x, gamma, *statistics, dx, *gradients]
    exact = [np.array(t, np.float64) for t in (*forwards, dy, dx, *gradients)]
    run(NUMPY, "batch_norm", exact[:8], FORWARD)
    run(NUMPY, "batch_norm_derivative", [exact[8], exact[0], exact[1], *exact[6:8], *exact[9:]], {})
    run(cuda, "batch_norm", forwards, FORWARD)
    run(cuda, "batch_norm_derivative", backwards, {})
    for got, wanted in zip([*statistics, *gradients], [*exact[6:8], *exact[10:]], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    for got, wanted in ((y, exact[5]), (dx, exact[9])):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)


#: (rows, features): for a warp a row, with packs and without, and longer than a chunk; then rows of several slabs.
LAYERS = [((3, 5), (7,)), ((9,), (128,)), ((), (33,)), ((2, 3), (4, 6)), ((5,), (1,)), ((3,), (1021,))]
LAYERS += [((2,), (5001,)), ((), (8200,)), ((3,), (17, 100)), ((513,), (1030,))]


@pytest.mark.parametrize("rows, features", LAYERS, ids=str)
def test_layer_norm_and_its_derivatives(cuda, rows, features):
    shape = rows + features
    x, dy, gamma, beta = 4 + normal(*shape), normal(*shape, seed=2), normal(*features, seed=3), normal(*features)
    mean, inv_std = np.asarray(4 + normal(*rows)), positive(*rows)
    check(cuda, "layer_norm", [x, gamma, beta, empty(*shape), empty(*rows), empty(*rows)], {"epsilon": 1e-3})
    check(cuda, "layer_norm_derivative", [dy, x, gamma, mean, inv_std, empty(*shape)], {}, roundings=64)
    check(cuda, "layer_norm_gradient", [dy, x, mean, inv_std, empty(*features), empty(*features)], {}, roundings=64)


@pytest.mark.parametrize("shape", [(6, 9, 8), (2, 9, 600)], ids=str)
@pytest.mark.parametrize("axes", [(0, 2, 1), (2, 1, 0), (1, 2, 0)], ids=str)
def test_layer_norm_of_turned_tensors(cuda, shape, axes):
    def layout(a: Array) -> Array:
        return np.ascontiguousarray(a.transpose(axes)).transpose(np.argsort(axes))

    x, dy, out = layout(4 + normal(*shape)), layout(normal(*shape, seed=2)), layout(empty(*shape))
    gamma, beta = normal(*shape[1:], seed=3), normal(*shape[1:])
    blank = empty(*shape[1:]), empty(*shape[1:])
    mean, inv_std = 4 + normal(shape[0]), positive(shape[0])
    check(cuda, "layer_norm", [x, gamma, beta, empty(*shape), mean.copy(), inv_std.copy()], {"epsilon": 1e-3})
    check(cuda, "layer_norm_derivative", [dy, x, gamma, mean, inv_std, out], {}, roundings=64)
    check(cuda, "layer_norm_gradient", [dy, x, mean, inv_std, *blank], {}, roundings=64)


@pytest.mark.parametrize("features", [40, 5001])
def test_layer_norm_far_from_0_and_with_a_nan(cuda, features):
    x, y, mean, inv_std = 4000 + normal(9, features), empty(9, features), empty(9), empty(9)
    x[4, 7] = np.nan
    run(cuda, "layer_norm", [x, *vectors(features, 2), y, mean, inv_std], {"epsilon": 1e-5})
    for result in (y, mean, inv_std):
        assert np.isnan(result[4]).all()
        assert np.isfinite(np.delete(result, 4, axis=0)).all()
    exact = 1 / np.sqrt(x.astype(np.float64).var(1) + 1e-5)
    np.testing.assert_allclose(np.delete(inv_std, 4), np.delete(exact, 4), rtol=1e-6)


@every_shape
@every_pair
def test_lrn_and_its_derivative(cuda, shape, first, second):
    x, dy, scale = first(normal(*shape)), second(normal(*shape, seed=2)), first(positive(*shape))
    y, dx = second(empty(*shape)), second(empty(*shape))
    for settings in (RESPONSE, {**RESPONSE, "size": 11, "beta": 0.6}):
        check(cuda, "lrn", [x, y, second(empty(*shape))], {**settings, "k": 1.5})
        check(cuda, "lrn_derivative", [dy, x, scale, dx], settings)


@pytest.mark.parametrize("shape", [*SHAPES, (3, 20_000), (300, 3)], ids=str)
@every_pair
def test_l2_norm_and_its_derivative(cuda, shape, first, second):
    x, dy, norm = first(normal(*shape)), second(normal(*shape, seed=2)), positive(*shape[:1])
    check(cuda, "l2_norm", [x, second(empty(*shape)), empty(*shape[:1])], {"epsilon": 1e-6})
    check(cuda, "l2_norm_derivative", [dy, x, norm, second(empty(*shape))], {})


def test_l2_norm_of_numbers_whose_squares_overflow(cuda):
    x, y, norm = np.array([[3e30, 4e30], [3e-30, 4e-30]], np.float32), empty(2, 2), empty(2)
    run(cuda, "l2_norm", [x, y, norm], {"epsilon": 0.0})
    np.testing.assert_allclose(y, [[0.6, 0.8], [0.6, 0.8]], rtol=1e-6)
    np.testing.assert_allclose(norm, [5e30, 5e-30], rtol=1e-6)


@pytest.mark.parametrize("layout", [channels_last, piece_of_channels_last, c_order])
def test_strides_do_not_change_the_order_of_sums(cuda, layout):
    """An image as a piece of a larger one, where nothing is aligned, gives the bits of the image by itself."""
    dense = c_order if layout is c_order else channels_last
    x, dy, c = normal(4, 12, 17, 19), normal(4, 12, 17, 19, seed=2), 12

    def results(layout: Any) -> list[bytes]:
        out, statistics = layout(empty(*x.shape)), [empty(c) for _ in range(2)]
        run(cuda, "batch_norm", [layout(x), *vectors(c, 4), out, *statistics], FORWARD)
        dx, gradients = layout(empty(*x.shape)), [empty(c) for _ in range(2)]
        run(cuda, "batch_norm_derivative", [layout(dy), layout(x), *vectors(c, 3), dx, *gradients], {})
        return [np.ascontiguousarray(a).tobytes() for a in (out, *statistics, dx, *gradients)]

    assert results(layout) == results(dense)


RESNET = [(16, 64, 112, 112), (16, 256, 56, 56), (16, 512, 28, 28), (16, 1024, 14, 14), (16, 2048, 7, 7)]


@pytest.mark.parametrize("shape", RESNET, ids=str)
def test_a_whole_gpu_is_kept_busy_by_images_of_nets(shape):
    found = plane((1,), [image(*shape)])
    assert found.blocks >= 256
    assert found.struct["packs"]
    assert int(found.struct["summed"]["axes"]) == 1
    assert found.kept * found.slabs * 8 <= 4 << 20, "scratch"


@pytest.mark.skipif(bool(missing_to_run()), reason=f"the CUDA kernels on the host want {missing_to_run()}")
@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=needs_fma)], ids=["rounded", "fused"])
def test_a_row_of_one_has_no_derivative_however_products_are_rounded(fused):
    """A GPU rounds a product and a sum once, as the host does if it may."""
    kernels = cuda_on_host(Build(fused=fused))
    x, dy, gamma = normal(500, 1), normal(500, 1, seed=2), normal(1, seed=3)
    dx, mean, inv_std = empty(500, 1), x[:, 0].copy(), positive(500)
    run(kernels, "layer_norm_derivative", [dy, x, gamma, mean, inv_std, dx], {})
    np.testing.assert_array_equal(dx, 0)
