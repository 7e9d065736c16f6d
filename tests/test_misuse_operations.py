"""Misuses of tensors and operations: views that leave their block, arguments that are none, what is no tensor."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from misuse import assert_all_refused, assert_options_are_checked, assert_refused, row
from own_functions import Twice, net_of, wrong
from singa_lite import ShapeError, Tensor, autograd, tensor, testing
from singa_lite.autograd import Function, Output, Scratch

RNG = np.random.default_rng(2)


def made(*shape: int, dtype: str = "f") -> Tensor:
    return tensor.from_numpy(RNG.standard_normal(shape).astype(dtype))


X2, X4, C, FOUR = made(2, 4), made(2, 3, 5, 5), made(3), made(4)
WEIGHT = made(2, 3, 3, 3)
CHANNELS = {"gamma": C, "beta": C, "running_mean": C, "running_var": C}

CALLS: dict[str, tuple[Any, dict[str, Any]]] = {
    **{
        name: (getattr(autograd, name), {"x": X2})
        for name in (
            *("elu", "exp", "flatten", "gelu", "gelu_tanh", "identity", "l2_norm", "leaky_relu", "log", "reduce_mean"),
            *("reduce_sum", "relu", "relu6", "sigmoid", "silu", "softmax", "softplus", "tanh", "transpose"),
            *("abs", "clip", "reduce_max", "reduce_min", "sqrt", "square"),
        )
    },
    **{
        name: (getattr(autograd, name), {"a": X2, "b": X2})
        for name in (
            *("add", "subtract", "multiply", "divide", "maximum", "minimum"),
            *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        )
    },
    "where": (autograd.where, {"condition": np.ones((2, 4), bool), "a": X2, "b": X2}),
    "index": (autograd.index, {"x": X2, "at": (slice(1), 2)}),
    "gather": (autograd.gather, {"x": X2, "ids": tensor.zeros((3,), np.int64)}),
    "stack": (autograd.stack, {"xs": [X2, X2]}),
    **{
        name: (getattr(autograd, name), {"x": X2, "target": tensor.from_numpy(np.ones((2, 4), "f"))})
        for name in ("huber", "softmax_cross_entropy", "sigmoid_cross_entropy", "squared_error")
    },
    "attention": (autograd.attention, {"q": X4, "k": X4, "v": X4}),
    "lstm": (autograd.lstm, {"gates": made(3, 2, 8), "weight": made(2, 8)}),
    "gru": (autograd.gru, {"gates": made(3, 2, 6), "weight": made(2, 6)}),
    "simple_rnn": (autograd.simple_rnn, {"gates": made(3, 2, 2), "weight": made(2, 2)}),
    "add_bias": (autograd.add_bias, {"x": X4, "bias": C}),
    "avg_pool2d": (autograd.avg_pool2d, {"x": X4, "kernel": 3, "stride": 1}),
    "batch_norm": (autograd.batch_norm, {"x": X4, **CHANNELS}),
    "batch_norm_inference": (autograd.batch_norm_inference, {"x": X4, **CHANNELS}),
    "cast": (autograd.cast, {"x": X2, "dtype": "float64"}),
    "concat": (autograd.concat, {"xs": [X2, X2], "axis": 1}),
    "conv2d": (autograd.conv2d, {"x": X4, "weight": WEIGHT}),
    "dropout": (autograd.dropout, {"x": X2, "state": tensor.zeros((3,), np.uint64)}),
    "spatial_dropout": (autograd.spatial_dropout, {"x": X2, "state": tensor.zeros((3,), np.uint64)}),
    "normal": (autograd.normal, {"shape": (2, 3), "state": tensor.zeros((3,), np.uint64)}),
    "conv2d_transpose": (autograd.conv2d_transpose, {"x": X4, "weight": made(3, 2, 3, 3)}),
    "prelu": (autograd.prelu, {"x": X4, "alpha": made(3, 1, 1)}),
    "group_norm": (autograd.group_norm, {"x": X4, "groups": 3, "gamma": C, "beta": C}),
    "pad": (autograd.pad, {"x": X2, "margins": [(1, 0)]}),
    "crop": (autograd.crop, {"x": X2, "margins": [(1, 0)]}),
    "embedding": (autograd.embedding, {"ids": tensor.zeros((2, 3), np.int64), "weight": X2}),
    "global_avg_pool2d": (autograd.global_avg_pool2d, {"x": X4}),
    "layer_norm": (autograd.layer_norm, {"x": X2, "gamma": FOUR, "beta": FOUR}),
    "linear": (autograd.linear, {"x": X2, "weight": made(4, 3)}),
    "lrn": (autograd.lrn, {"x": X4}),
    "matmul": (autograd.matmul, {"a": X2, "b": made(4, 3)}),
    "max_pool2d": (autograd.max_pool2d, {"x": X4, "kernel": 3, "stride": 1}),
    "power": (autograd.power, {"x": X2, "exponent": 2.0}),
    "rms_norm": (autograd.rms_norm, {"x": X2, "gamma": FOUR}),
    "rotary": (autograd.rotary, {"x": made(2, 3, 4), "table": made(2, 3, 2)}),
    "reshape": (autograd.reshape, {"x": X2, "shape": (8,)}),
    "scale": (autograd.scale, {"x": X2, "alpha": 2.0}),
    "shift": (autograd.shift, {"x": X2, "beta": 2.0}),
    "split": (autograd.split, {"x": X2, "axis": 1, "points": [1]}),
    "upsample_nearest": (autograd.upsample_nearest, {"x": X4, "factor": 2}),
    "Output": (autograd.Output, {"shape": (2,)}),
    "Scratch": (autograd.Scratch, {"shape": (2,)}),
    "check_gradients": (partial(testing.check_gradients, autograd.tanh, np.ones((2, 3))), {}),
    "check_function": (partial(testing.check_function, Twice(), np.ones((2, 3))), {}),
    # tensors
    "as_tensor": (tensor.as_tensor, {"given": [1.0]}),
    "copy_from_numpy": (tensor.zeros((2,)).copy_from_numpy, {"array": [1.0, 2.0]}),
    "empty": (tensor.empty, {"shape": (2,)}),
    "from_dlpack": (tensor.from_dlpack, {"given": np.ones(3)}),
    "from_numpy": (tensor.from_numpy, {"array": [1.0]}),
    "full": (tensor.full, {"shape": (2,), "value": 1.0}),
    "to_device": (X2.to_device, {"device": "cpu"}),
    "to_numpy": (tensor.to_numpy, {"tensor": X2}),
    "view": (X2.view, {"shape": (2,)}),
}


#: Options that are numbers as NumPy has them: NaN and truth values among them.
FREE = {"power": ["exponent"], "scale": ["alpha", "beta"], "shift": ["beta"], "full": ["value"]}


@pytest.mark.filterwarnings("ignore:(invalid value|divide by zero|overflow) encountered")
@pytest.mark.parametrize("name", CALLS)
def test_every_option_takes_or_refuses_whatever_is_given(name):
    assert_options_are_checked(*CALLS[name], FREE.get(name, ()))


ROWS = [
    row(lambda: autograd.conv2d(X4, WEIGHT, pad="same"), ValueError, "conv2d", "pad", "'same'"),
    row(lambda: autograd.conv2d(X4, WEIGHT, pad=-1), ValueError, "conv2d", "pad", "received -1"),
    row(lambda: autograd.conv2d(X4, WEIGHT, stride=0), ValueError, "conv2d", "stride"),
    row(lambda: autograd.max_pool2d(X4, 2.0, 1), ValueError, "max_pool2d", "2.0"),
    row(lambda: autograd.avg_pool2d(X4, 3, 1, count_pad="no"), TypeError, "count_pad", "'no'"),
    row(lambda: autograd.relu(np.ones(3)), TypeError, "Tensor", "ndarray", "as_tensor"),
    row(lambda: autograd.add(1, 2), TypeError, "add", "Tensor", "int"),
    row(lambda: autograd.matmul(X2, None), TypeError, "MatMul", "None"),
    row(lambda: X2[5], IndexError, "from -2 to 1", "axis 0", "(2, 4)", "received 5"),
    row(lambda: X2[1, 2, 3], IndexError, "at most 2", "(2, 4)", "(1, 2, 3)"),
    row(lambda: X2[::0], TypeError, "index", "step other than 0"),
    row(lambda: X2[1.5], TypeError, "index", "whole numbers", "float 1.5"),
    row(lambda: autograd.index(X2, [0, 1]), TypeError, "index", "list [0, 1]"),
    row(lambda: autograd.where(X2, X2, X2), TypeError, "where", "bool", "float32", "not_equal"),
    row(lambda: autograd.clip(X2, 1, 0), ValueError, "clip", "low", "1 and 0"),
    row(lambda: autograd.maximum(X2, C), ShapeError, "maximum", "broadcast", "(2, 4)", "(3,)"),
    row(lambda: autograd.equal(X2, made(4, dtype="d")), TypeError, "equal", "float32", "float64"),
    row(lambda: autograd.reduce_max(X2[:0], 0), ShapeError, "reduce_max", "(0, 4)"),
    row(lambda: autograd.gather(X2, C), TypeError, "gather", "integer", "float32"),
    row(lambda: autograd.gather(X2, tensor.zeros((3,), int), 2), ShapeError, "gather", "axis", "(2, 4)"),
    row(lambda: autograd.stack(X2), TypeError, "stack", "Tensor"),
    row(lambda: autograd.stack([X2, C]), ShapeError, "stack", "(2, 4)", "(3,)"),
    row(lambda: autograd.stack([X2, X2], 3), ShapeError, "stack", "from -3 to 2", "received 3"),
    row(lambda: autograd.matmul(made(2, 3, 4), made(3, 4, 5)), ShapeError, "matmul", "(2, 3, 4)", "(3, 4, 5)"),
    row(lambda: autograd.transpose(X2, 1), TypeError, "transpose", "received 1"),
    row(lambda: autograd.concat(X2, 1), TypeError, "concat", "Tensor"),
    row(lambda: autograd.batch_norm(X4, C, C, C, C, momentum=2), ValueError, "batch_norm momentum", "received 2"),
    row(lambda: autograd.dropout(X2, C), ShapeError, "dropout", "uint64 (3,)"),
    row(lambda: tensor.zeros(3), TypeError, "shape", "received 3"),
    row(lambda: tensor.zeros((2,), object), TypeError, "dtype", "object"),
    row(lambda: tensor.full((2,), 300, np.uint8), ValueError, "uint8", "300"),
    row(lambda: X2.device.empty((2,), layout="imgae"), ValueError, "layout", "'imgae'"),
    row(lambda: tensor.from_dlpack([1.0]), TypeError, "DLPack", "list"),
    row(lambda: tensor.to_numpy(None), TypeError, "Tensor", "NoneType"),
]


# --- a user's own operations --------------------------------------------------------------------------------


def call(**members: Any) -> Any:
    """The call of a `Twice` with these members in the place of its own."""
    return lambda: wrong(**members)(tensor.from_numpy(OWN_X))


OWN_X = RNG.standard_normal((3, 5))
OWN = [
    row(lambda: type("Wrong", (Function,), {})()(), TypeError, "Wrong", "'makes'"),
    row(lambda: type("Wrong", (Function,), {"makes": Twice.makes})()(X2), TypeError, "Wrong", "'forward'"),
    row(call(makes=lambda self: {"y": Output((2,))}), TypeError, "Wrong.makes", "input"),
    row(call(makes=lambda self, x: Output(x.shape)), TypeError, "Wrong.makes", "Output"),
    row(call(makes=lambda self, x: {"y": x.shape}), TypeError, "'y'", "(3, 5)"),
    row(call(makes=lambda self, x: {"y": Scratch(x.shape)}), TypeError, "Output"),
    row(call(makes=lambda self, x: {"x": Output(x.shape)}), TypeError, "['x']"),
    row(call(forward=lambda self, x, y, z: None), TypeError, "Wrong.forward", "'z'"),
    row(call(forward=lambda self, x: None), TypeError, "Wrong.forward", "'y'"),
    row(call(forward=lambda self, x, y=1: None), TypeError, "Wrong.forward", "y=1"),
    row(call(derivative_z=lambda self, dy, dz: None), TypeError, "derivative_z"),
    row(call(derivative_x=None), TypeError, "NoneType"),
    row(call(overwrites="yx"), TypeError, "Wrong.overwrites", "'yx'"),
    row(call(overwrites=(("z", "x"),)), TypeError, "Wrong.overwrites", "'z'"),
    row(call(repeatable="no"), TypeError, "Wrong.repeatable", "'no'"),
    row(lambda: Twice()(OWN_X), TypeError, "Twice", "ndarray"),
    row(lambda: Twice()(X2, X2), ShapeError, "Twice", "2"),
    row(lambda: Scratch((2,), None, "epoch"), ValueError, "lifespan", "'epoch'"),
    row(lambda: Output((2, -1)), ShapeError, "Output", "-1"),
    row(lambda: testing.check_function(autograd.relu, OWN_X), TypeError, "check_function", "relu"),
    row(lambda: testing.check_gradients(autograd.relu), TypeError, "check_gradients"),
    row(lambda: testing.check_gradients(3, OWN_X), TypeError, "check_gradients", "3"),
    row(lambda: testing.check_gradients(net_of(Twice()).layers["dense0"], OWN_X), TypeError, "dense0"),
    row(lambda: testing.check_gradients(autograd.tanh, OWN_X, step=0), ValueError, "step", "0"),
    row(lambda: testing.check_gradients(autograd.tanh, OWN_X, parameters=[1]), TypeError, "parameters"),
]


@pytest.mark.parametrize("rows", [ROWS, OWN], ids=["built in", "own"])
def test_misuse(rows):
    assert_all_refused(rows)


# --- views --------------------------------------------------------------------------------------------------

#: Three elements take 12 bytes, of the 64 that the pool gives.
SMALL = tensor.from_numpy(np.array([1, 2, 3], "f"))
VIEWS: tuple[dict[str, Any], ...] = (
    {"shape": (4,)},
    {"shape": (1,), "offset": 12},
    {"shape": (2, 2), "strides": (4, 8)},
    {"shape": (1,), "offset": -4},
    {"shape": (2,), "strides": (-4,), "offset": 4},
    {"shape": (1,), "offset": 2},
    {"shape": (2,), "strides": (2,)},
    {"shape": (1, 2), "strides": (4,)},
    {"shape": (2,), "strides": (4, 4)},
    {"shape": (-1,)},
)


@pytest.mark.parametrize("given", VIEWS, ids=str)
def test_a_view_that_leaves_its_block_is_refused(given):
    calls = (
        lambda: SMALL.view(**given),
        lambda: Tensor(SMALL.block, dtype=np.float32, **given),
        lambda: autograd.identity(SMALL).view(**given),
    )
    for call in calls:
        assert_refused(row(call, ValueError))


def test_views_within_their_block():
    for given, wanted in (
        ({"shape": (3,)}, [1, 2, 3]),
        ({"shape": (2,), "strides": (8,)}, [1, 3]),
        ({"shape": (2, 2), "strides": (4, 4)}, [[1, 2], [2, 3]]),
        ({"shape": (4,), "strides": (0,), "offset": 8}, [3, 3, 3, 3]),
        ({"shape": (0, 5)}, np.zeros((0, 5))),
        ({"shape": (0,), "offset": 12}, []),
        ({"shape": (), "offset": 8}, 3),
        ({"shape": (np.int64(3), 1)}, [[1], [2], [3]]),
    ):
        np.testing.assert_array_equal(tensor.to_numpy(SMALL.view(**given)), wanted)


def test_one_number_stands_for_all_axes():
    same = {"stride": (2, 2), "pad": (1, 1, 1, 1), "dilation": (1, 1)}
    wanted = tensor.to_numpy(autograd.conv2d(X4, WEIGHT, **same))
    for given in ({"stride": 2, "pad": 1}, {"stride": [2, 2], "pad": (1, 1)}, {"stride": np.int64(2), "pad": [1] * 4}):
        np.testing.assert_array_equal(tensor.to_numpy(autograd.conv2d(X4, WEIGHT, **given)), wanted)
    pooled = tensor.to_numpy(autograd.max_pool2d(X4, (3, 3), (2, 2), (1, 1, 1, 1)))
    np.testing.assert_array_equal(tensor.to_numpy(autograd.max_pool2d(X4, 3, 2, 1)), pooled)
