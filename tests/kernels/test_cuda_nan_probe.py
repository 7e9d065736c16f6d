"""ReLU within a library's product: the library is asked whether it keeps NaN, and where it does not ours is applied."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import host_device
import host_libraries
import host_loader
from host_device import host_cuda
from host_libraries import HostMultiplier
from singa_lite import tensor
from singa_lite.device import Device
from singa_lite.device.cuda_libraries import GpuTrial
from singa_lite.kernels.cuda_kernels.libraries.cublaslt_header import Epilogue
from singa_lite.kernels.cuda_kernels.libraries.product import Product
from singa_lite.kernels.interface.window import Window

MISSING = host_loader.missing_to_run()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"CUDA kernels cannot run on the host without {MISSING}")

#: NaN, negative and positive samples in turn.
SIGNS = np.array([np.nan, -1, 1] * 2, np.float32)


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


real_step = host_libraries.step


def lossy_step(node: Any, arrays: Any) -> Any:
    """As `host_libraries.step`, with such a ReLU."""
    if host_libraries.operation(node) != "relu":
        return real_step(node, arrays)
    inputs = [arrays[one.uid] for one in node.inputs.values()]
    (output,) = (arrays[one.uid] for one in node.outputs.values())
    return partial(np.fmax, *inputs, 0, out=output)


@pytest.fixture
def trials(monkeypatch) -> list[Any]:
    """The routines that are tried."""
    tried, real = [], GpuTrial.__call__

    def call(self: GpuTrial, routine: Any, specs: Any, values: Any) -> Any:
        tried.append(routine)
        return real(self, routine, specs, values)

    monkeypatch.setattr(GpuTrial, "__call__", call)
    return tried


def assert_kept(y: np.ndarray) -> None:
    """NaN, negative and positive samples in turn."""
    assert np.isnan(y[0::3]).all() and (y[1::3] == 0).all() and (y[2::3] > 0).all()


def dense(on: Device, rows: int = 6, bias: bool = True, dtype: str = "float32") -> None:
    """ReLU of samples times ones, as the device does it in one go."""
    x = np.repeat(SIGNS[:rows, None], 9, 1).astype(dtype)
    given = [x, np.ones((9, 6), dtype), np.zeros(6, dtype) if bias else None]
    placed = [None if a is None else tensor.from_numpy(a, on) for a in given]
    y = on.empty((rows, 6), dtype)
    on.run("linear", *placed, y, activation="relu")
    assert_kept(tensor.to_numpy(y))


def convolved(on: Device) -> None:
    """The same by a convolution; with a bias, as the library has no ReLU behind one without."""
    x = np.tile(SIGNS[:, None, None, None], (1, 5, 7, 8))
    weight, bias = (tensor.from_numpy(np.full(shape, value, "f"), on) for shape, value in (((4, 5, 3, 3), 1), (4, 0)))
    image, y = on.empty(x.shape, x.dtype, "image"), on.empty((6, 4, 7, 8), x.dtype, "image")
    image.copy_from_numpy(x)
    settings = {"window": Window((3, 3), pad=(1, 1, 1, 1)), "groups": 1, "activation": "relu"}
    on.run("conv2d", image, weight, bias, y, **settings)
    assert_kept(tensor.to_numpy(y))


def test_nan_is_kept_though_the_library_does_not(monkeypatch, trials):
    monkeypatch.setattr(host_device, "HostMultiplier", LosesNan)
    monkeypatch.setattr(host_libraries, "step", lossy_step)
    on = host_cuda()
    for bias in (False, True):
        dense(on, bias=bias)
    if not host_libraries.missing():
        convolved(on)
    assert trials


def operands(on: Device) -> list[Any]:
    x, weight, y = (tensor.from_numpy(np.ones(shape, np.float32), on) for shape in ((6, 9), (9, 6), (6, 6)))
    return [x, weight, None, y]


def steps(on: Device, given: list[Any]) -> int:
    """How many steps the call has: the library's alone, or ours behind it."""
    arrays = [None if one is None else one.array for one in given]
    return len(on.kernels["linear"].build(*arrays, activation="relu").steps)


def test_a_library_that_keeps_nan_does_relu_itself_and_is_asked_once_for_each_form(trials):
    on = host_cuda()
    for options in ({}, {"rows": 3}, {"bias": False}, {"bias": False, "dtype": "float64"}):
        dense(on, **options)
    assert len(trials) == 6, "of each form of product an aligned one and one that is not"
    assert steps(on, operands(on)) == 1


def test_a_trial_takes_no_bytes_for_longer_than_it_lasts():
    on = host_cuda()
    given = operands(on)
    used = on.pool.used
    on.kernels.scratch_bytes("linear", given, {"activation": "relu"})
    assert on.pool.used == used < on.pool.high_water


@pytest.mark.parametrize("obstacle", ["capture", "no memory"])
def test_where_nothing_can_be_tried_our_kernel_serves_and_the_library_is_asked_later(obstacle):
    on = host_cuda()
    given, filled = operands(on), []
    if obstacle == "capture":
        on.runtime.stream.begin_capture()
    else:
        on.pool.release_free()
        on.pool.set_limit(on.pool.total)
        filled += [on.pool.take(64) for _ in range(on.pool.free // 64)]
    assert steps(on, given) == 2, "the product and our ReLU"
    if obstacle == "capture":
        on.runtime.stream.end_capture()
    on.pool.set_limit(None)
    assert steps(on, given) == 1
