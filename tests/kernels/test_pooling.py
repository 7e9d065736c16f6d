"""Pooling of the NumPy set over large images and none, and against PyTorch; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import skips
from kernel_case import garbage, run
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.numpy_kernels import NUMPY
from test_pooling_values import index_dtype, output_shape


def max_pool(x: np.ndarray, settings: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """y and index from the kernel."""
    shape = output_shape(x.shape, settings["window"])
    y, index = garbage(shape, x.dtype), garbage(shape, index_dtype(settings["window"]))
    run(NUMPY, "max_pool2d", [x, y, index], settings)
    return y, index


def test_infinite_dy_reaches_the_winner_alone():
    x = np.array([[[[1.0, 3.0, 2.0], [4.0, 0.0, 5.0]]]], np.float32)
    settings = {"window": Window((2, 2))}
    _, index = max_pool(x, settings)
    dx = garbage(x.shape, x.dtype)
    run(NUMPY, "max_pool2d_derivative", [np.array([[[[np.inf, 7.0]]]], np.float32), index, dx], settings)
    np.testing.assert_array_equal(dx, [[[[0, 0, 0], [np.inf, 0, 7]]]])


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
