"""Pooling of the oneDNN set: what is served, and with how much scratch; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernel_case import garbage
from layouts import PAIRS, c_order, channels_last, check, image, piece_in_c_order, serves
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import TensorSpec
from test_pooling_values import WINDOWS, index_dtype, output_shape

Array = np.ndarray
Settings = dict[str, Any]

every_pair = pytest.mark.parametrize("first, second", PAIRS.values(), ids=PAIRS)
both_layouts = pytest.mark.parametrize("layout", [channels_last, c_order])


def normal(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def results(shape: tuple[int, ...], settings: Settings) -> tuple[Array, Array]:
    """y and index, before."""
    of_y = output_shape(shape, settings["window"])
    return garbage(of_y, np.float32), garbage(of_y, index_dtype(settings["window"]))


@pytest.mark.parametrize("settings", WINDOWS.values(), ids=WINDOWS)
@every_pair
def test_which_layouts_are_served(onednn, settings, first, second):
    """For C order the library has but plain loops on older CPUs; what comes of all calls is in the contract."""
    x = normal(3, 18, 7, 9)
    y, index = results(x.shape, settings)
    averages = {**settings, "count_pad": True}
    for name, tensors, own in (
        ("max_pool2d", [first(x), second(y), first(index)], settings),
        ("max_pool2d", [first(x), second(y), None], settings),
        ("max_pool2d_derivative", [first(y), second(index), first(x)], settings),
        ("avg_pool2d", [first(x), second(y)], averages),
        ("avg_pool2d_derivative", [first(y), second(x)], averages),
    ):
        in_c_order = tensors[0].flags.c_contiguous or first is piece_in_c_order
        assert in_c_order or serves(onednn, name, tensors, own)


@both_layouts
@pytest.mark.parametrize("kernel, served", [((15, 17), True), ((16, 16), False), ((17, 16), True)], ids=str)
def test_windows_around_256_places(onednn, layout, kernel, served):
    """The library counts with 32 bits from 256 places on, the interface from 257 places on."""
    x, settings = normal(2, 18, 18, 19), {"window": Window(kernel, pad=(1, 0, 0, 2))}
    if served:
        y, index = (layout(result) for result in results(x.shape, settings))
        check(onednn, "max_pool2d", [layout(x), y, index], settings, 0, always=layout is channels_last)
        dx = layout(garbage(x.shape, np.float32))
        call = [layout(normal(*y.shape)), index, dx]
        check(onednn, "max_pool2d_derivative", call, settings, always=layout is channels_last)
    else:
        y, index = (layout(result) for result in results(x.shape, settings))
        assert not serves(onednn, "max_pool2d", [layout(x), y, index], settings)
        assert not serves(onednn, "max_pool2d_derivative", [y, index, layout(x)], settings)


NETS: dict[str, tuple[tuple[int, ...], Settings]] = {
    "ResNet": ((16, 64, 112, 112), WINDOWS["of ResNet"]),
    "VGG": ((8, 64, 224, 224), WINDOWS["halving"]),
    "LeNet": ((64, 6, 28, 28), WINDOWS["halving"]),
    "end of ResNet": ((16, 2048, 7, 7), {"window": Window((7, 7))}),
    "Inception": ((16, 192, 28, 28), {"window": Window((3, 3), pad=(1, 1, 1, 1))}),
}


@pytest.mark.parametrize("shape, settings", NETS.values(), ids=NETS)
def test_pools_of_nets_are_served_without_copies(onednn, shape, settings):
    of_y = output_shape(shape, settings["window"])
    x, y, index, small = image(*shape), image(*of_y), image(*of_y, dtype=np.uint8), 1 << 18
    averages = {**settings, "count_pad": True}
    calls: dict[str, tuple[tuple[TensorSpec | None, ...], Settings]] = {
        "max_pool2d": ((x, y, index), settings),
        "max_pool2d_derivative": ((y, index, x), settings),
        "avg_pool2d": ((x, y), averages),
        "avg_pool2d_derivative": ((y, x), averages),
    }
    for name, (tensors, own) in calls.items():
        assert onednn.kernels[name].serves(tensors, own)
        assert onednn.kernels[name].scratch_bytes(tensors, own) < small


def test_what_is_not_served(onednn):
    settings = WINDOWS["halving"]
    few, half = np.zeros((4, 3, 8, 10), np.float32), np.zeros((4, 3, 4, 5), np.float32)
    assert serves(onednn, "max_pool2d", [channels_last(few), channels_last(half), None], settings)
    assert not serves(onednn, "max_pool2d", [few, half, None], settings), "plain loops"
    double = [channels_last(a.astype(np.float64)) for a in (few, half)]
    assert not serves(onednn, "max_pool2d", [*double, None], settings)
    assert not serves(onednn, "avg_pool2d", double, {**settings, "count_pad": True})
    repeated = np.broadcast_to(half[:1], half.shape)
    assert not serves(onednn, "avg_pool2d_derivative", [repeated, few], {**settings, "count_pad": True})
