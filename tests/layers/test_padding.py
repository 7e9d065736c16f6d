"""`padding`, Keras's: pads by extents and stride. Kernels of powers of ten show which element came from where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import singa_lite
from run_layer import prepared, run
from singa_lite import FeedForwardNet, layers
from singa_lite.layer import Layer

TENS = {"weight": [1, 10, 100], "bias": [0]}


def sequence(*values: float) -> np.ndarray:
    return np.array(values, "f4").reshape(1, 1, -1)


@pytest.mark.parametrize(
    ("layer", "x", "wanted"),
    [
        (layers.Conv1D("c", 1, 3, 2, padding="same"), (1, 2, 3, 4), [321, 43]),  # one pad, behind
        (layers.Conv1D("c", 1, 3, 2, padding="same"), (1, 2, 3, 4, 5), [210, 432, 54]),  # one at each end
        (layers.Conv1D("c", 1, 3, 2, border_mode="same"), (1, 2, 3, 4), [210, 432]),
        (layers.Conv1D("c", 1, 3, 2, padding="valid"), (1, 2, 3, 4), [321]),
        (layers.Conv1D("c", 1, 3, 2, padding="causal"), (1, 2, 3, 4), [100, 321]),
        (layers.Conv1D("c", 1, 3, dilation=2, padding="causal"), (1, 2, 3), [100, 200, 310]),
        (layers.Conv1D("c", 1, 3, dilation=2, padding="same"), (1, 2, 3), [310, 20, 31]),
    ],
)
def test_a_convolution_of_sequences(layer, x, wanted):
    np.testing.assert_array_equal(run(layer, sequence(*x), parameters=TENS).ravel(), wanted)


def test_an_even_kernel_has_its_pad_behind():
    x = np.arange(1.0, 5).reshape(1, 1, 2, 2)
    layer = layers.Conv2D("c", 1, 2, padding="same")
    y = run(layer, x, parameters={"weight": [1, 10, 100, 1000], "bias": [0]})
    np.testing.assert_array_equal(y.reshape(2, 2), [[4321, 402], [43, 4]])


@pytest.mark.parametrize(
    ("layer", "wanted"),
    [
        (layers.AvgPooling1D("p", 3, 2, padding="same"), [2, 3.5]),
        (layers.AvgPooling1D("p", 3, 2, padding="same", count_pad=True), [2, 7 / 3]),
        (layers.AvgPooling1D("p", 3, 2, pad=1), [1, 3]),
        (layers.MaxPooling1D("p", 3, 2, padding="same"), [3, 4]),
        (layers.MaxPooling1D("p", padding="valid"), [2, 4]),  # two by two, as Keras's
        (layers.MaxPooling1D("p", 3, padding="same"), [2, 4]),
        (layers.MaxPooling1D("p"), [2, 4]),
    ],
)
def test_poolings(layer, wanted):
    np.testing.assert_allclose(run(layer, sequence(1, 2, 3, 4)).ravel(), wanted, 1e-6)


def test_a_transposed_convolution_makes_the_image_as_large_as_its_stride_says():
    """y of a kernel of 3 and a stride of 2: the products at 2i, 2i + 1 and 2i + 2, without the last one."""
    layer = layers.Conv1DTranspose("c", 1, 3, 2, padding="same")
    np.testing.assert_array_equal(run(layer, sequence(1, 2), parameters=TENS).ravel(), [1, 10, 102, 20])
    layer = layers.Conv1DTranspose("c", 1, 3, 2, padding="valid")
    np.testing.assert_array_equal(run(layer, sequence(1, 2), parameters=TENS).ravel(), [1, 10, 102, 20, 200])
    for padding in ("same", "valid"):  # no kernel reaches the third of each three
        layer = layers.Conv1DTranspose("c", 1, 2, 3, padding=padding)
        y = run(layer, sequence(1, 2), parameters={"weight": [1, 10], "bias": [0]})
        np.testing.assert_array_equal(y.ravel(), [1, 10, 0, 2, 20, 0])


IMAGES: dict[str, tuple[Layer, tuple[int, ...], tuple[int, int, int, int]]] = {
    "even extents": (layers.Conv2D("c", 2, 3, 2, padding="same"), (2, 8, 6), (0, 1, 0, 1)),
    "odd extents": (layers.Conv2D("c", 2, 3, 2, padding="same"), (2, 7, 6), (1, 1, 0, 1)),
    "stride of one": (layers.Conv2D("c", 2, (3, 4), padding="same"), (2, 7, 6), (1, 1, 1, 2)),
    "stride beyond the kernel": (layers.MaxPooling2D("c", 1, 3, padding="same"), (2, 7, 6), (0, 0, 0, 0)),
    "depthwise": (layers.DepthwiseConv2D("c", 5, 2, padding="same"), (2, 8, 9), (1, 2, 2, 2)),
    "separable": (layers.SeparableConv2D("c", 3, 2, padding="same"), (2, 8, 9), (0, 1, 0, 1)),
    "transposed": (layers.Conv2DTranspose("c", 3, (4, 5), 2, padding="same"), (2, 8, 9), (1, 1, 1, 2)),
}


@pytest.mark.parametrize("name", IMAGES)
def test_pads_by_the_extents_of_images(name):
    layer, shape, pad = IMAGES[name]
    prepared(layer, shape)
    assert layer.window.pad == pad


@pytest.mark.parametrize("options", [{"padding": "same"}, {"padding": "valid"}])
def test_a_net_is_made_again_with_its_padding(options: dict[str, Any], tmp_path):
    net = FeedForwardNet(seed=1)
    net.add(layers.Conv2D("c", 4, 2, 2, input_sample_shape=(3, 7, 6), **options))
    net.add(layers.AvgPooling2D("p", **options))
    net.save(tmp_path / "net.h5")
    x = np.random.default_rng(2).normal(size=(5, 3, 7, 6)).astype("f4")
    np.testing.assert_array_equal(singa_lite.load(tmp_path / "net.h5").predict(x), net.predict(x))
