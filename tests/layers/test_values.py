"""Values of the layers, worked out by hand or in plain NumPy: one table, and what changes from call to call."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from kernel_formulas import ACTIVATIONS
from run_layer import RNG, prepared, run, state
from singa_lite import FeedForwardNet, autograd, layers, loss, optimizer, tensor
from singa_lite.errors import GraphError
from singa_lite.layer import Layer
from singa_lite.layers.activation import MODES

#: Layers whose values are in another file.
ELSEWHERE = {
    **dict.fromkeys(("LSTM", "GRU", "SimpleRNN", "Bidirectional"), "test_recurrent.py"),
    **dict.fromkeys(("TimeDistributed", "Residual", "Sequential", "TransformerBlock", "Net"), "test_composites.py"),
    **dict.fromkeys(("Embedding", "PaddingMask", "TiedDense"), "test_padded_values.py"),
    **dict.fromkeys(("Dropout", "SpatialDropout1D", "SpatialDropout2D", "GaussianNoise"), "by chance, below"),
    "MultiHeadAttention": "test_multi_head_attention.py",
    "BatchNormalization": "over two steps, below",
}


class Value(NamedTuple):
    """What a layer gives in evaluation: `wanted`, one array or a list of them, of the inputs and parameters."""

    layer: Layer
    inputs: Sequence[Any]
    wanted: Any
    parameters: Mapping[str, Any] = {}
    rtol: float = 1e-12


def line(*values: float) -> np.ndarray:
    """One sample of one channel."""
    return np.array(values, float).reshape(1, 1, -1)


def pixels(*values: float) -> np.ndarray:
    """One sample of channels of one pixel."""
    return np.array(values, float).reshape(1, -1, 1, 1)


#: Kernels of powers of ten show which element came from where.
TENS = {"weight": [1, 10, 100], "bias": [0]}
FOUR = {"weight": [1, 10, 100, 1000], "bias": [0]}
NINE = {"weight": 10.0 ** np.arange(9), "bias": [0]}
SQUARE = [[[[1, 2], [3, 4]]]]
X = RNG.standard_normal((2, 3, 5, 4))
GAMMA, BETA = RNG.standard_normal((2, 3, 5, 4))
SIX = RNG.standard_normal((2, 6, 3))
POINTS = np.array([[-7, -1.5, -0.25, 0, 0.5, 2, 8.5]])


def standardized(axes: tuple[int, ...]) -> np.ndarray:
    return (X - X.mean(axes, keepdims=True)) / np.sqrt(X.var(axes, keepdims=True) + 0.01)


def lrn(x: np.ndarray) -> np.ndarray:
    squares = np.stack([(x[:, max(c - 1, 0) : c + 2] ** 2).sum(1) for c in range(x.shape[1])], 1)
    return x / (2 + 0.6 / 3 * squares) ** 0.7


COUNT = np.arange(24.0)
RATES = np.array([1, 0.1])
WAVES = [[f(t * rate) for rate in RATES for f in (np.sin, np.cos)] for t in range(3)]
PIECES = [X[:, :1], X[:, 1:2], X[:, 2:]]
OPTIONS_OF = {"leaky_relu": {"slope": 0.01}, "elu": {"alpha": 1.0}}

VALUES: dict[str, Value] = {
    "Dense": Value(
        layers.Dense("d", 3), [[[1, 2], [3, 4]]], [[5.5, 2, 0], [11.5, 4, -2]],
        {"weight": [[1, 0, -1], [2, 1, 0]], "bias": [0.5, 0, 1]},
    ),
    "Dense without a bias": Value(layers.Dense("d", 2, use_bias=False), [[[3]]], [[3, 6]], {"weight": [[1, 2]]}),
    "Dense of each step": Value(
        layers.Dense("d", 1), [[[[1, 2], [3, 4]]]], [[[12.5], [34.5]]], {"weight": [10, 1], "bias": [0.5]},
    ),
    # ---- convolutions
    "Conv2D": Value(layers.Conv2D("c", 1), [SQUARE], [[[[430210000, 43021000], [430210, 43021]]]], NINE),
    "Conv2D with four pads": Value(
        layers.Conv2D("c", 1, 2, pad=(1, 0, 0, 2)), [[[[[1, 2, 3], [4, 5, 6]]]]],
        [[[[2100, 3200, 300, 0], [5421, 6532, 603, 0]]]], FOUR,
    ),
    "Conv2D with strides": Value(
        layers.Conv2D("c", 1, 1, (2, 3), "valid", use_bias=False), [np.arange(12.0).reshape(1, 1, 3, 4)],
        [[[[0, 3], [8, 11]]]], {"weight": [1]},
    ),
    "Conv2D in groups": Value(
        layers.Conv2D("c", 2, 1, groups=2), [pixels(1, 2, 3, 4)], pixels(21, 4300.5),
        {"weight": [1, 10, 100, 1000], "bias": [0, 0.5]},
    ),
    "Conv2D, each channel by itself": Value(
        layers.Conv2D("c", 4, 1, groups=2, use_bias=False), [pixels(1, 2)], pixels(1, 10, 200, 2000),
        {"weight": [1, 10, 100, 1000]},
    ),
    "Conv2D, an even kernel has its pad behind": Value(
        layers.Conv2D("c", 1, 2, padding="same"), [SQUARE], [[[[4321, 402], [43, 4]]]], FOUR,
    ),
    "Conv1D with strides, pads and dilation": Value(
        layers.Conv1D("c", 1, 3, 3, pad=(1, 2), dilation=2), [line(1, 2, 3, 4, 5, 6, 7)], line(420.5, 753.5),
        {"weight": [1, 10, 100], "bias": [0.5]},
    ),
    **{
        f"Conv1D {options} of {len(x)}": Value(layers.Conv1D("c", 1, 3, **options), [line(*x)], line(*wanted), TENS)
        for options, x, wanted in (
            ({"stride": 2, "padding": "same"}, (1, 2, 3, 4), [321, 43]),  # one pad, behind
            ({"stride": 2, "padding": "same"}, (1, 2, 3, 4, 5), [210, 432, 54]),  # one at each end
            ({"stride": 2, "border_mode": "same"}, (1, 2, 3, 4), [210, 432]),
            ({"stride": 2, "padding": "valid"}, (1, 2, 3, 4), [321]),
            ({"stride": 2, "padding": "causal"}, (1, 2, 3, 4), [100, 321]),
            ({"dilation": 2, "padding": "causal"}, (1, 2, 3), [100, 200, 310]),
            ({"dilation": 2, "padding": "same"}, (1, 2, 3), [310, 20, 31]),
        )
    },
    "Conv2DTranspose": Value(
        layers.Conv2DTranspose("t", 1, 2, 2, "valid"), [[[[[1, 2, 3]]]]],
        [[[[1.5, 10.5, 2.5, 20.5, 3.5, 30.5], [100.5, 1000.5, 200.5, 2000.5, 300.5, 3000.5]]]], FOUR | {"bias": [0.5]},
    ),
    "Conv2DTranspose in groups": Value(
        layers.Conv2DTranspose("t", 4, 1, groups=2, use_bias=False), [pixels(1, 2)], pixels(1, 10, 200, 2000),
        {"weight": [1, 10, 100, 1000]},
    ),
    "Conv1DTranspose with steps that no pixel reaches": Value(
        layers.Conv1DTranspose("t", 1, 3, 3, pad=(1, 0), dilation=2, output_padding=2), [line(1, 2)],
        line(0, 10, 2, 100, 20, 0, 200, 0, 0), TENS,
    ),
    "Conv1DTranspose, as large as its stride says": Value(
        layers.Conv1DTranspose("c", 1, 3, 2, padding="same"), [line(1, 2)], line(1, 10, 102, 20), TENS,
    ),
    "Conv1DTranspose, valid": Value(
        layers.Conv1DTranspose("c", 1, 3, 2, padding="valid"), [line(1, 2)], line(1, 10, 102, 20, 200), TENS,
    ),
    "Conv1DTranspose, a stride beyond the kernel": Value(
        layers.Conv1DTranspose("c", 1, 2, 3, padding="same"), [line(1, 2)], line(1, 10, 0, 2, 20, 0),
        {"weight": [1, 10], "bias": [0]},
    ),
    "DepthwiseConv2D": Value(
        layers.DepthwiseConv2D("d", 1, use_bias=False, depth_multiplier=2), [pixels(1, 2)], pixels(1, 10, 200, 2000),
        {"weight": [1, 10, 100, 1000]},
    ),
    "SeparableConv2D": Value(
        layers.SeparableConv2D("s", 1, (1, 2), 1, "valid"), [[[[[1, 2, 3]], [[4, 5, 6]]]]],
        [[[[21 + 2 * 5400 + 0.5, 32 + 2 * 6500 + 0.5]]]],
        {"depthwise/weight": [1, 10, 100, 1000], "pointwise/weight": [1, 2], "pointwise/bias": [0.5]},
    ),
    # ---- poolings and margins
    "MaxPooling2D never takes padding": Value(
        layers.MaxPooling2D("p", 2, 2, pad=(1, 1, 0, 1)), [-np.arange(1.0, 7).reshape(1, 1, 2, 3)],
        [[[[-1, -3], [-4, -6]]]],
    ),
    "MaxPooling1D never takes padding": Value(layers.MaxPooling1D("p"), [line(-4, -3, -2, -5)], line(-3, -2)),
    "MaxPooling1D rounded up": Value(layers.MaxPooling1D("p", 2, 2, ceil_mode=True), [line(1, 2, 3, 4, 5)],
                                     line(2, 4, 5)),
    "AvgPooling2D": Value(layers.AvgPooling2D("p", 3, 1), [SQUARE], [[[[10 / 9] * 2] * 2]]),
    "AvgPooling2D with four pads": Value(
        layers.AvgPooling2D("p", 2, 1, pad=(0, 1, 1, 0)), [SQUARE], [[[[1, 2.5], [0.75, 1.75]]]],
    ),
    "AvgPooling2D without its pads": Value(
        layers.AvgPooling2D("p", 2, 1, pad=(0, 1, 1, 0), count_pad=False), [SQUARE], [[[[2, 2.5], [3, 3.5]]]],
    ),
    **{
        f"{kind} {options} of {len(x)}": Value(getattr(layers, kind)("p", **options), [line(*x)], line(*wanted))
        for kind, options, x, wanted in (
            ("AvgPooling1D", {"kernel": 3, "stride": 2, "padding": "same"}, (1, 2, 3, 4), [2, 3.5]),
            ("AvgPooling1D", {"kernel": 3, "stride": 2, "padding": "same", "count_pad": True}, (1, 2, 3, 4),
             [2, 7 / 3]),
            ("AvgPooling1D", {"kernel": 3, "stride": 2, "pad": 1}, (1, 2, 3, 4), [1, 3]),
            ("AvgPooling1D", {"kernel": 2, "stride": 3, "border_mode": "valid"}, (2, 4, 6, 8, 10), [3, 9]),
            ("AvgPooling1D", {"kernel": 4, "stride": 3, "pad": (2, 0)}, (2, 4, 6, 8, 10), [1.5, 7]),
            ("AvgPooling1D", {"kernel": 4, "stride": 3, "pad": (2, 0), "count_pad": False}, (2, 4, 6, 8, 10), [3, 7]),
            ("AvgPooling1D", {"kernel": 2, "stride": 2, "ceil_mode": True}, (1, 2, 3, 4, 5), [1.5, 3.5, 5]),
            # Padding counts, what lies behind it does not, and no window begins in the padding behind.
            ("AvgPooling1D", {"kernel": 3, "stride": 3, "pad": (1, 1), "ceil_mode": True}, (1, 2, 3, 4, 5), [1, 4]),
            ("AvgPooling1D", {"kernel": 4, "stride": 3, "pad": (1, 0), "ceil_mode": True}, (1, 2, 3, 4, 5), [1.5, 4]),
            ("MaxPooling1D", {"kernel": 3, "stride": 2, "padding": "same"}, (1, 2, 3, 4), [3, 4]),
            ("MaxPooling1D", {"padding": "valid"}, (1, 2, 3, 4), [2, 4]),  # two by two, as Keras's
            ("MaxPooling1D", {"kernel": 3, "padding": "same"}, (1, 2, 3, 4), [2, 4]),
        )
    },
    "GlobalMaxPooling1D": Value(layers.GlobalMaxPooling1D("p"), [[[[1, 5, 3], [-1, -4, -7]]]], [[5, -1]]),
    "GlobalAvgPooling1D": Value(layers.GlobalAvgPooling1D("p"), [[[[1, 5, 3], [-1, -4, -7]]]], [[3, -4]]),
    "GlobalMaxPooling2D": Value(layers.GlobalMaxPooling2D("p"), [[[[[1, 2], [4, 3]], [[0, 9], [8, 7]]]]], [[4, 9]]),
    "GlobalAvgPooling2D": Value(layers.GlobalAvgPooling2D("p"), [np.arange(12.0).reshape(1, 2, 2, 3)], [[2.5, 8.5]]),
    "ZeroPadding2D": Value(
        layers.ZeroPadding2D("z", (0, 1, 2, 0)), [[[[[1, 2, 3], [4, 5, 6]]]]],
        [[[[0, 0, 1, 2, 3], [0, 0, 4, 5, 6], [0, 0, 0, 0, 0]]]],
    ),
    "Cropping2D": Value(
        layers.Cropping2D("c", (0, 1, 2, 0)), [[[[[0, 0, 1, 2, 3], [0, 0, 4, 5, 6], [0, 0, 0, 0, 0]]]]],
        [[[[1, 2, 3], [4, 5, 6]]]],
    ),
    "Upsampling2D": Value(
        layers.Upsampling2D("u", (3, 2)), [[[[[1, 2]], [[3, 4]]]]], [[[[1, 1, 2, 2]] * 3, [[3, 3, 4, 4]] * 3]],
    ),
    "Upsampling2D by one factor": Value(
        layers.Upsampling2D("u"), [SQUARE], [[[[1, 1, 2, 2]] * 2 + [[3, 3, 4, 4]] * 2]],
    ),
    # ---- normalizations
    **{
        f"LayerNormalization from {axis}": Value(
            layers.LayerNormalization("l", axis, epsilon=0.01), [X], GAMMA[at] * standardized(over) + BETA[at],
            {"gamma": GAMMA[at], "beta": BETA[at]},
        )
        for axis, over, at in ((-1, (3,), (0, 0)), (2, (2, 3), (0,)), (-3, (1, 2, 3), ()))
    },
    "GroupNormalization": Value(
        layers.GroupNormalization("g", 2, epsilon=1e-12), [[[[1, 3], [5, 7], [10, 10], [10, 10]]]],
        [[[-3 / 5**0.5, -1 / 5**0.5], [2 / 5**0.5, 6 / 5**0.5], [5, 5], [6, 6]]],
        {"gamma": [1, 2, 3, 4], "beta": [0, 0, 5, 6]}, 1e-9,
    ),
    "RMSNormalization": Value(
        layers.RMSNormalization("r", 0.1), [SIX], [1, 2, -1] * SIX / np.sqrt((SIX**2).mean(-1, keepdims=True) + 0.1),
        {"gamma": [1, 2, -1]},
    ),
    "LRN": Value(layers.LRN("l", 3, 0.6, 0.7, k=2), [SIX], lrn(SIX)),
    "L2Norm": Value(layers.L2Norm("l", 1e-30), [[[3, 4], [0, -2]]], [[0.6, 0.8], [0, -1]]),
    "L2Norm with an epsilon": Value(layers.L2Norm("l", 11), [[[3, 4]]], [[0.5, 4 / 6]]),
    "Normalization": Value(layers.Normalization("n", [1, 2], 4), [[[3, 2]]], [[1, 0]]),
    "Rescaling": Value(layers.Rescaling("r", 0.5, -1), [[[0, 2, 4]]], [[-1, 0, 1]]),
    # ---- activations
    **{
        f"Activation {mode}": Value(
            layers.Activation("a", mode), [POINTS], formula(POINTS, **OPTIONS_OF.get(mode, {}))
        )
        for mode, formula in ACTIVATIONS.items()
    },
    "Activation leaky_relu, steep": Value(layers.Activation("a", "leaky_relu", slope=0.5), [[[-3, 3]]], [[-1.5, 3]]),
    "Activation elu, steep": Value(layers.Activation("a", "elu", alpha=2), [[[-math.log(2), 3]]], [[-1, 3]]),
    "PReLU": Value(layers.PReLU("p"), [[[[2, -2], [3, -4]]]], [[[2, -1], [3, 4]]], {"alpha": [0.5, -1]}),
    "Softmax": Value(
        layers.Softmax("s"), [np.log([[[1.0, 2], [3, 6]]])], [[[0.25, 0.25], [0.75, 0.75]]],
    ),
    "Softmax of the last axis": Value(
        layers.Softmax("s", -1), [np.log([[[1.0, 2], [3, 6]]])], [[[1 / 3, 2 / 3]] * 2],
    ),
    "SwiGLU": Value(  # silu(2) * 3 and silu(-1) * 4
        layers.SwiGLU("s", 2, use_bias=False), [[[1, 1]]], [[3 * 2 / (1 + np.exp(-2.0)), 4 * -1 / (1 + np.exp(1.0))]],
        {"gate/weight": [[2.0, 0], [0, -1]], "value/weight": [[3.0, 0], [0, 4]]}, 1e-6,
    ),
    # ---- shapes and joins
    "Flatten": Value(layers.Flatten("f"), [COUNT.reshape(2, 3, 1, 4)], COUNT.reshape(2, 12)),
    "Flatten from 2": Value(layers.Flatten("f", 2), [COUNT.reshape(2, 3, 1, 4)], COUNT.reshape(2, 3, 4)),
    "Flatten from -1": Value(layers.Flatten("f", -1), [COUNT.reshape(2, 3, 1, 4)], COUNT.reshape(2, 3, 1, 4)),
    "Reshape": Value(layers.Reshape("r", (2, -1)), [COUNT.reshape(2, 3, 4)], COUNT.reshape(2, 2, 6)),
    "Permute": Value(layers.Permute("p", (3, 1, 2)), [X], X.transpose(0, 3, 1, 2)),
    "Merge": Value(layers.Merge("m"), [[[1, 2]], [[10, 20]], [[100, 300]]], [[111, 322]]),
    "Multiply": Value(layers.Multiply("m"), [[[1, 2]], [[10, 20]], [[100, 300]]], [[1000, 12000]]),
    "Split": Value(layers.Split("s", 3), [X], [X, X, X]),
    "Slice": Value(layers.Slice("s", 1, [1, 2]), [X], PIECES),
    "Slice of the last axis": Value(layers.Slice("s", -1, [1]), [X], [X[..., :1], X[..., 1:]]),
    "Concat": Value(layers.Concat("c", 1), PIECES, X),
    "Concat of the last axis": Value(layers.Concat("c", 3), [X[..., :1], X[..., 1:]], X),
    "Dummy": Value(layers.Dummy("d"), [X], X),
    "LearnedPositions": Value(layers.LearnedPositions("p", 9), [SIX], SIX + GAMMA.ravel()[:18].reshape(6, 3),
                              {"weight": GAMMA.ravel()[:27]}),
    "TextStarts": Value(layers.TextStarts("s"), [[[0, 0, 2, 2]]], [[0, 0, 2, 2]]),
    "SinusoidalPositions": Value(layers.SinusoidalPositions("p", 100.0), [X[:, 0, :3]], X[:, 0, :3] + WAVES),
    "Lambda": Value(layers.Lambda("l", lambda x: 2 * x + 1), [[[1, 2]]], [[3, 5]]),
    "Lambda of two": Value(layers.Lambda("l", lambda a, b: (a + b, a * b)), [[[1, 2]], [[3, 4]]], [[[4, 6]], [[3, 8]]]),
}  # fmt: skip


@pytest.mark.parametrize("key", VALUES)
def test_values(key):
    layer, inputs, wanted, parameters, rtol = VALUES[key]
    assert type(layer).__name__ == key.replace(",", " ").split()[0]
    found = run(layer, *inputs, parameters=parameters)
    pairs = zip(found, wanted, strict=True) if isinstance(found, list) else [(found, wanted)]
    for got, right in pairs:
        assert got.shape == np.shape(right)
        np.testing.assert_allclose(got, right, rtol=rtol, atol=1e-15)


def test_every_layer_and_mode_has_its_values():
    offered = {name for name, made in vars(layers).items() if inspect.isclass(made) and issubclass(made, Layer)}
    assert not offered - {type(value.layer).__name__ for value in VALUES.values()} - set(ELSEWHERE)
    assert ACTIVATIONS.keys() == MODES.keys()


#: (a layer, its input's sample shape, its output's).
SHAPES: list[tuple[Layer, tuple[int, ...], tuple[int, ...]]] = [
    (layers.Conv2D("c", 4, 3, 2), (3, 224, 112), (4, 112, 56)),
    (layers.Conv2D("c", 4, (5, 3)), (3, 9, 7), (4, 9, 7)),
    (layers.Conv2D("c", 4, 3, dilation=2), (3, 9, 7), (4, 9, 7)),
    (layers.Conv2D("c", 4, 4, border_mode="valid"), (3, 9, 7), (4, 6, 4)),
    (layers.Conv2D("c", 4, 4, pad=(0, 3, 1, 2)), (3, 9, 7), (4, 9, 7)),
    (layers.Conv2D("c", 4, (2, 4), pad=(0, 3)), (3, 6, 5), (4, 5, 8)),
    (layers.Conv1D("c", 4, 5), (3, 9), (4, 9)),
    (layers.Conv1D("c", 4, 4, 2, pad=(0, 3)), (3, 9), (4, 5)),
    (layers.Conv2DTranspose("t", 4), (3, 5, 6), (4, 5, 6)),
    (layers.Conv2DTranspose("t", 4, 3, 2), (3, 5, 6), (4, 10, 12)),
    (layers.Conv2DTranspose("t", 4, 5, (1, 3), dilation=2), (3, 5, 6), (4, 5, 18)),
    (layers.Conv2DTranspose("t", 4, 3, 2, output_padding=0), (3, 5, 6), (4, 9, 11)),
    (layers.Conv2DTranspose("t", 4, (2, 3), 2, "valid"), (3, 5, 6), (4, 10, 13)),
    (layers.Conv2DTranspose("t", 4, 3, 2, pad=(0, 1, 0, 1)), (3, 5, 6), (4, 10, 12)),
    (layers.Conv1DTranspose("t", 4, 3, 4), (3, 5), (4, 20)),
    (layers.ZeroPadding2D("z", (1, 2)), (3, 4, 5), (3, 6, 9)),
    (layers.Cropping2D("c", (1, 2)), (3, 4, 5), (3, 2, 1)),
    (layers.MaxPooling2D("p"), (3, 224, 112), (3, 112, 56)),
    (layers.AvgPooling2D("p", (2, 3), (2, 1), "valid"), (3, 7, 5), (3, 3, 3)),
    (layers.MaxPooling1D("p", 3, 2), (3, 8), (3, 4)),
    (layers.Upsampling2D("u", (1, 4)), (3, 5, 6), (3, 5, 24)),
    (layers.Reshape("r", [-1]), (3, 4), (12,)),
    (layers.Reshape("r", ()), (1, 1), ()),
]


def test_shapes():
    for layer, given, wanted in SHAPES:
        assert prepared(layer, given).get_output_sample_shape() == wanted, layer


PARAMETERS: list[tuple[Layer, tuple[int, ...], dict[str, tuple[int, ...]]]] = [
    (layers.Dense("d", 2, use_bias=False), (3,), {"d/weight": (3, 2)}),
    (layers.Dense("d", 4), (3, 2, 5), {"d/weight": (5, 4), "d/bias": (4,)}),
    (layers.Conv2D("c", 4, (1, 2), 1, "valid", groups=2), (6, 9, 7), {"c/weight": (4, 3, 1, 2), "c/bias": (4,)}),
    (layers.Conv1D("c", 4, 5), (3, 9), {"c/weight": (4, 3, 1, 5), "c/bias": (4,)}),
    (
        layers.Conv2DTranspose("t", 4, (1, 2), 1, "valid", groups=2),
        (6, 9, 7),
        {"t/weight": (6, 2, 1, 2), "t/bias": (4,)},
    ),
    (layers.DepthwiseConv2D("d", 1, depth_multiplier=2, use_bias=False), (2, 3, 3), {"d/weight": (4, 1, 1, 1)}),
    *(
        (layers.PReLU("p", axes), (3, 4, 5), {"p/alpha": shape})
        for axes, shape in ((None, (3, 1, 1)), ((), (3, 4, 5)), ((2,), (3, 1, 5)), ((1, 2, 3), (1, 1, 1)))
    ),
    *((layers.LayerNormalization("l", a), (3, 5, 4), {"l/gamma": s, "l/beta": s}) for a, s in ((3, (4,)), (2, (5, 4)))),
]


def test_names_and_shapes_of_parameters():
    for layer, given, wanted in PARAMETERS:
        prepared(layer, given)
        found = dict(zip(layer.param_names(), (p.shape for p in layer.param_values()), strict=True))
        assert found == wanted


#: Keras's padding: a layer, its input, and the pads that come of the extents and the stride.
PADS: dict[str, tuple[Layer, tuple[int, ...], tuple[int, int, int, int]]] = {
    "even extents": (layers.Conv2D("c", 2, 3, 2, padding="same"), (2, 8, 6), (0, 1, 0, 1)),
    "odd extents": (layers.Conv2D("c", 2, 3, 2, padding="same"), (2, 7, 6), (1, 1, 0, 1)),
    "stride of one": (layers.Conv2D("c", 2, (3, 4), padding="same"), (2, 7, 6), (1, 1, 1, 2)),
    "stride beyond the kernel": (layers.MaxPooling2D("c", 1, 3, padding="same"), (2, 7, 6), (0, 0, 0, 0)),
    "depthwise": (layers.DepthwiseConv2D("c", 5, 2, padding="same"), (2, 8, 9), (1, 2, 2, 2)),
    "separable": (layers.SeparableConv2D("c", 3, 2, padding="same"), (2, 8, 9), (0, 1, 0, 1)),
    "transposed": (layers.Conv2DTranspose("c", 3, (4, 5), 2, padding="same"), (2, 8, 9), (1, 1, 1, 2)),
}


@pytest.mark.parametrize("name", PADS)
def test_pads_by_the_extents_of_images(name):
    layer, shape, pad = PADS[name]
    assert prepared(layer, shape).window.pad == pad


def test_an_embedding_begins_its_padding_as_0():
    weight = tensor.to_numpy(prepared(layers.Embedding("e", 5, 3, 2), (4,)).parameters["weight"])
    np.testing.assert_array_equal(weight[2], 0)
    assert np.abs(weight[[0, 1, 3, 4]]).min() > 0


def test_initial_values_are_those_asked_for():
    layer = prepared(layers.Dense("d", 30, bias_init=0.25), (40,))
    weight, bias = map(tensor.to_numpy, layer.param_values())
    bound = math.sqrt(6 / (40 + 30))  # Glorot and Bengio 2010
    assert 0.95 * bound < np.abs(weight).max() <= bound
    np.testing.assert_array_equal(bias, 0.25)
    layer = prepared(layers.Conv2D("c", 16, (3, 5), weight_init="he_uniform", groups=2, border_mode="valid"), (4, 9, 8))
    weight, bias = map(tensor.to_numpy, layer.param_values())
    bound = math.sqrt(6 / (2 * 15))  # He et al. 2015; two channels of 15 elements reach an output
    assert 0.95 * bound < np.abs(weight).max() <= bound
    np.testing.assert_array_equal(bias, 0)
    for kind in (layers.BatchNormalization, layers.LayerNormalization):
        for options, wanted in (({}, [1, 0]), ({"gamma_init": 0.5, "beta_init": 3}, [0.5, 3])):
            made = prepared(kind("n", **options), (3,))
            assert made.param_names() == ["n/gamma", "n/beta"]
            assert [tensor.to_numpy(p).tolist() for p in made.param_values()] == [[value] * 3 for value in wanted]


# ---- statistics


@pytest.mark.parametrize("shape", [(3,), (3, 5), (3, 5, 4)])
def test_batch_normalization_over_two_steps_and_then_in_evaluation(shape):
    layer = prepared(layers.BatchNormalization("b", 0.3, epsilon=0.01), shape)
    gamma, beta = np.array([1.0, 2, 3]), np.array([-1.0, 0, 1])
    layer.parameters["gamma"].copy_from_numpy(gamma)
    layer.parameters["beta"].copy_from_numpy(beta)
    axes = (0, *range(2, len(shape) + 1))

    def normalized(x: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        flat = np.moveaxis(x, 1, -1)
        return np.moveaxis(gamma * (flat - mean) / np.sqrt(var + 0.01) + beta, -1, 1)

    mean, var = np.zeros(3), np.ones(3)
    for _ in range(2):
        np.testing.assert_allclose(state(layer, "running_mean"), mean, rtol=1e-12)
        np.testing.assert_allclose(state(layer, "running_var"), var, rtol=1e-12)
        x = RNG.normal(2, 3, (6, *shape))
        wanted = normalized(x, x.mean(axes), x.var(axes))
        np.testing.assert_allclose(run(layer, x, training=True), wanted, rtol=1e-12, atol=1e-12)
        mean, var = 0.7 * mean + 0.3 * x.mean(axes), 0.7 * var + 0.3 * x.var(axes, ddof=1)
    np.testing.assert_allclose(run(layer, x), normalized(x, mean, var), rtol=1e-12, atol=1e-12)


def test_group_normalization_in_float32_beside_a_large_mean():
    """A variance as the mean of squares less the square of the mean would be all rounding here."""
    x = (10000 + RNG.standard_normal((2, 4, 9, 7))).astype(np.float32)
    wide = x.reshape(2, 2, -1).astype(np.float64)
    wanted = (wide - wide.mean(2, keepdims=True)) / np.sqrt(wide.var(2, keepdims=True) + 1e-5)
    layer = prepared(layers.GroupNormalization("g", 2), (4, 9, 7), dtype=np.float32)
    y = tensor.to_numpy(layer.forward(False, tensor.from_numpy(x)))
    np.testing.assert_allclose(y.reshape(wanted.shape), wanted, atol=2e-3)


def test_normalization_takes_its_numbers_from_data_by_parts(monkeypatch):
    monkeypatch.setattr("singa_lite.layers.normalization.normalization._PIECE", 25)
    data = RNG.integers(0, 256, (9, 3, 4, 5)).astype(np.uint8)
    data[:, 1] = 7
    layer = layers.Normalization("n")
    for given in (data, data[:4] + 1.0):  # then in a net, too
        layer.adapt(given)
        y = run(layer, given)
        np.testing.assert_allclose(y.mean((0, 2, 3)), [0, 0, 0], atol=1e-12)
        np.testing.assert_allclose(y.std((0, 2, 3)), [1, 0, 1])
    far = 1e6 + RNG.standard_normal((17, 3, 4))
    layer = layers.Normalization("n")
    layer.adapt(far)
    np.testing.assert_allclose(layer.mean, far.mean((0, 2)), rtol=1e-14)
    np.testing.assert_allclose(layer.variance, far.var((0, 2)), rtol=1e-9)


@pytest.mark.parametrize("graph", [True, False])
def test_normalization_wants_its_numbers_before_the_first_batch(graph):
    net = FeedForwardNet(loss.SquaredError())
    net.add(layers.BatchNormalization("before", input_sample_shape=(2,)))
    net.add(layers.Sequential([layers.Normalization("n")], name="held"))
    net.compile(optimizer.SGD(0.1), graph=graph)
    x = np.array([[1, 2], [3, 2]], "f")
    for call in (
        net.predict_one_batch,
        lambda x: net.forward(True, x),
        net.predict,
        lambda x: net.train_one_batch(x, x),
        lambda x: net.fit(iter([(x, x)]), steps_per_epoch=1),
        lambda x: net.fit(x, x),
        lambda x: net.evaluate(x, x),
    ):
        with pytest.raises(GraphError, match=r"'held/n'.* adapt"):
            call(x)
    assert not net.unfinished_at and net.optimizer.step == 0 and net.plan_batch(4).total_bytes
    net.layers["held"].layers["n"].adapt(x)
    net.fit(x, x, verbose=False)


# ---- not finite, and equal


def test_of_equal_largest_elements_the_first_gets_the_derivative():
    x = tensor.from_numpy(np.array([[[[1.0, 5], [5, 5]]]]))
    x.stores_grad = True
    _, dx = next(autograd.backward(prepared(layers.GlobalMaxPooling2D("p"), (1, 2, 2)).forward(True, x)))
    np.testing.assert_array_equal(tensor.to_numpy(dx), [[[[0, 1], [0, 0]]]])


def test_prelu_of_what_is_not_finite_and_at_zero():
    x = tensor.from_numpy(np.array([[np.inf, -np.inf, np.nan, 0, -0.0]]))
    x.stores_grad = True
    y = autograd.prelu(x, tensor.from_numpy(np.full(5, 0.25)))
    np.testing.assert_array_equal(tensor.to_numpy(y), [[np.inf, -np.inf, np.nan, 0, 0]])
    _, dx = next(autograd.backward(y, tensor.from_numpy(np.full((1, 5), 2.0))))
    np.testing.assert_array_equal(tensor.to_numpy(dx)[0, [0, 1, 3, 4]], [2, 0.5, 0.5, 0.5])


# ---- by chance


def test_dropout_keeps_the_mean_and_scales():
    x = np.full((50, 400), 3.0)
    y = run(layers.Dropout("o", 0.2), x, training=True)
    assert set(np.unique(y)) == {0, 3 / 0.8}
    assert abs((y == 0).mean() - 0.2) < 0.015  # five standard deviations of 20,000 draws
    np.testing.assert_array_equal(run(layers.Dropout("o", 0), x, training=True), x)


def test_dropout_repeats_itself_from_the_same_state_only():
    x = np.ones((8, 16))
    layer = layers.Dropout("o")
    first, second = run(layer, x, training=True), run(layer, x, training=True)
    assert (first != second).any()
    run(layer, x)  # evaluation does not move on
    assert state(layer, "random")[2] == 2
    again = layers.Dropout("o")
    np.testing.assert_array_equal(run(again, x, training=True), first)
    again.states["random"].copy_from_numpy(layer.random_key("random"))
    np.testing.assert_array_equal(run(again, x, training=True), first)
    for other in (layers.Dropout("other"), prepared(layers.Dropout("o"), (16,), seed=6)):
        assert (run(other, x, training=True) != first).any()


def test_spatial_dropout_drops_whole_channels():
    for layer, extents in ((layers.SpatialDropout1D("o", 0.25), (5,)), (layers.SpatialDropout2D("o", 0.25), (2, 3))):
        y = run(layer, np.ones((40, 20, *extents)), training=True).reshape(40, 20, -1)
        assert (y == y[..., :1]).all()
        np.testing.assert_allclose(np.unique(y), [0, 4 / 3])
        assert 0.2 < (y[..., 0] == 0).mean() < 0.3
        assert state(layer, "random")[2] == 1


def test_gaussian_noise_is_normal_and_moves_on():
    layer = layers.GaussianNoise("n", 0.5)
    x = np.full((200, 100), 3.0)
    first, second = run(layer, x, training=True), run(layer, x, training=True)
    assert not np.array_equal(first, second)
    np.testing.assert_allclose([first.mean(), first.std(), second.std()], [3, 0.5, 0.5], rtol=0.02)
    key = np.random.Generator(np.random.Philox(key=layer.random_key("random")[:2], counter=[0, 0, 0, 0]))
    np.testing.assert_allclose(first.ravel()[:9], 3 + 0.5 * key.standard_normal(9, np.float32), rtol=1e-6)
