"""Pooling of the oneDNN set: layouts, ties, NaN, infinities, windows, what is served; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import layouts
import numpy as np
import pytest
from layouts import PAIRS, c_order, channels_last, image, serves
from test_pooling import index_dtype, output_shape

from kernel_case import garbage
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import KernelSet, TensorSpec

Array = np.ndarray
Settings = dict[str, Any]

#: Windows by what is special about them.
WINDOWS: dict[str, Settings] = {
    "halving": {"window": Window((2, 2), (2, 2))},
    "of ResNet": {"window": Window((3, 3), (2, 2), (1, 1, 1, 1))},
    "overlapping": {"window": Window((3, 2), pad=(2, 0, 0, 1))},
    "sparse": {"window": Window((2, 1), (3, 4), (1, 0, 0, 0))},
    "whole image": {"window": Window((7, 9))},
    "mostly padding": {"window": Window((5, 4), (1, 3), (4, 3, 3, 2))},
}

every_window = pytest.mark.parametrize("settings", WINDOWS.values(), ids=WINDOWS)
every_pair = pytest.mark.parametrize("first, second", PAIRS.values(), ids=PAIRS)
both_layouts = pytest.mark.parametrize("layout", [channels_last, c_order])
counts = pytest.mark.parametrize("count_pad", [False, True], ids=["of x", "of all"])


def normal(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def results(shape: tuple[int, ...], settings: Settings) -> tuple[Array, Array]:
    """y and index, before."""
    of_y = output_shape(shape, settings["window"])
    return garbage(of_y, np.float32), garbage(of_y, index_dtype(settings["window"]))


def check(onednn: KernelSet, name: str, tensors: layouts.Tensors, settings: Settings) -> None:
    """For C order the library has but plain loops on older CPUs."""
    first = tensors[0]
    layouts.check(onednn, name, tensors, settings, always=first is None or not first.flags.c_contiguous)


def maximum(onednn: KernelSet, x: Array, layout: Any, settings: Settings) -> tuple[Array, Array]:
    """y and index, checked with the index and without."""
    y, index = (layout(result) for result in results(x.shape, settings))
    check(onednn, "max_pool2d", [layout(x), y.copy(order="K"), None], settings)
    check(onednn, "max_pool2d", [layout(x), y, index], settings)
    return y, index


@every_window
@every_pair
def test_max_pool2d(onednn, settings, first, second):
    x = normal(3, 18, 7, 9)
    y, index = results(x.shape, settings)
    check(onednn, "max_pool2d", [first(x), second(y), first(index)], settings)
    check(onednn, "max_pool2d", [first(x), second(y), None], settings)


@every_window
@every_pair
def test_max_pool2d_derivative(onednn, settings, first, second):
    x = normal(3, 18, 7, 9)
    _, index = maximum(onednn, x, c_order, settings)
    dy = normal(*index.shape, seed=2)
    check(onednn, "max_pool2d_derivative", [first(dy), second(index), first(garbage(x.shape, np.float32))], settings)


@counts
@every_window
@every_pair
def test_avg_pool2d(onednn, settings, count_pad, first, second):
    x, settings = normal(3, 18, 7, 9), {**settings, "count_pad": count_pad}
    y = garbage(output_shape(x.shape, settings["window"]), np.float32)
    check(onednn, "avg_pool2d", [first(x), second(y)], settings)
    dx = garbage(x.shape, np.float32)
    check(onednn, "avg_pool2d_derivative", [first(normal(*y.shape, seed=2)), second(dx)], settings)


@every_window
@both_layouts
def test_the_first_of_equal_elements_wins(onednn, settings, layout):
    maximum(onednn, np.sign(normal(3, 18, 7, 9)), layout, settings)
    maximum(onednn, np.zeros((3, 18, 7, 9), np.float32), layout, settings)


@every_window
@both_layouts
@pytest.mark.parametrize("values", [(np.nan,), (-np.inf,), (np.inf,), (np.nan, -np.inf), (np.inf, -np.inf, np.nan)])
def test_nan_and_infinities(onednn, settings, layout, values):
    """Few in one image, many in another, and channels full of them."""
    x, rng = normal(4, 18, 7, 9), np.random.default_rng(5)
    for sample, share in ((1, 0.03), (2, 0.7)):
        hit = rng.random(x[sample].shape) < share
        x[sample][hit] = rng.choice(np.array(values, np.float32), hit.sum())
    x[3, 7] = values[0]
    maximum(onednn, x, layout, settings)


@both_layouts
@pytest.mark.parametrize("value", [np.finfo(np.float32).min, np.finfo(np.float32).max])
def test_the_least_and_the_largest_number(onednn, layout, value):
    x = normal(2, 18, 7, 9)
    x[1, 5] = value
    maximum(onednn, x, layout, WINDOWS["of ResNet"])


@counts
@both_layouts
def test_nan_and_infinities_in_averages(onednn, count_pad, layout):
    x = normal(3, 18, 7, 9)
    x[1, 2, 3, 4], x[1, 3, 0, 0], x[2, 4, 6, 8], x[2, 4, 5, 8] = np.nan, np.inf, np.inf, -np.inf
    settings = WINDOWS["of ResNet"]
    y, _ = results(x.shape, settings)
    check(onednn, "avg_pool2d", [layout(x), layout(y)], {**settings, "count_pad": count_pad})


@both_layouts
@pytest.mark.parametrize("kernel, served", [((15, 17), True), ((16, 16), False), ((17, 16), True)], ids=str)
def test_windows_around_256_places(onednn, layout, kernel, served):
    """The library counts with 32 bits from 256 places on, the interface from 257 places on."""
    x, settings = normal(2, 18, 18, 19), {"window": Window(kernel, pad=(1, 0, 0, 2))}
    if served:
        y, index = maximum(onednn, x, layout, settings)
        dx = layout(garbage(x.shape, np.float32))
        check(onednn, "max_pool2d_derivative", [layout(normal(*y.shape)), index, dx], settings)
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
