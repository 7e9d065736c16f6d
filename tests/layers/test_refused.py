"""Options, inputs and tensors that layers and their operations refuse: the error's type, the layer, and the culprit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from misuse import refused
from run_layer import prepared, run
from singa_lite import FeedForwardNet, GraphError, ShapeError, autograd, device, layers, tensor
from singa_lite.layers.positions import sinusoidal_table


def zeros(*shape: int, dtype: str = "f") -> Any:
    return tensor.zeros(shape, dtype)


LSTM, ATTEND = (lambda **o: layers.LSTM("here", 3, **o)), (lambda **o: layers.MultiHeadAttention("here", **o))
BLOCK, SEQUENTIAL = (lambda **o: layers.TransformerBlock("here", 2, **o)), (lambda x: layers.Sequential("here", x))
BESIDE_THE_BATCH = layers.LayerNormalization, layers.Softmax, layers.Flatten, layers.Concat
CONV, ALONG = (lambda **o: layers.Conv2D("here", 4, **o)), (lambda **o: layers.Conv1D("here", 4, **o))
MAXIMUM, AVERAGE = (lambda **o: layers.MaxPooling2D("here", **o)), (lambda **o: layers.AvgPooling2D("here", **o))
#: (layers, options and the culprit).
WINDOWS: list[tuple[Any, list[tuple[dict[str, Any], tuple[str, ...]]]]] = [
    ((CONV, MAXIMUM, AVERAGE), [
        *(({"kernel": bad}, ("kernel", f"received {bad}")) for bad in (0, 2.0, True, (3, 0), (3,), (3, 3, 3))),
        *(({"stride": bad}, ("stride", f"received {bad}")) for bad in (0, (1, -1))),
        ({"border_mode": "full"}, ("border_mode", "received 'full'")),
        ({"border_mode": "full", "pad": 1}, ("border_mode", "received 'full'")),
        *(({"kernel": bad, "border_mode": "same"}, ("kernel", "'same'", f"received {bad}")) for bad in (4, (3, 2))),
        *(({"pad": bad}, ("pad", f"received {bad}")) for bad in (-1, 0.5, (1, 1, 1), (0, 0, 0, -1))),
    ]),
    ((ALONG, lambda **o: layers.MaxPooling1D("here", **o), lambda **o: layers.AvgPooling1D("here", **o)), [
        ({"kernel": (3, 3)}, ("kernel", "received (3, 3)")),
        ({"stride": 0}, ("stride", "received 0")),
        ({"kernel": 2, "border_mode": "same"}, ("kernel", "'same'")),
        *(({"pad": bad}, ("pad", f"received {bad}")) for bad in ((1, 1, 1, 1), (-1, 1))),
    ]),
]  # fmt: skip
#: (a constructor that ends in a ValueError, the culprit).
OPTIONS: list[tuple[Callable[[], object], tuple[str, ...]]] = [
    (lambda: layers.Conv2DTranspose("here", 4, 3, 2, output_padding=2), ("output_padding", "(2, 2)", "received 2")),
    (lambda: layers.Conv2DTranspose("here", 4, 3, (2, 1), output_padding=1), ("output_padding", "(2, 1)")),
    (lambda: layers.Conv2DTranspose("here", 4, output_padding=-1), ("output_padding", "received -1")),
    (lambda: layers.Conv1DTranspose("here", 4, output_padding=(0, 0)), ("output_padding", "(0, 0)")),
    (lambda: layers.Conv2DTranspose("here", 4, groups=3), ("groups", "4 kernels")),
    (lambda: layers.Conv2DTranspose("here", 4, 2), ("kernel", "border_mode")),
    (lambda: layers.DepthwiseConv2D("here", depth_multiplier=0), ("depth_multiplier", "received 0")),
    (lambda: layers.ZeroPadding2D("here", -1), ("pad", "received -1")),
    (lambda: layers.Cropping2D("here", (1, 2, 3)), ("crop", "(1, 2, 3)")),
    (lambda: layers.GroupNormalization("here", 0), ("groups", "received 0")),
    (lambda: layers.PReLU("here", (0,)), ("batch", "(0,)")),
    (lambda: layers.SpatialDropout2D("here", 1), ("below 1", "received 1")),
    (lambda: layers.GaussianNoise("here", -0.1), ("std", "-0.1")),
    (lambda: layers.Rescaling("here", np.inf), ("scale", "inf")),
    (lambda: layers.Normalization("here", 1), ("mean", "variance", "None")),
    (lambda: layers.Normalization("here", 1, -1), ("variance", "-1")),
    (lambda: layers.Normalization("here", [1, None], 1), ("mean", "None")),
    (lambda: layers.Normalization("here", 1, 2).adapt([1, 2]), ("adapt",)),
    (lambda: layers.Normalization("here", 1, 2).adapt(np.zeros((0, 3))), ("adapt", "(0, 3)")),
    (lambda: layers.Normalization("here", 1, 2).adapt([[1, np.nan]]), ("adapt",)),
    *((lambda f=f: layers.Upsampling2D("here", f), ("factor", repr(f))) for f in (0, 1.5, "2", (2, 0), (2,), None)),
    (lambda: layers.Embedding("here", 5, 3, 5), ("padding_idx", "received 5")),
    (lambda: layers.PaddingMask("here", -1), ("padding_idx", "received -1")),
    (lambda: layers.Permute("here", (1, 1)), ("axes", "(1, 1)")),
    (lambda: BLOCK(activation="swish"), ("activation", "swiglu", "'swish'")),
    (lambda: BLOCK(norm="batch"), ("norm", "'batch'")),
    (lambda: BLOCK(hidden_dropout=-0.1), ("hidden_dropout", "-0.1")),
    (lambda: SEQUENTIAL([]), ("layer",)),
    (lambda: layers.Bidirectional("here", layers.GRU("g", 2), "most"), ("merge", "'most'")),
    (lambda: ATTEND(heads=4, kv_heads=3), ("kv_heads", "4", "3")),
    (lambda: ATTEND(heads=4, dropout=1), ("dropout", "below 1")),
    (lambda: ATTEND(heads=4, use_bias=False, bias_init=1.0), ("bias_init", "use_bias")),
    (lambda: LSTM(num_stacks=0), ("num_stacks", "0")),
    (lambda: LSTM(dropout=0.5), ("dropout", "num_stacks")),
    (lambda: LSTM(dropout=1, num_stacks=2), ("dropout", "below 1")),
    (lambda: LSTM(input_mode="skip"), ("input_mode", "'skip'")),
    (lambda: LSTM(bidirectional=True, merge="max"), ("merge", "'max'")),
    (lambda: LSTM(merge="sum"), ("merge", "bidirectional")),
    (lambda: LSTM(stateful=True), ("batch_size", "stateful")),
    (lambda: LSTM(batch_size=3), ("batch_size", "stateful")),
    (lambda: LSTM(stateful=True, batch_size=3, bidirectional=True), ("stateful", "one direction")),
    (lambda: LSTM(use_bias=False, bias_init=1.0), ("bias_init", "use_bias")),
    (lambda: LSTM(recurrent_activation="tanh"), ("recurrent_activation", "'tanh'")),
    (lambda: layers.Dense("here", 0), ("num_output", "received 0")),
    (lambda: layers.Conv2D("here", -1), ("nb_kernels", "received -1")),
    (lambda: layers.Conv2D("here", 4, groups=0), ("groups", "received 0")),
    (lambda: layers.Conv2D("here", 4, groups=3), ("groups", "4 kernels", "received 3")),
    (lambda: layers.Conv2D("here", 4, dilation=0), ("dilation", "received 0")),
    (lambda: layers.Conv1D("here", 4, dilation=(1, 2)), ("dilation", "received (1, 2)")),
    (lambda: layers.MaxPooling2D("here", 2, pad=2), ("pads", "(2, 2)")),
    (lambda: layers.AvgPooling2D("here", (2, 3), pad=(0, 3)), ("pads", "(2, 3)")),
    (lambda: layers.AvgPooling1D("here", 2, pad=(0, 2)), ("pads",)),
    (lambda: layers.BatchNormalization("here", 1.5), ("momentum", "received 1.5")),
    (lambda: layers.BatchNormalization("here", epsilon=0), ("epsilon", "received 0")),
    (lambda: layers.LayerNormalization("here", epsilon=float("nan")), ("epsilon", "received nan")),
    (lambda: layers.LRN("here", 4), ("size", "received 4")),
    (lambda: layers.LRN("here", 0), ("size", "received 0")),
    (lambda: layers.LRN("here", mode="within_channel"), ("mode", "'within_channel'")),
    (lambda: layers.LRN("here", alpha=-1), ("alpha", "received -1")),
    (lambda: layers.LRN("here", beta=float("inf")), ("beta", "received inf")),
    (lambda: layers.LRN("here", k=0), ("k", "received 0")),
    (lambda: layers.L2Norm("here", -1), ("epsilon", "received -1")),
    (lambda: layers.Activation("here", "leaky_relu", alpha=1), ("alpha", "'elu'")),
    (lambda: layers.Activation("here", "leaky_relu", slope=0), ("slope", "received 0")),
    (lambda: layers.Activation("here", "elu", alpha=-1), ("alpha", "received -1")),
    (lambda: layers.Dropout("here", 1), ("p", "received 1")),
    (lambda: layers.Dropout("here", -0.1), ("p", "received -0.1")),
    (lambda: layers.Split("here", 0), ("num_output", "received 0")),
    *((lambda f=f: f("here", 0), ("axis", "batch", "received 0")) for f in BESIDE_THE_BATCH),
    (lambda: layers.Slice("here", 0, [1]), ("axis", "batch", "received 0")),
    *((lambda s=s: layers.Reshape("here", s), ("shape", repr(s))) for s in ((-1, 2, -1), (0, 2), 12)),
    *((lambda s=s: layers.Slice("here", 1, s), (f"received {s}",)) for s in ([], [2, 2], [0, 2], 2)),
    *((lambda m=m, o=o: m(**o), words) for kinds, bad in WINDOWS for m in kinds for o, words in bad),
]


@pytest.mark.parametrize("number", range(len(OPTIONS)))
def test_options_that_make_no_sense(number):
    call, words = OPTIONS[number]
    refused(call, ValueError, "'here'", *words)


OF_ONE = [
    *(
        kind("here")
        for kind in (layers.MaxPooling1D, layers.BatchNormalization, layers.LayerNormalization, layers.L2Norm)
    ),
    *(kind("here") for kind in (layers.Activation, layers.Softmax, layers.Dropout, layers.Flatten, layers.Dummy)),
    *(kind("here", 2) for kind in (layers.Dense, layers.Conv2D, layers.Split)),
    *(layers.Reshape("here", (1,)), layers.Slice("here", 1, [1])),
]
#: (a layer, its input sample shapes, the culprit), each a ShapeError.
INPUTS: list[tuple[Any, list[tuple[int, ...]], tuple[str, ...]]] = [
    (layers.Conv2DTranspose("here", 4, pad=9), [(3, 4, 5)], ("-12 x -11",)),
    (layers.Conv2DTranspose("here", 4, groups=2), [(3, 4, 5)], ("2 groups",)),
    (layers.Cropping2D("here", (2, 2, 0, 0)), [(3, 4, 5)], ("leave",)),
    (layers.GroupNormalization("here", 2), [(3, 4, 5)], ("2 groups",)),
    (layers.PReLU("here", (3,)), [(3, 4)], ("(3,)", "(3, 4)")),
    (layers.Normalization("here", [1, 2], 1), [(3, 4)], ("mean", "2")),
    (layers.SpatialDropout1D("here"), [(3, 4, 5)], ("(channels, length)", "(3, 4, 5)")),
    (layers.GlobalMaxPooling1D("here"), [(3, 4, 5)], ("(channels, length)", "(3, 4, 5)")),
    (layers.Upsampling2D("here"), [(3, 4)], ("(channels, height, width)", "(3, 4)")),
    (layers.Lambda("here", lambda x: autograd.reduce_sum(x, 0)), [(3, 4)], ("batch",)),
    (layers.Lambda("here", lambda x: autograd.reshape(x, (-1,))), [(3, 4)], ("batch",)),
    (layers.Permute("here", (2, 1)), [(3, 4, 5)], ("2 axes", "(3, 4, 5)")),
    (layers.LearnedPositions("here", 2), [(3, 4)], ("max_length 2", "received 3")),
    (layers.SinusoidalPositions("here"), [(3, 3)], ("even",)),
    (layers.Embedding("here", 9, 6, mask_zero=True), [(5, 2)], ("mask_zero", "(time,)")),
    (BLOCK(), [(5,)], ("(time, features)", "(5,)")),
    (BLOCK(), [(5, 3)], ("heads",)),
    (ATTEND(heads=4), [(5, 6)], ("4 heads", "6 features", "head_size")),
    (ATTEND(heads=2), [(6,)], ("(time, features)", "(6,)")),
    (ATTEND(heads=2), [(5, 6), (7, 6), (5,)], ("mask", "(7,)", "(5,)")),
    (ATTEND(heads=2), [(5, 6), (4,)], ("mask", "(5,)", "(4,)")),
    (ATTEND(heads=2), [(5, 6), (5,), (7, 6)], ("memory",)),
    (ATTEND(heads=2, rotary=True), [(5, 6)], ("even head_size", "3")),
    (ATTEND(heads=3, rotary=True), [(5, 6), (7, 6)], ("self-attention", "(7, 6)")),
    (ATTEND(heads=3, causal=True, window=2), [(5, 6), (7, 6)], ("self-attention", "window", "(7, 6)")),
    (ATTEND(heads=3, causal=True, packed=True), [(5, 6)], ("packed", "starts", "(5, 6)")),
    (ATTEND(heads=3, causal=True, packed=True), [(5, 6), (4,)], ("packed", "starts", "(4,)")),
    (ATTEND(heads=3, causal=True, packed=True), [(5, 6), (7, 6), (5,)], ("self-attention", "packed", "(7, 6)")),
    (BLOCK(causal=True, packed=True), [(5, 6)], ("packed", "[(5, 6)]")),
    (LSTM(), [(6,)], ("(time, features)", "(6,)")),
    (LSTM(), [(0, 6)], ("at least 1", "(0, 6)")),
    (LSTM(), [(5, 6), (4,)], ("mask", "(5,)", "(4,)")),
    (LSTM(), [(5, 6), (5, 6)], ("mask",)),
    (layers.Dense("here", 2), [()], ("(..., features)", "()")),
    (layers.Conv2D("here", 2), [(3, 4)], ("(channels, height, width)", "(3, 4)")),
    (layers.Conv2D("here", 2, groups=2), [(3, 4, 5)], ("2 groups", "(3, 4, 5)")),
    (layers.Conv2D("here", 2, 5, border_mode="valid"), [(3, 4, 7)], ("5 x 5", "4 x 7")),
    (layers.Conv2D("here", 2, 3, dilation=2, pad=0), [(3, 4, 7)], ("5 x 5",)),
    (layers.Conv1D("here", 2), [(7,)], ("(channels, length)", "(7,)")),
    (layers.Conv1D("here", 2, 9, pad=1), [(3, 6)], ("1 x 9",)),
    (layers.MaxPooling2D("here"), [(3,)], ("(channels, height, width)", "(3,)")),
    (layers.AvgPooling2D("here", 4, pad=0), [(3, 3, 9)], ("4 x 4",)),
    (layers.BatchNormalization("here"), [()], ("(channels, ...)", "()")),
    (layers.LRN("here"), [()], ("(channels, ...)", "()")),
    (layers.LayerNormalization("here", 3), [(4, 5)], ("1 to 2", "received 3")),
    (layers.Softmax("here", -3), [(4, 5)], ("1 to 2", "received -3")),
    (layers.Flatten("here", 3), [(4, 5)], ("1 to 2", "received 3")),
    (layers.Reshape("here", (5, -1)), [(4, 3)], ("(5, -1)", "received 12", "(4, 3)")),
    (layers.Reshape("here", (5, 2)), [(4, 5)], ("(5, 2)", "received 20", "(4, 5)")),
    (layers.Merge("here"), [(4, 5)], ("two inputs", "received 1")),
    (layers.Merge("here"), [(4,), (5,)], ("[(4,), (5,)]",)),
    (layers.Multiply("here"), [], ("two inputs", "received 0")),
    (layers.Multiply("here"), [(4,), (4, 1)], ("[(4,), (4, 1)]",)),
    (layers.Concat("here", 1), [(4, 5)], ("two inputs", "received 1")),
    (layers.Concat("here", 1), [(4, 5), (4, 6)], ("axis 1", "[(4, 5), (4, 6)]")),
    (layers.Concat("here", 2), [(4, 5), (4, 6, 1)], ("axis 2",)),
    (layers.Concat("here", 2), [(4, 5), (4,)], ("axis 2", "[(4, 5), (4,)]")),
    (layers.Concat("here", 3), [(4, 5), (4, 6)], ("1 to 2", "received 3")),
    (layers.Slice("here", 1, [2, 5]), [(5, 9)], ("below 5", "(2, 5)")),
    (layers.Slice("here", 3, [1]), [(5, 9)], ("1 to 2", "received 3")),
    *((made, given, ("one input", f"received {len(given)}")) for made in OF_ONE for given in ([], [(3, 4), (3, 4)])),
]


@pytest.mark.parametrize("number", range(len(INPUTS)))
def test_inputs_that_do_not_fit(number):
    layer, shapes, words = INPUTS[number]
    refused(lambda: prepared(layer, *shapes), ShapeError, "'here", *words)
    assert not layer.parameters and not layer.states


X = zeros(2, 3, 4, 5)
STATE = tensor.zeros((3,), np.uint64)
SHAPES_OF_ATTENTION = [
    ([(2, 3, 4), (2, 3, 4), (2, 3, 4)], ("four axes",)),
    ([(2, 3, 4, 5), (2, 6, 4, 5), (2, 7, 4, 5)], ("(2, 6, 4, 5)", "(2, 7, 4, 5)")),
    ([(2, 0, 4, 5), (2, 6, 4, 5), (2, 6, 4, 5)], ("at least 1", "(2, 0, 4, 5)")),
    ([(2, 3, 4, 5), (2, 6, 3, 5), (2, 6, 3, 5)], ("divide", "4", "3")),
    ([(2, 3, 4, 5), (2, 6, 4, 6), (2, 6, 4, 6)], ("size of a head",)),
    ([(2, 3, 4, 5), (2, 6, 4, 5), (2, 6, 4, 5), (2, 3)], ("mask", "(2, 6)", "(2, 3)")),
]
#: (a call, the error, the culprit).
OTHERS: list[tuple[Callable[[], object], type[Exception], tuple[str, ...]]] = [
    *(
        (lambda s=shapes: autograd.attention(*(zeros(*each) for each in s)), ShapeError, ("attention", *words))
        for shapes, words in SHAPES_OF_ATTENTION
    ),
    (lambda: autograd.attention(X, X, X, dropout=0.5), ShapeError, ("state", "0.5")),
    (lambda: autograd.attention(X, X, X, state=STATE), ValueError, ("state", "dropout 0")),
    (lambda: autograd.attention(X, X, zeros(2, 3, 4, 5, dtype="d")), TypeError, ("dtype",)),
    (lambda: autograd.attention(X, X, X, scale=0), ValueError, ("scale",)),
    (lambda: autograd.attention(*[zeros(2, 3, 4, 5, dtype="i4")] * 3), TypeError, ("floats",)),
    (lambda: autograd.attention(X, X, X, first=zeros(2, 3, dtype="i8")), ValueError, ("first", "causal=True")),
    (lambda: autograd.attention(X, X, X, first=zeros(2, 3), causal=True), TypeError, ("first", "int32", "float32")),
    (
        lambda: autograd.attention(X, X, X, first=zeros(2, 4, dtype="i8"), causal=True),
        ShapeError,
        ("first", "(2, 3)", "(1, 3)", "(2, 4)"),
    ),
    (lambda: autograd.lstm(zeros(0, 2, 12), zeros(3, 12)), ShapeError, ("time", "(0, 2, 12)")),
    (lambda: autograd.lstm(zeros(5, 2, 12), zeros(3, 9)), ShapeError, ("(5, 2, 12)", "(3, 9)")),
    (lambda: autograd.lstm(zeros(5, 2, 12), zeros(3, 12), zeros(3, 3)), ShapeError, ("(2, 3)", "(3, 3)")),
    (lambda: autograd.gru(zeros(5, 2, 9), zeros(3, 9), zeros(3)), ShapeError, ("bias", "(9,)", "(3,)")),
    (lambda: autograd.gru(zeros(5, 2, 9), zeros(3, 9), mask=zeros(5, 2)), ShapeError, ("(2, 5)", "(5, 2)")),
    (lambda: autograd.gru(zeros(5, 2, 9), zeros(3, 9, dtype="d")), TypeError, ("dtype",)),
    (lambda: autograd.simple_rnn(zeros(5, 2, 3, dtype="i4"), zeros(3, 3, dtype="i4")), TypeError, ("floats",)),
    (lambda: autograd.simple_rnn(zeros(5, 2, 3), zeros(3, 3), activation="elu"), ValueError, ("'elu'",)),
    (lambda: autograd.rotary(zeros(1, 8, 6), zeros(2, 9, 3)), ShapeError, ("rotary", "(2, 8, 3)")),
    (lambda: autograd.upsample_nearest(zeros(2, 3, 4), (2, 2)), ShapeError, ("(2, 3, 4)",)),
    (lambda: autograd.upsample_nearest(X, (2, 0)), ValueError, ("factor", "(2, 0)")),
    (lambda: autograd.normal((2, 0), STATE), ShapeError, ("at least 1",)),
    (lambda: autograd.normal((2, 3), zeros(3)), ShapeError, ("state",)),
    (lambda: autograd.normal((2, 3), STATE, dtype="int32"), TypeError, ("float",)),
    (lambda: autograd.normal((2, 3), STATE, std=-1.0), ValueError, ("std",)),
    (lambda: sinusoidal_table(4, 3), ValueError, ("even", "3")),
    (lambda: layers.Normalization("here", 1, 2).adapt([["a", "b"]]), TypeError, ("adapt",)),
    *(
        (lambda g=g: prepared(layers.Lambda("here", lambda x: g), (3,)), TypeError, ("'here'",))
        for g in (None, [], "x")
    ),
    (lambda: layers.Lambda("here", 3), TypeError, ("'here'", "function")),
    (lambda: run(layers.Embedding("here", 5, 3), np.ones((2, 4))), TypeError, ("integer", "float64")),
    (lambda: SEQUENTIAL(layers.Dense("d", 2)), TypeError, ("'here'", "list")),
    (lambda: SEQUENTIAL(["d"]), TypeError, ("'here'", "str")),
    (lambda: SEQUENTIAL([layers.Flatten("d"), layers.Flatten("d")]), GraphError, ("'d'",)),
    (lambda: layers.Bidirectional("here", layers.Dense("d", 2)), TypeError, ("'here'", "Dense")),
    (lambda: layers.Bidirectional("here", layers.GRU("g", 2, bidirectional=True)), GraphError, ("one direction",)),
    (lambda: layers.Net("here", layers.Dense("d", 2)), TypeError, ("'here'",)),
    (lambda: layers.GRU("here", 2).reset_states(), GraphError, ("stateful",)),
]


@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_calls_that_do_not_fit(number):
    call, error, words = OTHERS[number]
    refused(call, error, *words)
    assert not tensor.to_numpy(STATE).any()


def test_a_residual_that_changes_the_shape_takes_no_memory():
    net = FeedForwardNet(device=device.new_cpu())
    inner = layers.Dense("d", 4, input_sample_shape=(5,))
    refused(lambda: net.add(layers.Residual("r", [inner])), ShapeError, "'r'", "(5,)", "(4,)")
    assert net.device.pool.used == 0


@pytest.mark.parametrize("option", ["weight_init", "bias_init"])
def test_an_unknown_initializer_is_refused_at_once(option):
    refused(lambda: layers.Dense("here", 2, **{option: "nonsense"}), ValueError, "'nonsense'")


@pytest.mark.parametrize("name", ["", "a/b", 3])
def test_names(name):
    refused(lambda: layers.Dense(name=name, num_output=2), ValueError, "name")
