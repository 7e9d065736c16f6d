"""Pooling by every kernel set against plain loops: ties, NaN, infinities, windows of all kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from every_set import CHAIN, every_library_set
from kernel_case import garbage, run
from layouts import LAYOUTS, PAIRS, Layout, at_an_odd_place, c_order, channels_last, check
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import KernelSet

Array = np.ndarray
Settings = dict[str, Any]

#: Windows by what is special about them; of an image of 11 x 13 or more.
WINDOWS: dict[str, Settings] = {
    "halving": {"window": Window((2, 2), (2, 2))},
    "of ResNet": {"window": Window((3, 3), (2, 2), (1, 1, 1, 1))},
    "overlapping": {"window": Window((3, 2), pad=(2, 0, 0, 1))},
    "sparse": {"window": Window((2, 1), (3, 4), (1, 0, 0, 0))},
    "whole image": {"window": Window((7, 9))},
    "mostly padding": {"window": Window((5, 4), (1, 3), (4, 3, 3, 2))},
}
#: Windows of many places, which a GPU's threads share if there are few; some reach far into the padding.
WIDE: dict[str, Settings] = {
    "wide, whole image": {"window": Window((11, 13))},
    "wide, overlapping": {"window": Window((9, 8), (2, 3), (4, 5, 7, 0))},
    "wide, more than 256 places": {"window": Window((17, 16), (1, 3), (3, 4, 2, 5))},
    "wide, of one column": {"window": Window((11, 1), (1, 5), (2, 0, 0, 0))},
}

ALL = WINDOWS | WIDE
every_window = pytest.mark.parametrize("settings", ALL.values(), ids=ALL)
counts = pytest.mark.parametrize("count_pad", [False, True], ids=["of x", "of all"])
#: What stands among the numbers: NaN, the infinities, and the least and the largest number.
LEAST, LARGEST = float(np.finfo(np.float32).min), float(np.finfo(np.float32).max)
BAD = [(np.nan,), (-np.inf,), (np.inf,), (np.nan, -np.inf), (np.inf, -np.inf, np.nan), (LEAST,), (LARGEST,)]


def normal(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def output_shape(shape: tuple[int, ...], window: Window) -> tuple[int, ...]:
    """y's shape."""
    return *shape[:2], *window.positions("y", (shape[2], shape[3]))


def index_dtype(window: Window) -> type:
    """As the interface has it."""
    return np.uint8 if window.taps <= 256 else np.int32


def windows_of(x: Array, window: Window) -> tuple[Array, Array]:
    """(n, c, oh, ow, places): the elements of each window, and which of them lie within x."""
    top, bottom, left, right = window.pad
    pads = (0, 0), (0, 0), (top, bottom), (left, right)

    def slid(a: Array) -> Array:
        views = np.lib.stride_tricks.sliding_window_view(a, window.kernel, axis=(2, 3))
        return views[:, :, :: window.stride[0], :: window.stride[1]].reshape(*output_shape(x.shape, window), -1)

    return slid(np.pad(x, pads)), slid(np.pad(np.ones(x.shape, bool), pads))


def maximum(x: Array, window: Window) -> tuple[Array, Array]:
    """y and index: the first NaN of a window, else the first of its largest elements; never padding."""
    values, within = windows_of(x, window)
    rank = np.where(np.isnan(values), 2.0, np.where(np.isposinf(values), 1.0, np.where(np.isneginf(values), -1.0, 0)))
    rank[~within] = -2
    order = np.lexsort((-np.where(rank == 0, values, 0), -rank))  # stable: of equal ones the first
    index = order[..., :1]
    return np.take_along_axis(values, index, -1)[..., 0], index[..., 0]


def average(x: Array, window: Window, count_pad: bool) -> Array:
    """y of the average."""
    values, within = windows_of(x.astype(np.float64), window)
    return values.sum(-1) / (window.taps if count_pad else within.sum(-1))


def spread(shares: Array, shape: tuple[int, ...], window: Window) -> Array:
    """dx of the sums of windows: shares (n, c, oh, ow, places) added to the elements that lie there."""
    numbers = np.arange(1, 1 + int(np.prod(shape))).reshape(shape)
    places, _ = windows_of(numbers, window)
    sums = np.bincount(places.reshape(-1), shares.reshape(-1), numbers.size + 1)
    return sums[1:].reshape(shape)  # number 0 is the padding


def is_near(got: Array, wanted: Array, roundings: int = 32) -> None:
    """To 32 roundings of the largest element."""
    atol = roundings * np.finfo(got.dtype).eps * np.abs(wanted).max()
    np.testing.assert_allclose(got, wanted, rtol=0, atol=atol)


