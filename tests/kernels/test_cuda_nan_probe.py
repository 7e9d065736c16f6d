"""ReLU within a library's product: the library is asked whether it keeps NaN, and where it does not ours is applied."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import host_convolutions
import host_device
import host_loader
from host_device import host_cuda
from host_products import HostMultiplier
from singa_lite import tensor
from singa_lite.device.trial import GpuTrial
from singa_lite.kernels.cuda_kernels.cublaslt_header import Epilogue
from singa_lite.kernels.cuda_kernels.product import Product
from singa_lite.kernels.interface.window import Window

MISSING = host_loader.missing() or ("" if find_spec("cupy") else "CuPy, pip install cupy-cuda13x")

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"CUDA kernels cannot run on the host without {MISSING}")

RNG = np.random.default_rng(3)
SETTINGS = {"window": Window((3, 3), pad=(1, 1, 1, 1)), "groups": 1}


class LosesNan(HostMultiplier):
    """Its ReLU is the maximum that ignores NaN."""

    def bind(self, product: Product, addresses: Any, workspace: int) -> Any:
        launch, d = super().bind(product, addresses, workspace), addresses[2]

        def lossy() -> None:
            launch()
            if product.epilogue & Epilogue.RELU:
                result = host_loader.host_bytes(d, product.m * product.n * 4).view(product.output)
                np.fmax(result, 0, out=result)

        return lossy


def lossy_step(node: Any, arrays: Any) -> Any:
    """As `host_convolutions.step`, with such a ReLU."""
    if host_convolutions.operation(node) != "relu":
        return host_convolutions_step(node, arrays)
    inputs = [arrays[one.uid] for one in node.inputs.values()]
    (output,) = (arrays[one.uid] for one in node.outputs.values())
    return partial(np.fmax, *inputs, 0, out=output)


host_convolutions_step = host_convolutions.step


@pytest.fixture
def lossy(monkeypatch) -> None:
    monkeypatch.setattr(host_device, "HostMultiplier", LosesNan)
    monkeypatch.setattr(host_convolutions, "step", lossy_step)


@pytest.fixture
def trials(monkeypatch) -> list[Any]:
    """The routines that are tried."""
    tried, real = [], GpuTrial.__call__

    def call(self: GpuTrial, routine: Any, specs: Any, values: Any) -> Any:
        tried.append(routine)
        return real(self, routine, specs, values)

    monkeypatch.setattr(GpuTrial, "__call__", call)
    return tried


def dense(on: Any, x: np.ndarray, bias: bool = True) -> np.ndarray:
    """ReLU of x times ones, as the device does it in one go."""
    outputs = 6
    given = [x, np.ones((x.shape[1], outputs), x.dtype), np.zeros(outputs, x.dtype) if bias else None]
    placed = [None if a is None else tensor.from_numpy(a, on) for a in given]
    y = on.empty((x.shape[0], outputs), x.dtype)
    on.run("linear_activation", *placed, y, activation="relu")
    return tensor.to_numpy(y)


def convolved(on: Any, x: np.ndarray) -> np.ndarray:
    """The same by a convolution; with a bias, as the library has no ReLU behind one without."""
    weight, bias = (tensor.from_numpy(a, on) for a in (np.ones((4, x.shape[1], 3, 3), x.dtype), np.zeros(4, x.dtype)))
    image, y = on.empty(x.shape, x.dtype, "image"), on.empty((x.shape[0], 4, *x.shape[2:]), x.dtype, "image")
    image.copy_from_numpy(x)
    on.run("conv2d_activation", image, weight, bias, y, activation="relu", **SETTINGS)
    return tensor.to_numpy(y)


def of_each_sign(*shape: int) -> np.ndarray:
    """NaN, negative, positive samples, and more of them."""
    x = np.abs(RNG.standard_normal((6, *shape))).astype(np.float32)
    x[0::3, ...] = np.nan
    x[1::3, ...] *= -1
    return x


def assert_kept(y: np.ndarray) -> None:
    """NaN, negative, positive samples in turn."""
    assert np.isnan(y[0::3]).all()
    assert (y[1::3] == 0).all()
    assert (y[2::3] > 0).all()


def test_nan_is_kept_though_the_library_does_not(lossy, trials):
    on = host_cuda(libraries=True)
    for bias in (False, True):
        assert_kept(dense(on, of_each_sign(9), bias))
    if not host_convolutions.missing():
        assert_kept(convolved(on, of_each_sign(5, 7, 8)))
    assert trials


def test_a_library_that_keeps_nan_does_relu_itself_and_is_asked_once(trials):
    on = host_cuda(libraries=True)
    for rows in (6, 4):
        assert np.isnan(dense(on, of_each_sign(9)[:rows])[0]).all()
    assert len(trials) == 2, "an aligned product and one that is not"
    dense(on, of_each_sign(9), bias=False)
    assert len(trials) == 4
    dense(on, of_each_sign(9).astype(np.float64), bias=False)
    assert len(trials) == 6
    spec = [tensor.from_numpy(a, on).array for a in (np.ones((3, 5)), np.ones((5, 2)))]
    routine = on.kernels["linear_activation"].build(*spec, None, on.empty((3, 2), np.float64).array, activation="relu")
    assert len(routine.steps) == 1


def test_a_trial_takes_no_bytes_for_longer_than_it_lasts():
    on = host_cuda(libraries=True)
    x, weight, y = (tensor.from_numpy(np.ones(shape, np.float32), on) for shape in ((6, 9), (9, 6), (6, 6)))
    used = on.pool.used
    on.kernels.scratch_bytes("linear_activation", [x, weight, None, y], {"activation": "relu"})
    assert on.pool.used == used
    assert on.pool.high_water > used


@pytest.mark.parametrize("obstacle", ["capture", "no memory"])
def test_where_nothing_can_be_tried_our_kernel_serves_and_the_library_is_asked_later(trials, obstacle):
    on = host_cuda(libraries=True)
    arguments = [tensor.from_numpy(np.ones(shape, np.float32), on) for shape in ((6, 9), (9, 6), (6, 6))]
    specs = [arguments[0].array, arguments[1].array, None, arguments[2].array]
    build = on.kernels["linear_activation"].build
    if obstacle == "capture":
        on.runtime.stream.begin_capture()
    else:
        on.pool.release_free()
        on.pool.set_limit(on.pool.total)
        filled = [on.pool.take(64) for _ in range(on.pool.free // 64)]
    assert len(build(*specs, activation="relu").steps) == 2, "the product and our ReLU"
    if obstacle == "capture":
        on.runtime.stream.end_capture()
    else:
        on.pool.set_limit(None)
        assert filled is not None
    assert len(build(*specs, activation="relu").steps) == 1
