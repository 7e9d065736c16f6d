"""Pooling of the CUDA set: layouts, ties, NaN, windows that threads share, halves; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import layouts
import numpy as np
import pytest
from layouts import PAIRS, c_order, channels_last, image, serves
from test_onednn_pooling import WINDOWS
from test_pooling import index_dtype, output_shape

from kernel_case import garbage, run
from singa_lite.kernels.cuda_kernels import pooling
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY

Array = np.ndarray
Settings = dict[str, Any]

#: Whole packs of channels, and a few more.
CHANNELS = [16, 18]
#: Windows of more than 8 * LEAST_TAPS taps, which threads share if there are few; some reach far into the padding.
WIDE: dict[str, Settings] = {
    "whole image": {"window": Window((11, 13))},
    "overlapping": {"window": Window((9, 8), (2, 3), (4, 5, 7, 0))},
    "more than 256 places": {"window": Window((17, 16), (1, 3), (3, 4, 2, 5))},
    "of one column": {"window": Window((11, 1), (1, 5), (2, 0, 0, 0))},
}

every_window = pytest.mark.parametrize("settings", WINDOWS.values(), ids=WINDOWS)
wide_windows = pytest.mark.parametrize("settings", WIDE.values(), ids=WIDE)
counts = pytest.mark.parametrize("count_pad", [False, True], ids=["of x", "of all"])


def at_an_odd_place(a: Array) -> Array:
    """The same values as some channels of a larger tensor: strides of whole packs, but not the first address."""
    whole = channels_last(np.zeros((a.shape[0], a.shape[1] + 8 - a.shape[1] % 4, *a.shape[2:]), a.dtype))
    whole[:, 2 : 2 + a.shape[1]] = a
    return whole[:, 2 : 2 + a.shape[1]]


LAYOUTS = {**PAIRS, "at odd places": (at_an_odd_place, at_an_odd_place)}
every_pair = pytest.mark.parametrize("first, second", LAYOUTS.values(), ids=LAYOUTS)


def normal(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def results(shape: tuple[int, ...], settings: Settings, dtype: Any = np.float32) -> tuple[Array, Array]:
    """y and index, before."""
    of_y = output_shape(shape, settings["window"])
    return garbage(of_y, dtype), garbage(of_y, index_dtype(settings["window"]))


def maximum(cuda: KernelSet, x: Array, first: Any, second: Any, settings: Settings) -> tuple[Array, Array]:
    """y and index, checked with the index and without."""
    y, index = results(x.shape, settings)
    y, index = second(y), first(index)
    layouts.check(cuda, "max_pool2d", [first(x), y.copy(order="K"), None], settings, 0)
    layouts.check(cuda, "max_pool2d", [first(x), y, index], settings, 0)
    return y, index


@pytest.mark.parametrize("channels", CHANNELS)
@every_window
@every_pair
def test_maximum_and_its_derivative(cuda, settings, first, second, channels):
    x = normal(3, channels, 7, 9)
    y, index = maximum(cuda, x, first, second, settings)
    dx = first(garbage(x.shape, np.float32))
    layouts.check(cuda, "max_pool2d_derivative", [second(normal(*y.shape, seed=2)), index, dx], settings)


@pytest.mark.parametrize("channels", CHANNELS)
@counts
@every_window
@every_pair
def test_average_and_its_derivative(cuda, settings, count_pad, first, second, channels):
    shape, own = (3, channels, 7, 9), {**settings, "count_pad": count_pad}
    y, _ = results(shape, settings)
    layouts.check(cuda, "avg_pool2d", [first(normal(*shape)), second(y)], own)
    dy, dx = normal(*y.shape, seed=2), garbage(shape, np.float32)
    layouts.check(cuda, "avg_pool2d_derivative", [second(dy), first(dx)], own)


@wide_windows
@pytest.mark.parametrize("first, second", [PAIRS["channels last"], PAIRS["c order"], (at_an_odd_place, c_order)])
def test_wide_windows(cuda, settings, first, second):
    """In the maximum, few values many times over: the first place wins, whatever thread found it."""
    x = np.random.default_rng(3).integers(-2, 3, (2, 8, 11, 13)).astype(np.float32)
    y, index = maximum(cuda, x, first, second, settings)
    dy = normal(*y.shape, seed=2)
    layouts.check(cuda, "max_pool2d_derivative", [second(dy), index, first(garbage(x.shape, np.float32))], settings)
    for count_pad in (False, True):
        own = {**settings, "count_pad": count_pad}
        layouts.check(cuda, "avg_pool2d", [first(normal(*x.shape)), second(garbage(y.shape, np.float32))], own)


def test_wide_windows_are_shared_while_there_are_few():
    whole = {"window": Window((56, 56)), "count_pad": False}
    for images, lanes in ((1, 64), (32, 64), (2048, 2), (8192, 1)):
        routine = pooling.avg_pool2d(image(images, 256, 56, 56), image(images, 256, 1, 1), **whole)
        if images * 256 * 56 * 56 >= 2**31:
            assert routine is None, "more places than are counted"
            continue
        (launch,) = routine.launches
        assert (int(launch.arguments[1]) if launch.file == "pooling_lanes.cu" else 1) == lanes


@pytest.mark.parametrize("settings", [*WINDOWS.values(), *WIDE.values()], ids=[*WINDOWS, *(f"wide, {k}" for k in WIDE)])
@pytest.mark.parametrize("values", [(np.nan,), (-np.inf,), (np.inf,), (np.nan, -np.inf), (np.inf, -np.inf, np.nan)])
def test_nan_and_infinities(cuda, settings, values):
    """Few in one image, many in another, and channels full of them."""
    x, rng = normal(4, 8, 11, 13), np.random.default_rng(5)
    for sample, share in ((1, 0.03), (2, 0.7)):
        hit = rng.random(x[sample].shape) < share
        x[sample][hit] = rng.choice(np.array(values, np.float32), hit.sum())
    x[3, 7] = values[0]
    maximum(cuda, x, channels_last, channels_last, settings)
    maximum(cuda, x, c_order, c_order, settings)
    for count_pad in (False, True):
        y, _ = results(x.shape, settings)
        layouts.check(cuda, "avg_pool2d", [channels_last(x), channels_last(y)], {**settings, "count_pad": count_pad})


def test_infinite_slopes_stay_with_the_winner(cuda):
    x = channels_last(normal(2, 8, 7, 9))
    settings = WINDOWS["of ResNet"]
    _, index = maximum(cuda, x, channels_last, channels_last, settings)
    dy = channels_last(np.full(index.shape, np.inf, np.float32))
    dx = channels_last(garbage(x.shape, np.float32))
    run(cuda, "max_pool2d_derivative", [dy, index, dx], settings)
    assert set(np.unique(dx)) == {0, np.inf}


@pytest.mark.parametrize("settings", [WINDOWS["of ResNet"], WIDE["overlapping"]], ids=["small", "wide"])
def test_bits_are_the_same_in_all_layouts(cuda, settings):
    """Users' images are in C order, a net's lie channels last; the same batch then gives the same loss."""
    x, found = normal(2, 8, 11, 13), []
    for first, second in LAYOUTS.values():
        y, _ = results(x.shape, settings)
        y, dx = second(y), first(garbage(x.shape, np.float32))
        run(cuda, "avg_pool2d", [first(x), y], {**settings, "count_pad": False})
        run(cuda, "avg_pool2d_derivative", [y, dx], {**settings, "count_pad": False})
        found.append((y.tobytes(), dx.tobytes()))
    assert len(set(found)) == 1


@every_window
def test_halves_are_summed_in_float32(cuda, settings):
    x = normal(2, 16, 7, 9).astype(np.float16)
    y, index = results(x.shape, settings, np.float16)
    y, index = channels_last(y), channels_last(index)
    run(cuda, "max_pool2d", [channels_last(x), y, index], settings)
    exact, places = results(x.shape, settings, np.float64)
    run(NUMPY, "max_pool2d", [x.astype(np.float64), exact, places], settings)
    np.testing.assert_array_equal(y, exact)
    np.testing.assert_array_equal(index, places)
    run(cuda, "avg_pool2d", [channels_last(x), y], {**settings, "count_pad": False})
    run(NUMPY, "avg_pool2d", [x.astype(np.float64), exact], {**settings, "count_pad": False})
    np.testing.assert_allclose(y, exact, rtol=2**-11, atol=1e-6)


def test_what_is_not_served(cuda):
    x, y = np.zeros((2, 4, 4, 6), np.int32), np.zeros((2, 4, 2, 3), np.int32)
    assert not serves(cuda, "max_pool2d", [x, y, None], WINDOWS["halving"])
    assert not serves(cuda, "max_pool2d", [x.astype("f4"), y.astype("f8"), None], WINDOWS["halving"])