def check_all(kernels: KernelSet, x: Array, first: Layout, second: Layout, settings: Settings) -> None:
    """Maximum and averages with their derivatives, x and all like it in one layout, y in the other."""
    window = settings["window"]
    shape = output_shape(x.shape, window)
    dy, wanted, index = normal(*shape, seed=2).astype(x.dtype), *maximum(x, window)
    for at in (None, first(garbage(shape, index_dtype(window)))):
        y = second(garbage(shape, x.dtype))
        run(kernels, "max_pool2d", [first(x), y, at], settings)
        np.testing.assert_array_equal(y, wanted)
        np.testing.assert_array_equal(index if at is None else at, index)
    dx = first(garbage(x.shape, x.dtype))
    run(kernels, "max_pool2d_derivative", [second(dy), first(index.astype(index_dtype(window))), dx], settings)
    wins = index[..., None] == np.arange(window.taps)
    is_near(dx, spread(dy[..., None] * wins, x.shape, window))
    counts = windows_of(x, window)[1].sum(-1)
    for count_pad in (False, True):
        run(kernels, "avg_pool2d", [first(x), y], {**settings, "count_pad": count_pad})
        is_near(y, average(x, window, count_pad))
        run(kernels, "avg_pool2d_derivative", [second(dy), dx], {**settings, "count_pad": count_pad})
        share = dy / (window.taps if count_pad else counts)
        is_near(dx, spread(np.broadcast_to(share[..., None], (*shape, window.taps)), x.shape, window))


@every_library_set
@pytest.mark.parametrize("settings", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("first, second", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("channels", [16, 18])
def test_every_window_in_every_layout(kernels: KernelSet, settings, first, second, channels):
    """Whole packs of channels, and a few more. What is chosen is exact."""
    for dtype in (np.float32, np.float64) if kernels in CHAIN else (np.float32,):
        check_all(kernels, normal(3, channels, 7, 9).astype(dtype), first, second, settings)


@every_library_set
@every_window
@pytest.mark.parametrize("first, second", [PAIRS["channels last"], PAIRS["c order"], (at_an_odd_place, c_order)])
def test_few_values_many_times_over(kernels: KernelSet, settings, first, second):
    """The derivative goes to the first place, whatever thread found it."""
    x = np.random.default_rng(3).integers(-2, 3, (2, 8, 11, 13))
    for dtype in (np.float32, np.float64) if kernels in CHAIN else (np.float32,):
        check_all(kernels, x.astype(dtype), first, second, settings)


@every_library_set
@every_window
@pytest.mark.parametrize("layout", [channels_last, c_order])
@pytest.mark.parametrize("kind", ["few values", "zeros", *range(len(BAD))], ids=str)
def test_the_first_of_the_largest_wins_and_nan_before_all(kernels: KernelSet, settings, layout, kind):
    """Bad values are few in one image, many in another, and fill a channel; else there are ties everywhere."""
    x, rng = normal(4, 8, 11, 13), np.random.default_rng(5)
    if kind == "few values":
        x = np.sign(x) * rng.integers(0, 3, x.shape).astype(np.float32)
    elif kind == "zeros":
        x[...] = 0
    else:
        for sample, share in ((1, 0.03), (2, 0.7)):
            hit = rng.random(x[sample].shape) < share
            x[sample][hit] = rng.choice(np.array(BAD[kind], np.float32), hit.sum())
        x[3, 7] = BAD[kind][0]
    window = settings["window"]
    wanted, place = maximum(x, window)
    shape = output_shape(x.shape, window)
    for index in (None, layout(garbage(shape, index_dtype(window)))):
        y = layout(garbage(shape, np.float32))
        run(kernels, "max_pool2d", [layout(x), y, index], settings)
        np.testing.assert_array_equal(y, wanted)
        if index is not None:
            np.testing.assert_array_equal(index, place)


@every_library_set
@every_window
@counts
@pytest.mark.parametrize("layout", [channels_last, c_order])
def test_nan_and_infinities_in_averages(kernels: KernelSet, settings, count_pad, layout):
    x = normal(3, 8, 11, 13)
    x[1, 2, 3, 4], x[1, 3, 0, 0], x[2, 4, 6, 8], x[2, 4, 5, 8] = np.nan, np.inf, np.inf, -np.inf
    y = layout(garbage(output_shape(x.shape, settings["window"]), np.float32))
    check(kernels, "avg_pool2d", [layout(x), y], {**settings, "count_pad": count_pad}, always=False)


@every_library_set
@pytest.mark.parametrize("layout", [channels_last, c_order])
def test_infinite_slopes_stay_with_the_winner(kernels: KernelSet, layout):
    settings = WINDOWS["of ResNet"]
    window = settings["window"]
    _, place = maximum(normal(2, 8, 7, 9), window)
    dx = layout(garbage((2, 8, 7, 9), np.float32))
    dy = layout(np.full(place.shape, np.inf, np.float32))
    run(kernels, "max_pool2d_derivative", [dy, layout(place.astype(np.uint8)), dx], settings)
    assert set(np.unique(dx)) == {0, np.inf}
