"""Normalizations of the oneDNN set: layouts, NaN, sums in pieces, what is served; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernel_case import garbage, run
from layouts import PAIRS, c_order, channels_last, check, image, piece_of_channels_last, serves
from singa_lite.kernels.kernel_set import Form
from singa_lite.kernels.onednn_kernels import channel_sums, running_sums

Array = np.ndarray

#: Channels by which the library picks its code: multiples of 16, 8 and 4, and others.
SHAPES = [(3, 16, 5, 7), (3, 24, 5, 7), (3, 12, 5, 7), (3, 5, 6, 7), (9, 16), (9, 5), (3, 5, 7)]
FORWARD = {"momentum": 0.1, "epsilon": 1e-3}
LAYER = {"epsilon": 1e-3}

every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
every_pair = pytest.mark.parametrize("first, second", PAIRS.values(), ids=PAIRS)


def normal(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def positive(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).uniform(0.5, 2, shape).astype(np.float32)


def vectors(channels: int, count: int) -> list[Array]:
    """Vectors of channels, all positive."""
    return [positive(channels, seed=seed) for seed in range(count)]


def empty(*shape: int) -> Array:
    return garbage(shape, np.float32)


@every_shape
@every_pair
def test_batch_norm(onednn, shape, first, second):
    x, y, c = first(1 + 2 * normal(*shape)), second(empty(*shape)), shape[1]
    check(onednn, "batch_norm", [x, *vectors(c, 4), y, empty(c), empty(c)], FORWARD)
    check(onednn, "batch_norm_inference", [x, *vectors(c, 4), second(empty(*shape))], {"epsilon": 1e-3})


@every_shape
@every_pair
def test_batch_norm_derivative(onednn, shape, first, second):
    dy, x, dx, c = first(normal(*shape)), second(normal(*shape, seed=2)), second(empty(*shape)), shape[1]
    check(onednn, "batch_norm_derivative", [dy, x, *vectors(c, 3), dx, empty(c), empty(c)], {})


@pytest.mark.parametrize("layout", [channels_last, c_order])
@pytest.mark.parametrize("shape", [*SHAPES, (5, 16, 100, 110), (5, 3, 400, 300)], ids=str)
def test_batch_norm_gradient(onednn, layout, shape):
    dy, x, c = layout(normal(*shape)), layout(normal(*shape, seed=2)), shape[1]
    check(onednn, "batch_norm_gradient", [dy, x, *vectors(c, 2), empty(c), empty(c)], {}, roundings=256)


@pytest.mark.parametrize("shape", [(3, 16, 5, 7), (3, 5, 6, 7), (32, 64, 28, 28)], ids=str)
def test_one_nan_spoils_its_channel_alone(onednn, shape):
    x, y, c = channels_last(normal(*shape)), channels_last(empty(*shape)), shape[1]
    x[1, 3, 2, 2] = np.nan
    gamma, beta, running_mean, running_var = vectors(c, 4)
    mean, inv_std = empty(c), empty(c)
    run(onednn, "batch_norm", [x, gamma, beta, running_mean, running_var, y, mean, inv_std], FORWARD)
    for result in (y, running_mean, running_var, mean, inv_std):
        spoilt = np.isnan(np.moveaxis(result, min(1, result.ndim - 1), 0).reshape(c, -1))
        assert spoilt[3].all()
        assert not np.delete(spoilt, 3, axis=0).any()


def test_one_nan_in_inference_spoils_its_element_alone(onednn):
    x = channels_last(normal(3, 16, 5, 7))
    x[1, 3, 2, 2], x[2, 4, 0, 0] = np.nan, -np.inf
    check(onednn, "batch_norm_inference", [x, *vectors(16, 4), channels_last(empty(3, 16, 5, 7))], {"epsilon": 1e-3})


def test_one_value_a_channel(onednn):
    x, c = normal(1, 16), 16
    check(onednn, "batch_norm", [x, *vectors(c, 4), empty(1, c), empty(c), empty(c)], FORWARD)


@pytest.mark.parametrize("mean", [0, 1000])
def test_a_last_group_of_one_short_piece(onednn, monkeypatch, mean):
    """Five images as pieces of two, groups of two pieces: the last group is one piece, which is one image."""
    shape, c = (5, 6, 11, 13), 6  # no other test's: a routine once built is kept
    monkeypatch.setattr(running_sums, "_PIECE", 2 * 6 * 11 * 13)
    monkeypatch.setattr(channel_sums, "_PIECES", 2)
    x = (mean + normal(*shape)).astype(np.float32)
    check(onednn, "batch_norm", [x, *vectors(c, 4), empty(*shape), empty(c), empty(c)], FORWARD, roundings=128)


@pytest.mark.parametrize("layout", [channels_last, piece_of_channels_last])
def test_in_place_gives_equal_bits(onednn, layout):
    shape, c = (3, 16, 25, 70), 16

    def forward(x: Array, y: Array) -> bytes:
        run(onednn, "batch_norm", [x, *vectors(c, 4), y, empty(c), empty(c)], FORWARD)
        return y.tobytes()

    def backward(dy: Array, dx: Array) -> bytes:
        x = layout(normal(*shape, seed=2))
        run(onednn, "batch_norm_derivative", [dy, x, *vectors(c, 3), dx, empty(c), empty(c)], {})
        return dx.tobytes()

    for step in (forward, backward):
        apart, source = layout(empty(*shape)), layout(normal(*shape))
        assert step(source, apart) == step(source, source)


LAYERS = [
    ((3, 5), (7,)),
    ((40,), (128,)),
    ((), (33,)),
    ((2, 3), (4, 5)),
    ((4101,), (130,)),
    ((5,), (1,)),
    ((3,), (40_000,)),
]
every_layer = pytest.mark.parametrize("rows, features", LAYERS, ids=str)


@every_layer
def test_layer_norm(onednn, rows, features):
    shape = rows + features
    x, gamma, beta = 1 + 2 * normal(*shape), normal(*features, seed=2), normal(*features, seed=3)
    check(onednn, "layer_norm", [x, gamma, beta, empty(*shape), empty(*rows), empty(*rows)], LAYER)


@every_layer
def test_layer_norm_derivatives(onednn, rows, features):
    shape = rows + features
    dy, x, gamma = normal(*shape), normal(*shape, seed=2), normal(*features, seed=3)
    mean, inv_std = normal(*rows, seed=4), positive(*rows)
    check(onednn, "layer_norm_derivative", [dy, x, gamma, mean, inv_std, empty(*shape)], {})
    gradients = empty(*features), empty(*features)
    check(onednn, "layer_norm_gradient", [dy, x, mean, inv_std, *gradients], {}, roundings=128)


def test_one_nan_spoils_its_row_alone(onednn):
    x, y, mean, inv_std = normal(9, 40), empty(9, 40), empty(9), empty(9)
    x[4, 7] = np.nan
    run(onednn, "layer_norm", [x, *vectors(40, 2), y, mean, inv_std], LAYER)
    assert np.isnan(y[4]).all()
    assert np.isnan(mean[4])
    assert np.isnan(inv_std[4])
    assert np.isfinite(np.delete(y, 4, axis=0)).all()


def test_the_sums_of_long_layers_take_little_scratch(onednn):
    rows, features = (5000,), (130,)
    tensors = [empty(*rows, *features)] * 2 + [empty(*rows)] * 2 + [empty(*features)] * 2
    assert onednn.scratch_bytes("layer_norm_gradient", tensors, {}) < 9 << 18


def form(*shape: int, dtype: Any = np.float32) -> Form:
    a = np.empty(shape, dtype)
    return Form(a.shape, a.dtype, a.strides)


RESNET = [(16, 64, 112, 112), (16, 256, 56, 56), (16, 512, 28, 28), (16, 1024, 14, 14), (16, 2048, 7, 7)]
MOBILENET = [(16, 32, 112, 112), (16, 24, 56, 56), (16, 144, 28, 28), (16, 1280, 7, 7)]


@pytest.mark.parametrize("shape", RESNET + MOBILENET, ids=str)
def test_images_of_nets_are_served_without_copies(onednn, shape):
    x, v = image(*shape), form(shape[1])
    piece = 3 << 19  # of x less its mean
    calls: dict[str, tuple[list[Form], dict[str, Any]]] = {
        "batch_norm": ([x, v, v, v, v, x, v, v], FORWARD),
        "batch_norm_inference": ([x, v, v, v, v, x], {"epsilon": 1e-5}),
        "batch_norm_derivative": ([x, x, v, v, v, x, v, v], {}),
    }
    for name, (tensors, settings) in calls.items():
        assert onednn.kernels[name].serves(tensors, settings)
        small = 1 << 17 if name == "batch_norm_inference" else piece + 4 * x.size // 16
        assert onednn.kernels[name].scratch_bytes(tensors, settings) < small


def test_what_is_not_served(onednn):
    x, v = form(4, 16, 5, 6), form(16)
    gaps = Form((16,), np.dtype(np.float32), (8,))
    double, doubles = form(4, 16, 5, 6, dtype=np.float64), form(16, dtype=np.float64)
    backwards = Form((4, 16, 5, 6), np.dtype(np.float32), (-1920, 120, 24, 4))
    repeated = Form((4, 16, 5, 6), np.dtype(np.float32), (0, 120, 24, 4))
    volume = form(4, 16, 5, 6, 3)

    def norms(x: Form, v: Form, w: Form) -> bool:
        return bool(onednn.kernels["batch_norm"].serves((x, v, v, v, v, x, v, w), FORWARD))

    assert norms(x, v, v)
    assert not norms(x, v, gaps)
    assert not norms(double, doubles, doubles)
    assert not any(norms(tensor, v, v) for tensor in (backwards, repeated, volume))


def test_gradients_that_are_not_served(onednn):
    piece = piece_of_channels_last(normal(4, 16, 5, 6))
    assert not serves(onednn, "batch_norm_gradient", [piece, piece, *vectors(16, 4)], {})
    turned = normal(6, 9).T
    assert not serves(onednn, "layer_norm_gradient", [turned, turned, *vectors(9, 2), *vectors(6, 2)], {})
