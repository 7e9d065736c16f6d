"""Pooling of the CUDA set: windows that threads share, bits, halves; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernel_case import garbage, run
from layouts import channels_last, image, serves
from singa_lite.kernels.cuda_kernels import pooling
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.numpy_kernels import NUMPY
from test_pooling_values import WINDOWS, index_dtype, output_shape

Array = np.ndarray
Settings = dict[str, Any]

every_window = pytest.mark.parametrize("settings", WINDOWS.values(), ids=WINDOWS)


def normal(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def results(shape: tuple[int, ...], settings: Settings, dtype: Any = np.float32) -> tuple[Array, Array]:
    """y and index, before."""
    of_y = output_shape(shape, settings["window"])
    return garbage(of_y, dtype), garbage(of_y, index_dtype(settings["window"]))


def test_wide_windows_are_shared_while_there_are_few():
    whole = {"window": Window((56, 56)), "count_pad": False}
    for images, lanes in ((1, 64), (32, 64), (2048, 2), (8192, 1)):
        routine = pooling.avg_pool2d(image(images, 256, 56, 56), image(images, 256, 1, 1), **whole)
        if images * 256 * 56 * 56 >= 2**31:
            assert routine is None, "more places than are counted"
            continue
        (launch,) = routine.launches
        assert (int(launch.arguments[1]) if launch.file == "pooling_lanes.cu" else 1) == lanes


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
