"""Normalizations of the oneDNN set: what is served, sums in pieces, scratch; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernel_case import run
from layouts import PAIRS, c_order, channels_last, check, image, piece_of_channels_last, serves
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels import channel_sums, running_sums
from test_normalization_values import FORWARD, empty, normal, positive, vectors

Array = np.ndarray

LAYER = {"epsilon": 1e-3}

#: Channels by which the library picks its code: multiples of 16, 8 and 4, and others; one value a channel.
SHAPES = [(3, 16, 5, 7), (3, 24, 5, 7), (3, 12, 5, 7), (3, 5, 6, 7), (9, 16), (9, 5), (3, 5, 7), (1, 16)]
LAYERS = [((3, 5), (7,)), ((40,), (128,)), ((), (33,)), ((2, 3), (4, 5)), ((5,), (1,))]

every_pair = pytest.mark.parametrize("first, second", PAIRS.values(), ids=PAIRS)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@every_pair
def test_which_layouts_are_served(onednn, shape, first, second):
    x, y, v = first(normal(*shape)), second(normal(*shape)), normal(shape[1])
    assert serves(onednn, "batch_norm", [x, v, v, v, v, y, v, v], FORWARD)
    assert serves(onednn, "batch_norm_inference", [x, v, v, v, v, y], {"epsilon": 1e-3})
    assert serves(onednn, "batch_norm_derivative", [x, y, v, v, v, y, v, v], {})


@pytest.mark.parametrize("rows, features", LAYERS, ids=str)
def test_which_rows_are_served(onednn, rows, features):
    x, v, r = empty(*rows, *features), empty(*features), empty(*rows)
    assert serves(onednn, "layer_norm", [x, v, v, x, r, r], LAYER)
    assert serves(onednn, "layer_norm_derivative", [x, x, v, r, r, x], {})
    assert serves(onednn, "layer_norm_gradient", [x, x, r, r, v, v], {})


@pytest.mark.parametrize("layout", [channels_last, c_order])
@pytest.mark.parametrize("shape", [*SHAPES, (5, 16, 100, 110), (5, 3, 400, 300)], ids=str)
def test_batch_norm_gradient(onednn, layout, shape):
    dy, x, c = layout(normal(*shape)), layout(normal(*shape, seed=2)), shape[1]
    check(onednn, "batch_norm_gradient", [dy, x, *vectors(c, 2), empty(c), empty(c)], {}, roundings=256)


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


#: Many rows, and long ones.
every_layer = pytest.mark.parametrize("rows, features", [((4101,), (130,)), ((3,), (40_000,))], ids=str)


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


def test_the_sums_of_long_layers_take_little_scratch(onednn):
    rows, features = (5000,), (130,)
    tensors = [empty(*rows, *features)] * 2 + [empty(*rows)] * 2 + [empty(*features)] * 2
    assert onednn.scratch_bytes("layer_norm_gradient", tensors, {}) < 9 << 18


def spec(*shape: int, dtype: Any = np.float32) -> TensorSpec:
    a = np.empty(shape, dtype)
    return TensorSpec(a.shape, a.dtype, a.strides)


RESNET = [(16, 64, 112, 112), (16, 256, 56, 56), (16, 512, 28, 28), (16, 1024, 14, 14), (16, 2048, 7, 7)]
MOBILENET = [(16, 32, 112, 112), (16, 24, 56, 56), (16, 144, 28, 28), (16, 1280, 7, 7)]


@pytest.mark.parametrize("shape", RESNET + MOBILENET, ids=str)
def test_images_of_nets_are_served_without_copies(onednn, shape):
    x, v = image(*shape), spec(shape[1])
    piece = 3 << 19  # of x less its mean
    calls: dict[str, tuple[list[TensorSpec], dict[str, Any]]] = {
        "batch_norm": ([x, v, v, v, v, x, v, v], FORWARD),
        "batch_norm_inference": ([x, v, v, v, v, x], {"epsilon": 1e-5}),
        "batch_norm_derivative": ([x, x, v, v, v, x, v, v], {}),
    }
    for name, (tensors, settings) in calls.items():
        assert onednn.kernels[name].serves(tensors, settings)
        small = 1 << 17 if name == "batch_norm_inference" else piece + 4 * x.size // 16
        assert onednn.kernels[name].scratch_bytes(tensors, settings) < small


def test_what_is_not_served(onednn):
    x, v = spec(4, 16, 5, 6), spec(16)
    gaps = TensorSpec((16,), np.dtype(np.float32), (8,))
    double, doubles = spec(4, 16, 5, 6, dtype=np.float64), spec(16, dtype=np.float64)
    backwards = TensorSpec((4, 16, 5, 6), np.dtype(np.float32), (-1920, 120, 24, 4))
    repeated = TensorSpec((4, 16, 5, 6), np.dtype(np.float32), (0, 120, 24, 4))
    volume = spec(4, 16, 5, 6, 3)

    def norms(x: TensorSpec, v: TensorSpec, w: TensorSpec) -> bool:
        return bool(onednn.kernels["batch_norm"].serves((x, v, v, v, v, x, v, w), FORWARD))

    assert norms(x, v, v)
    assert not norms(x, v, gaps)
    assert not norms(double, doubles, doubles)
    assert not any(norms(tensor, v, v) for tensor in (backwards, repeated, volume))


def test_gradients_that_are_not_served(onednn):
    last, plain = piece_of_channels_last(normal(4, 16, 5, 6)), normal(4, 16, 5, 6)
    assert serves(onednn, "batch_norm_gradient", [last, last, *vectors(16, 4)], {})
    assert not serves(onednn, "batch_norm_gradient", [last, plain, *vectors(16, 4)], {})
    turned = normal(6, 9).T
    assert not serves(onednn, "layer_norm_gradient", [turned, turned, *vectors(9, 2), *vectors(6, 2)], {})
