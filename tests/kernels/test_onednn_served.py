"""Which calls oneDNN and the loops serve, and with how little scratch: what is left to NumPy is many times slower."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from every_row import over_rows
from layouts import (
    PAIRS,
    c_order,
    channels_last,
    image,
    piece_of_channels_last,
    serves,
)
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.kernels.onednn_kernels import onednn as over
from test_activation_values import FORWARD
from test_loss_values import ids
from test_pooling_values import WINDOWS, index_dtype, output_shape
from test_update_values import UPDATES, arguments, kernels_last, rows

Array = np.ndarray
Settings = dict[str, Any]
#: (what it is, kernel, tensors, settings).
Call = tuple[str, str, list[Any], Settings]


def zeros(*shape: int, dtype: Any = np.float32) -> Array:
    return np.zeros(shape, dtype)


def piece(a: Array) -> Array:
    """The same among the channels of a larger tensor."""
    return np.concatenate([a, a, a], 1)[:, a.shape[1] : -a.shape[1]]


#: Large enough that all element-wise kernels are served; a few numbers.
LARGE, FEW = zeros(3, 40, 58, 39), zeros(2, 5, 7, 3)
LAST = channels_last(LARGE)
OPERATIONS = ("add", "subtract", "multiply", "divide")
ONE_OPERAND: dict[str, Settings] = {"scale": {"alpha": 2.0, "beta": 1.0}, "power": {"exponent": 2.0}, "exp": {}}
BATCH_NORM = {"momentum": 0.1, "epsilon": 1e-3}
AVERAGE = {"count_pad": True}


def elementwise() -> Iterator[Call]:
    for name in FORWARD:
        for x, y in ((LAST, LAST), (LARGE, LARGE), (zeros(64, 2048),) * 2, (piece(LARGE),) * 2, (LARGE, piece(LARGE))):
            yield "forms", name, [x, y], FORWARD[name]
            yield "forms", f"{name}_derivative", [x, y, y], FORWARD[name]
        for lay in (channels_last, piece):  # a concatenation's parts; layouts that change between two layers
            yield "few", name, [lay(FEW), channels_last(FEW)], FORWARD[name]
    for name in OPERATIONS:
        yield "alike", name, [LAST, LAST, LAST], {}
        yield "a piece", name, [LAST, piece_of_channels_last(LARGE), LAST], {}
        for shape in ((40, 1, 1), (1, 40, 1, 1), (3, 40, 1, 1), (1, 1, 1, 1), (), (1,)):
            yield f"{shape}", name, [LAST, zeros(*shape), LAST], {}
            yield f"{shape}", name, [LARGE, zeros(*shape), LARGE], {}
        for shape in ((521,), (1, 521), (531, 1)):
            yield f"{shape}", name, [zeros(531, 521), zeros(*shape), zeros(531, 521)], {}
    for name in ("add", "multiply"):  # the two commute
        yield "broadcast first", name, [zeros(40, 1, 1), LAST, LAST], {}
    yield "a sum and relu", "add", [LARGE, piece(LARGE), LARGE], {"activation": "relu"}
    for first in (LAST, LARGE):
        for second in (LAST, LARGE, piece(LARGE), piece_of_channels_last(LARGE)):
            yield "from one layout to another", "copy", [first, second], {}
            yield "from one layout to another", "copy", [second, first], {}
    for name, settings in ONE_OPERAND.items():
        for x, y in ((FEW, channels_last(FEW)), (piece(FEW), channels_last(FEW)), (FEW, piece(FEW))):
            yield "other forms", name, [x, y], settings
    yield "every other column", "relu", [zeros(5, 8)[:, ::2], zeros(5, 4)], {}
    yield "bounds", "clip", [LAST, LAST], {"low": -0.5, "high": np.inf}
    yield "a comparison", "compare", [zeros(531, 521)] * 3, {"relation": "less"}
    for x, axis in ((zeros(64, 1000), 1), (zeros(7, 3), -1), (zeros(2, 5, 19, 19), -1), (zeros(3, 4096), 1)):
        yield "rows", "softmax", [x, x], {"axis": axis}
        yield "rows", "softmax_derivative", [x, x, x], {"axis": axis}
    yield "pixels", "softmax", [channels_last(zeros(3, 21, 11, 6))] * 2, {"axis": 1}


def losses() -> Iterator[Call]:
    for shape in ((64, 10), (5, 37), (130, 1000), (4, 5, 61, 90), (2, 150, 17, 19), (2, 3, 4, 5)):
        x = channels_last(zeros(*shape)) if len(shape) == 4 else zeros(*shape)
        for dtype in ("int64", "uint8"):
            yield f"{shape}", "softmax_cross_entropy", [x, ids(x, dtype), zeros(shape[0]), x], {}
        yield f"{shape}", "softmax_cross_entropy_derivative", [zeros(shape[0]), x, ids(x), x], {}


def images() -> Iterator[Call]:
    for first, second in PAIRS.values():
        # Channels by which the library picks its code: multiples of 16, 8 and 4, and others; one value a channel.
        for shape in ((3, 16, 5, 7), (3, 24, 5, 7), (3, 12, 5, 7), (3, 5, 6, 7), (9, 16), (9, 5), (3, 5, 7), (1, 16)):
            x, y, v = first(zeros(*shape)), second(zeros(*shape)), zeros(shape[1])
            yield f"{shape}", "batch_norm", [x, v, v, v, v, None, y, v, v], BATCH_NORM
            yield f"{shape}", "batch_norm_inference", [x, v, v, v, v, y], {"epsilon": 1e-3}
            yield f"{shape}", "batch_norm_derivative", [x, y, v, None, v, v, None, y, v, v], {}
        for settings in WINDOWS.values():
            of_y = output_shape((3, 18, 7, 9), settings["window"])
            x, y = zeros(3, 18, 7, 9), zeros(*of_y)
            index = channels_last(zeros(*of_y, dtype=index_dtype(settings["window"])))  # as the operation lays it out
            for name, tensors, own in (
                ("max_pool2d", [first(x), second(y), index], settings),
                ("max_pool2d", [first(x), second(y), None], settings),
                ("max_pool2d_derivative", [first(y), index, first(x)], settings),
                ("avg_pool2d", [first(x), second(y)], settings | AVERAGE),
                ("avg_pool2d_derivative", [first(y), second(x)], settings | AVERAGE),
            ):
                yield f"{settings}", name, tensors, own
    for of_rows, features in (((3, 5), (7,)), ((40,), (128,)), ((), (33,)), ((2, 3), (4, 5)), ((5,), (1,))):
        x, v, r = zeros(*of_rows, *features), zeros(*features), zeros(*of_rows)
        yield f"{features}", "layer_norm", [x, v, v, x, r, r], {"epsilon": 1e-3}
        yield f"{features}", "layer_norm_derivative", [x, x, v, r, r, x], {}
        yield f"{features}", "layer_norm_gradient", [x, x, r, r, v, v], {}
    last = piece_of_channels_last(zeros(4, 16, 5, 6))
    yield "pieces", "batch_norm_gradient", [last, last, *[zeros(16)] * 4], {}


def updates() -> Iterator[Call]:
    shapes = [((512, 512, 3, 3), kernels_last), ((2048, 1000), c_order), ((64,), c_order)]
    shapes += [((6, 5, 3, 3), kernels_last), ((7, 41), rows), ((67, 1000), c_order)]
    for name, states, hyper in UPDATES.values():
        for shape, lay in shapes:
            parameter = lay(np.empty(shape, np.float32))
            call = [parameter if a is not None and a.ndim else a for a in arguments(states, (1,))]
            yield f"{shape}", name, call, {"hyper": hyper}


@pytest.mark.parametrize("calls", [elementwise, losses, images, updates])
def test_these_are_served(onednn, calls):
    def served(name: str, tensors: list[Any], settings: Settings) -> None:
        assert serves(onednn, name, tensors, settings)

    over_rows(served, ((f"{name}: {what}", (name, tensors, settings)) for what, name, tensors, settings in calls()))


# ---- nets' tensors are not copied into scratch


def spec(*shape: int) -> TensorSpec:
    a = np.broadcast_to(np.float32(0), shape)
    strides = np.cumprod((4, *a.shape[:0:-1]))[::-1]
    return TensorSpec(a.shape, a.dtype, tuple(int(stride) for stride in strides))


#: (specs, settings, most bytes of scratch) by kernel.
NetCalls = Iterator[tuple[str, list[Any], Settings, int]]


def products() -> NetCalls:
    vgg = [(8, 25088, 4096), (8, 4096, 4096), (8, 4096, 1000)]
    for n, inputs, outputs in (*vgg, (64, 784, 2048), (64, 2048, 2048), (512, 2048, 2048), (64, 2048, 10)):
        x, weight, y = spec(n, inputs), spec(inputs, outputs), spec(n, outputs)
        yield "linear", [x, weight, spec(outputs), y], {}, 4 << 20
        yield "matmul", [y, weight, x], {"transpose_a": False, "transpose_b": True}, 4 << 20
        yield "matmul", [x, y, weight], {"transpose_a": True, "transpose_b": False}, 4 << 20


def norms() -> NetCalls:
    resnet = [(16, 64, 112, 112), (16, 256, 56, 56), (16, 512, 28, 28), (16, 1024, 14, 14), (16, 2048, 7, 7)]
    for shape in (*resnet, (16, 32, 112, 112), (16, 24, 56, 56), (16, 144, 28, 28), (16, 1280, 7, 7)):
        x, v = image(*shape), spec(shape[1])
        most = (3 << 19) + 4 * x.size // 16  # a piece of x less its mean
        yield "batch_norm", [x, v, v, v, v, None, x, v, v], BATCH_NORM, most
        yield "batch_norm_inference", [x, v, v, v, v, x], {"epsilon": 1e-5}, 1 << 17
        yield "batch_norm_derivative", [x, x, v, None, v, v, None, x, v, v], {}, most
    x, r, v = spec(5000, 130), spec(5000), spec(130)
    yield "layer_norm_gradient", [x, x, r, r, v, v], {}, 9 << 18


def pools() -> NetCalls:
    for shape, settings in (
        ((16, 64, 112, 112), WINDOWS["of ResNet"]),
        ((8, 64, 224, 224), WINDOWS["halving"]),
        ((64, 6, 28, 28), WINDOWS["halving"]),
        ((16, 2048, 7, 7), {"window": Window((7, 7))}),
        ((16, 192, 28, 28), {"window": Window((3, 3), pad=(1, 1, 1, 1))}),
    ):
        of_y = output_shape(shape, settings["window"])
        x, y, index = image(*shape), image(*of_y), image(*of_y, dtype=np.uint8)
        yield "max_pool2d", [x, y, index], settings, 1 << 18
        yield "max_pool2d_derivative", [y, index, x], settings, 1 << 18
        yield "avg_pool2d", [x, y], settings | AVERAGE, 1 << 18
        yield "avg_pool2d_derivative", [y, x], settings | AVERAGE, 1 << 18


@pytest.mark.parametrize("calls", [products, norms, pools])
def test_tensors_of_nets_are_served_with_little_scratch(onednn, calls):
    def small(name: str, specs: list[Any], settings: Settings, most: int) -> None:
        assert serves(onednn, name, specs, settings)
        assert onednn.scratch_bytes(name, specs, settings) < most

    over_rows(small, ((f"{row[0]} {row[1][0].shape}", row) for row in calls()))


def test_without_loops_the_library_multiplies_quantised_weights(onednn):
    blocks, settings = TensorSpec((7, 68), np.dtype(np.uint8), (68, 1)), {"format": "q8_0"}
    specs, kernels = (spec(3, 64), blocks, None, spec(3, 7)), over(NUMPY)
    assert kernels.choose("quantized_linear", specs, settings) is kernels.kernels["quantized_linear"]
