"""Pooling of the NumPy set against plain loops and against sliding windows; the contract has NaN and infinities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import skips
from kernel_case import garbage, run
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.numpy_kernels import NUMPY
from test_pooling_values import index_dtype, output_shape

#: (x's shape, settings) by what is special about them.
POOLINGS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 4, 9), {"window": Window((2, 3), (2, 3))}),
    "overlapping": ((2, 3, 7, 8), {"window": Window((3, 2), (2, 1), (1, 2, 0, 1))}),
    "sparse": ((2, 3, 7, 9), {"window": Window((2, 1), (3, 4), (1, 0, 0, 0))}),
    "cut off": ((2, 3, 8, 9), {"window": Window((3, 4), (3, 4))}),
    "global": ((3, 2, 4, 5), {"window": Window((4, 5))}),
    "mostly padding": ((3, 2, 3, 2), {"window": Window((5, 4), (1, 2), (4, 3, 3, 2))}),
    "more than 256 places": ((1, 2, 19, 18), {"window": Window((17, 16), (1, 2))}),
}

poolings = pytest.mark.parametrize("shape, settings", POOLINGS.values(), ids=POOLINGS)
counts = pytest.mark.parametrize("count_pad", [False, True], ids=["of x", "of all"])


def elements_of(x_shape: tuple[int, ...], at: tuple[int, ...], window: Window) -> list[Any]:
    """(place, element of x) of the window of one element of y."""
    n, c, row, column = at
    found = []
    for place, (i, j) in enumerate(np.ndindex(*window.kernel)):
        h = row * window.stride[0] + i - window.pad[0]
        w = column * window.stride[1] + j - window.pad[2]
        if 0 <= h < x_shape[2] and 0 <= w < x_shape[3]:
            found.append((place, (n, c, h, w)))
    return found


def loop_maximum(x: np.ndarray, settings: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, dict[Any, Any]]:
    """y, index, and the element of x that each element of y was taken from."""
    shape = output_shape(x.shape, settings["window"])
    y, index, winners = np.empty(shape), np.empty(shape, np.int64), {}
    for at in np.ndindex(*shape):
        elements = elements_of(x.shape, at, settings["window"])
        index[at], winners[at] = max(elements, key=lambda e: (x[e[1]], -e[0]))
        y[at] = x[winners[at]]
    return y, index, winners


def max_pool(x: np.ndarray, settings: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """y and index from the kernel."""
    shape = output_shape(x.shape, settings["window"])
    y, index = garbage(shape, x.dtype), garbage(shape, index_dtype(settings["window"]))
    run(NUMPY, "max_pool2d", [x, y, index], settings)
    return y, index


@poolings
def test_maximum_and_its_derivative_equal_the_loops(shape, settings):
    rng = np.random.default_rng(3)
    x = rng.integers(-4, 4, shape).astype(np.float64)  # many ties
    y, index = max_pool(x, settings)
    wanted_y, wanted_index, winners = loop_maximum(x, settings)
    np.testing.assert_array_equal(y, wanted_y)
    np.testing.assert_array_equal(index, wanted_index)

    dy, dx, wanted_dx = rng.standard_normal(y.shape), garbage(shape, x.dtype), np.zeros(shape)
    run(NUMPY, "max_pool2d_derivative", [dy, index, dx], settings)
    for at, winner in winners.items():
        wanted_dx[winner] += dy[at]
    np.testing.assert_allclose(dx, wanted_dx, rtol=1e-13, atol=1e-13)


@poolings
def test_maximum_without_index_is_the_same(shape, settings):
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    y, _ = max_pool(x, settings)
    alone = garbage(y.shape, x.dtype)
    run(NUMPY, "max_pool2d", [x, alone, None], settings)
    np.testing.assert_array_equal(alone, y)


def test_infinite_dy_reaches_the_winner_alone():
    x = np.array([[[[1.0, 3.0, 2.0], [4.0, 0.0, 5.0]]]], np.float32)
    settings = {"window": Window((2, 2))}
    _, index = max_pool(x, settings)
    dx = garbage(x.shape, x.dtype)
    run(NUMPY, "max_pool2d_derivative", [np.array([[[[np.inf, 7.0]]]], np.float32), index, dx], settings)
    np.testing.assert_array_equal(dx, [[[[0, 0, 0], [np.inf, 0, 7]]]])


@poolings
@counts
def test_average_and_its_derivative_equal_the_loops(shape, settings, count_pad):
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal(shape), garbage(output_shape(shape, settings["window"]), np.float64)
    dy, dx = rng.standard_normal(y.shape), garbage(shape, x.dtype)
    run(NUMPY, "avg_pool2d", [x, y], {**settings, "count_pad": count_pad})
    run(NUMPY, "avg_pool2d_derivative", [dy, dx], {**settings, "count_pad": count_pad})
    wanted_y, wanted_dx = np.zeros(y.shape), np.zeros(shape)
    for at in np.ndindex(*y.shape):
        elements = elements_of(shape, at, settings["window"])
        count = settings["window"].places if count_pad else len(elements)
        for _, element in elements:
            wanted_y[at] += x[element] / count
            wanted_dx[element] += dy[at] / count
    np.testing.assert_allclose(y, wanted_y, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(dx, wanted_dx, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("shape", [(3, 5, 37, 251), (1, 2, 411, 157), (37, 3, 23, 31)], ids=str)
def test_large_images_equal_sliding_windows(shape):
    """Large enough that the kernels work image by image, channel by channel and a few rows at a time."""
    rng = np.random.default_rng(6)
    settings = {"window": Window((3, 2), (2, 1))}
    x = rng.standard_normal(shape)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), axis=(2, 3))[:, :, ::2]
    flat = windows.reshape(*windows.shape[:4], 6)
    y, index = max_pool(x, settings)
    np.testing.assert_array_equal(y, flat.max(axis=-1))
    np.testing.assert_array_equal(index, flat.argmax(axis=-1))

    average, dy = garbage(y.shape, x.dtype), rng.standard_normal(y.shape)
    run(NUMPY, "avg_pool2d", [x, average], {**settings, "count_pad": False})
    np.testing.assert_allclose(average, flat.mean(axis=-1), rtol=1e-12, atol=1e-13)

    # dx is linear in dy and its product with x is that of dy with y, for both kinds.
    for result, name, tensors, extra in (
        (y, "max_pool2d_derivative", [dy, index], {}),
        (average, "avg_pool2d_derivative", [dy], {"count_pad": False}),
    ):
        dx = garbage(shape, x.dtype)
        run(NUMPY, name, [*tensors, dx], settings | extra)
        np.testing.assert_allclose(np.vdot(dx, x), np.vdot(dy, result), rtol=1e-10)


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_an_empty_batch_is_no_error(name):
    settings = {"window": Window((2, 2))}
    x, y, index = np.empty((0, 3, 4, 5)), np.empty((0, 3, 3, 4)), np.empty((0, 3, 3, 4), np.uint8)
    if name == "max_pool2d":
        run(NUMPY, name, [x, y, index], settings)
        run(NUMPY, name + "_derivative", [y, index, x], settings)
    else:
        run(NUMPY, name, [x, y], settings | {"count_pad": False})
        run(NUMPY, name + "_derivative", [y, x], settings | {"count_pad": False})


@pytest.mark.peer
@pytest.mark.parametrize("count_pad", [False, True])
def test_equals_pytorch(count_pad):
    torch = skips.library("torch")
    x = np.random.default_rng(7).standard_normal((2, 3, 11, 8))
    leaf = torch.tensor(x, requires_grad=True)
    settings = {"window": Window((4, 3), (2, 3), (2, 2, 1, 1))}
    y, index = max_pool(x, settings)
    wanted = torch.nn.functional.max_pool2d(leaf, (4, 3), (2, 3), (2, 1))
    np.testing.assert_array_equal(y, wanted.detach().numpy())
    dy, dx = np.random.default_rng(8).standard_normal(y.shape), garbage(x.shape, x.dtype)
    run(NUMPY, "max_pool2d_derivative", [dy, index, dx], settings)
    (wanted_dx,) = torch.autograd.grad(wanted, leaf, torch.tensor(dy))
    np.testing.assert_allclose(dx, wanted_dx.numpy(), rtol=1e-13, atol=1e-13)

    wanted = torch.nn.functional.avg_pool2d(leaf, (4, 3), (2, 3), (2, 1), count_include_pad=count_pad)
    run(NUMPY, "avg_pool2d", [x, y], settings | {"count_pad": count_pad})
    np.testing.assert_allclose(y, wanted.detach().numpy(), rtol=1e-12, atol=1e-13)
    (wanted_dx,) = torch.autograd.grad(wanted, leaf, torch.tensor(dy))
    run(NUMPY, "avg_pool2d_derivative", [dy, dx], settings | {"count_pad": count_pad})
    np.testing.assert_allclose(dx, wanted_dx.numpy(), rtol=1e-12, atol=1e-13)
