"""Misuses of layers: constructors, shapes that do not fit, and layers of one's own; every option is given anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from misuse import Row, assert_all_refused, assert_options_are_checked, row
from singa_lite import FeedForwardNet, GraphError, Layer, ShapeError, autograd, device, initializer, layers, tensor
from singa_lite.layer.layer import Context

INNER = FeedForwardNet(seed=0)
INNER.add(layers.Dense("one", 2, input_sample_shape=(3,)))
NEEDED: dict[str, dict[str, Any]] = {
    "Dense": {"num_output": 3},
    "Conv1D": {"nb_kernels": 3},
    **{name: {"nb_kernels": 3} for name in ("Conv2D", "Conv1DTranspose", "Conv2DTranspose", "SeparableConv2D")},
    "GaussianNoise": {"std": 0.1},
    "Lambda": {"function": autograd.relu},
    "Rescaling": {"scale": 2.0},
    "Concat": {"axis": 1},
    "MultiHeadAttention": {"heads": 2},
    **{name: {"hidden_size": 3} for name in ("LSTM", "GRU", "SimpleRNN")},
    "Bidirectional": {"layer": layers.GRU("one", 2)},
    "Reshape": {"shape": (3,)},
    "Embedding": {"num_embeddings": 7, "dim": 3},
    "Permute": {"axes": (2, 1)},
    "Slice": {"axis": 1, "slice_point": [1]},
    "Split": {"num_output": 2},
    "Sequential": {"layers": [layers.Dense("one", 2)]},
    "Residual": {"layers": [layers.Dense("one", 2)]},
    "TiedDense": {"embedding": layers.Embedding("table", 7, 3)},
    "TimeDistributed": {"layer": layers.Dense("one", 2)},
    "TransformerBlock": {"heads": 2},
    "SwiGLU": {"num_output": 3},
    "Net": {"net": INNER},
}
KINDS = {name: kind for name, kind in vars(layers).items() if isinstance(kind, type)}


@pytest.mark.parametrize("name", KINDS)
def test_every_option_takes_or_refuses_whatever_is_given(name):
    assert_options_are_checked(KINDS[name], {"name": "here", **NEEDED.get(name, {})})


# --- constructors -------------------------------------------------------------------------------------------


def bad(word: str, received: str, kind: Any, *args: Any, error: type[Exception] = ValueError, **options: Any) -> Row:
    """A layer 'here' that cannot be made, for the argument that the word names."""
    return row(lambda: kind("here", *args, **options), error, "'here'", word, received)


#: Values of the options of windows. Those of a pooling and of a convolution are checked by the same functions.
WINDOWS: tuple[dict[str, Any], ...] = (
    {"kernel": 0},
    {"kernel": (3, 0)},
    {"kernel": (3, 3, 3)},
    {"stride": 0},
    {"border_mode": "full"},
    {"kernel": 4, "border_mode": "same"},
    {"pad": -1},
    {"pad": (1, 1, 1)},
)
ALONG = ({"kernel": (3, 3)}, {"stride": 0}, {"kernel": 2, "border_mode": "same"}, {"pad": (1, 1, 1, 1)})


def windows() -> list[Row]:
    kinds = [(layers.Conv2D, (4,), WINDOWS), (layers.MaxPooling2D, (), WINDOWS), (layers.AvgPooling2D, (), WINDOWS)]
    kinds += [(layers.Conv1D, (4,), ALONG), (layers.MaxPooling1D, (), ALONG), (layers.AvgPooling1D, (), ALONG)]
    return [
        bad(next(iter(options)), repr(next(iter(options.values()))), kind, *args, **options)
        for kind, args, table in kinds
        for options in table
    ]


ARGUMENTS = [
    bad("num_output", "0", layers.Dense, 0),
    bad("nb_kernels", "-1", layers.Conv2D, -1),
    bad("groups", "0", layers.Conv2D, 4, groups=0),
    bad("groups", "3", layers.Conv2D, 4, groups=3),
    bad("dilation", "0", layers.Conv2D, 4, dilation=0),
    bad("dilation", "(1, 2)", layers.Conv1D, 4, dilation=(1, 2)),
    bad("pad", "(2, 2)", layers.MaxPooling2D, 2, pad=2),
    bad("pad", "(2, 3)", layers.AvgPooling2D, (2, 3), pad=(0, 3)),
    bad("pad", "2", layers.AvgPooling1D, 2, pad=(0, 2)),
    bad("momentum", "1.5", layers.BatchNormalization, 1.5),
    bad("epsilon", "0", layers.BatchNormalization, epsilon=0),
    *(bad("axis", "0", kind, 0) for kind in (layers.LayerNormalization, layers.Softmax, layers.Flatten, layers.Concat)),
    bad("axis", "0", layers.Slice, 0, [1]),
    bad("size", "4", layers.LRN, 4),
    bad("size", "0", layers.LRN, 0),
    bad("mode", "'within_channel'", layers.LRN, mode="within_channel"),
    bad("window", "0", layers.MultiHeadAttention, 2, causal=True, window=0),
    bad("window", "causal=False", layers.MultiHeadAttention, 2, window=3),
    bad("packed", "causal=False", layers.MultiHeadAttention, 2, packed=True),
    bad("rotary_base", "0", layers.MultiHeadAttention, 2, rotary_base=0),
    bad("rotary_scaling", "'yarn'", layers.MultiHeadAttention, 2, rotary_scaling={"rope_type": "yarn", "factor": 4}),
    bad("factor", "[]", layers.MultiHeadAttention, 2, rotary_scaling={"rope_type": "linear"}),
    bad("factor", "-1", layers.MultiHeadAttention, 2, rotary_scaling={"type": "linear", "factor": -1}),
    bad("rotary_scaling", "4", layers.MultiHeadAttention, 2, rotary_scaling=4, error=TypeError),
    bad("query_key_norm", "2", layers.MultiHeadAttention, 2, query_key_norm=2),
    bad("alpha", "-1", layers.LRN, alpha=-1),
    bad("beta", "inf", layers.LRN, beta=float("inf")),
    bad("k", "0", layers.LRN, k=0),
    bad("mode", "'swish'", layers.Activation, "swish"),
    bad("mode", "['relu']", layers.Activation, mode=["relu"]),
    bad("slope", "'relu'", layers.Activation, slope=0.1),
    bad("alpha", "'leaky_relu'", layers.Activation, "leaky_relu", alpha=1),
    bad("slope", "0", layers.Activation, "leaky_relu", slope=0),
    bad("alpha", "-1", layers.Activation, "elu", alpha=-1),
    bad("p", "1", layers.Dropout, 1),
    bad("p", "-0.1", layers.Dropout, -0.1),
    bad("shape", "(-1, 2, -1)", layers.Reshape, (-1, 2, -1)),
    bad("shape", "(0, 2)", layers.Reshape, (0, 2)),
    bad("num_output", "0", layers.Split, 0),
    bad("slice_point", "[]", layers.Slice, 1, []),
    bad("slice_point", "[2, 2]", layers.Slice, 1, [2, 2]),
    bad("slice_point", "[0, 2]", layers.Slice, 1, [0, 2]),
    bad("count_pad", "received 1", layers.AvgPooling2D, count_pad=1),
    bad("bias_init", "use_bias=True", layers.Conv2D, 2, use_bias=False, bias_init="ones"),
    bad("padding", "pad=", layers.Conv2D, 2, padding=1, error=TypeError),
    bad("padding", "'causal'", layers.MaxPooling1D, padding="causal"),
    bad("padding", "pad", layers.Conv1D, 2, pad=1, padding="causal"),
    bad("padding", "border_mode", layers.SeparableConv2D, 2, border_mode="same", padding="same"),
    bad("padding", "output_padding", layers.Conv1DTranspose, 2, output_padding=0, padding="same"),
    bad("pad", "'valid'", layers.Conv2D, 2, border_mode="valid", pad=1),
    bad("weight_init", "'he'", layers.Dense, 2, weight_init="he"),
    bad("bias_init", "'he'", layers.Dense, 2, bias_init="he"),
    bad("weight_init", "HeNormal()", layers.Dense, 2, weight_init=initializer.HeNormal, error=TypeError),
    row(lambda: layers.Dense("here", 2, breadth=3), TypeError, "Dense", "breadth"),  # type: ignore[call-overload]
    row(lambda: layers.Conv2D(8, 3, pool_size=2), TypeError, "Conv2D", "pool_size=2"),
    row(lambda: layers.Dense(8, embeddings_initializer="uniform"), TypeError, "Dense", "embeddings_initializer"),
    row(lambda: layers.Dense(2, storage="float16"), TypeError, "storage", "precision="),  # type: ignore[call-overload]
    bad("input_sample_shape", "(5,)", layers.Dense, 2, input_sample_shape=5, error=ShapeError),
    bad("input_sample_shape", "'5'", layers.Dense, 2, input_sample_shape="5", error=ShapeError),
    bad("input_sample_shape", "(None, 3)", layers.Dense, 2, input_sample_shape=(None, 3), error=ShapeError),
    bad("Embedding", "Dense", layers.TiedDense, layers.Dense("d", 2), error=TypeError),
    row(lambda: layers.Dense("d", 2).share_parameters("e"), TypeError, "'d'", "'e'"),  # type: ignore[arg-type]
    # a name that was left out, and stands where another argument does
    row(lambda: layers.Dense(10, 5), ValueError, "use_bias", "5"),
    row(lambda: layers.Dropout("0.3"), ValueError, "'0.3'", "0.5", "Dropout(name, p)"),
    row(lambda: layers.Activation("tanh"), ValueError, "mode", "'tanh'", "'relu'"),
    row(lambda: layers.Activation("LeakyReLU"), ValueError, "'LeakyReLU'", "'leaky_relu'"),
    row(lambda: layers.Activation("softmax"), ValueError, "layers.Softmax"),
    row(lambda: layers.Activation("swish"), ValueError, "'swish'"),
    row(lambda: layers.Merge("concat"), ValueError, "Merge", "Concat"),
    row(lambda: layers.Merge("max_1"), ValueError, "Merge", "max"),
    row(lambda: layers.Multiply("sum"), ValueError, "Multiply", "Merge"),
    row(lambda: layers.MaxPooling2D("average"), ValueError, "AvgPooling"),
    row(lambda: layers.AvgPooling1D("max"), ValueError, "MaxPooling"),
    # names that no snapshot holds
    *(row(lambda name=name: layers.Dense(name, 2), ValueError, repr(name)) for name in ("", "a/b", ".", "a\0b")),
    row(lambda: layers.Dense(name=3, num_output=2), ValueError, "name", "3"),  # type: ignore[arg-type]
    row(lambda: layers.Dense("x" * 1001, 2), ValueError, "1000 bytes"),
    row(lambda: layers.Dense("\ud800", 2), ValueError, "Unicode"),
    row(lambda: setattr(layers.Dense("one", 2), "name", "two"), GraphError, "'one'", "'two'"),
    # words of other frameworks
    row(lambda: layers.Dense("d", out_features=3), TypeError, "num_output", "out_features"),
    row(lambda: layers.LSTM(4, batch_first=True), TypeError, "batch_first"),
    row(lambda: layers.LSTM(4, activation="relu"), TypeError, "Activation"),
    row(lambda: layers.Dense("d", 3, input_dim=4), TypeError, "input_sample_shape"),
    row(lambda: layers.Dense("d", 3, bias=False), TypeError, "use_bias"),
    row(lambda: layers.Conv2D(out_channels=3), TypeError, "nb_kernels", "out_channels"),
    row(lambda: layers.LSTM(units=4, rate=0.5), TypeError, "dropout", "rate"),
    # Keras's words: two for one thing, one of another meaning, and activations
    row(lambda: layers.Dense("d", 3, units=3), TypeError, "num_output", "units"),
    row(lambda: layers.Dense(3, units=3), TypeError, "num_output", "units"),
    row(lambda: layers.Conv2D(8, kernel=3, kernel_size=3), TypeError, "kernel", "kernel_size"),
    row(lambda: layers.MaxPooling2D(kernel_size=3, pool_size=3), TypeError, "kernel_size", "pool_size"),
    row(lambda: layers.BatchNormalization(momentum=0.9, beta_initializer="ones"), TypeError, "momentum"),
    row(lambda: layers.GRU(units=3, dropout=0.5), TypeError, "dropout", "units"),
    row(lambda: layers.Conv2D(8, 3, activation="relu", padding="full"), ValueError, "padding", "'full'"),
    row(lambda: layers.Conv2D(8, 3, border_mode="same", padding="same"), ValueError, "border_mode"),
    row(lambda: layers.Dense(3, activation="softmux"), ValueError, "activation", "'softmux'"),
    row(lambda: layers.Dense(3, activation="leaky_relu"), ValueError, "slope", "'leaky_relu'"),
    row(lambda: layers.Dense(3, activation=len), TypeError, "activation", "len"),
    row(lambda: layers.Dense(3, activation=layers.Softmax()), TypeError, "activation", "Softmax"),
    row(lambda: layers.Conv2D(3, activation=used()), GraphError, "activation"),
]


def used() -> layers.Activation:
    """An activation that is in a net."""
    return FeedForwardNet().add(layers.Activation(mode="relu", input_sample_shape=(3,)))


# --- what they are fed --------------------------------------------------------------------------------------


def unfit(word: str, kind: Any, *args: Any, on: list[tuple[int, ...]], **options: Any) -> Row:
    """A layer 'here' that cannot be set up behind these shapes, and has no parameters then."""

    def call() -> None:
        layer = kind("here", *args, **options)
        try:
            layer.prepare(on, Context(device.cpu(), np.dtype(np.float32), 0))
        finally:
            assert not layer.parameters and not layer.states

    return row(call, ShapeError, "'here'", word)


SHAPES = [
    unfit("()", layers.Dense, 2, on=[()]),
    unfit("(3, 4)", layers.Conv2D, 2, on=[(3, 4)]),
    unfit("groups", layers.Conv2D, 2, groups=2, on=[(3, 4, 5)]),
    unfit("4 x 7", layers.Conv2D, 2, 5, border_mode="valid", on=[(3, 4, 7)]),
    unfit("5 x 5", layers.Conv2D, 2, 3, dilation=2, pad=0, on=[(3, 4, 7)]),
    unfit("(7,)", layers.Conv1D, 2, on=[(7,)]),
    unfit("1 x 9", layers.Conv1D, 2, 9, pad=1, on=[(3, 6)]),
    unfit("(3,)", layers.MaxPooling2D, on=[(3,)]),
    unfit("4 x 4", layers.AvgPooling2D, 4, pad=0, on=[(3, 3, 9)]),
    unfit("(3, 4, 5)", layers.AvgPooling1D, on=[(3, 4, 5)]),
    unfit("(3, 4)", layers.GlobalAvgPooling2D, on=[(3, 4)]),
    unfit("()", layers.BatchNormalization, on=[()]),
    unfit("()", layers.LRN, on=[()]),
    unfit("3", layers.LayerNormalization, 3, on=[(4, 5)]),
    unfit("-3", layers.Softmax, -3, on=[(4, 5)]),
    unfit("3", layers.Flatten, 3, on=[(4, 5)]),
    unfit("(5, -1)", layers.Reshape, (5, -1), on=[(4, 3)]),
    unfit("(5, 2)", layers.Reshape, (5, 2), on=[(4, 5)]),
    unfit("received 1", layers.Merge, on=[(4, 5)]),
    unfit("[(4,), (5,)]", layers.Merge, on=[(4,), (5,)]),
    unfit("received 0", layers.Multiply, on=[]),
    unfit("(4, 1)", layers.Multiply, on=[(4,), (4, 1)]),
    unfit("received 1", layers.Concat, 1, on=[(4, 5)]),
    unfit("axis 1", layers.Concat, 1, on=[(4, 5), (4, 6)]),
    unfit("axis 2", layers.Concat, 2, on=[(4, 5), (4,)]),
    unfit("received 3", layers.Concat, 3, on=[(4, 5), (4, 6)]),
    unfit("(2, 5)", layers.Slice, 1, [2, 5], on=[(5, 9)]),
    unfit("received 3", layers.Slice, 3, [1], on=[(5, 9)]),
    *(
        unfit(f"received {len(on)}", kind, *args, on=on)
        for kind, args in ((layers.Dense, (2,)), (layers.Conv2D, (2,)), (layers.Softmax, ()), (layers.Dummy, ()))
        for on in ([], [(3, 4), (3, 4)])
    ),
]

# --- layers of one's own ------------------------------------------------------------------------------------


class Own(Layer):
    """A layer that adds what it is told to."""

    def __init__(self, *added: tuple[str, str], returned: Any = (2,), name: str = "own") -> None:
        super().__init__(name, input_sample_shape=(3,))
        self.added, self.returned = added, returned

    def setup(self, shape):
        for call, name in self.added:
            getattr(self, f"add_{call}")(name, (2,), *([0.0] if call == "parameter" else []))
        return self.returned

    def forward(self, training, x):
        return autograd.reshape(x, (-1, 3)) if training else None


class Holding(Layer):
    """Holds a layer that no net has set up."""

    def __init__(self) -> None:
        super().__init__("block", input_sample_shape=(3,))
        self.inner = layers.BatchNormalization("inner")

    def setup(self, shape):
        return shape

    def forward(self, training, x):
        return self.inner.forward(training, x)


class Forgetful(Layer):
    """Does not call its base's constructor."""

    def __init__(self) -> None:
        self.size = 3


class Untold(Layer):
    """Its forward does not take whether it is training."""

    def setup(self, shape: Any) -> Any:
        return shape

    def forward(self, x: Any) -> Any:
        return x


def net_of(*added: Layer) -> FeedForwardNet:
    net = FeedForwardNet(device=device.new_cpu(), seed=0)
    for layer in added:
        net.add(layer)
    return net


def dense() -> Layer:
    return net_of(layers.Dense("dense", 2, input_sample_shape=(3,))).layers["dense"]


def adding(*added: Any, **options: Any) -> Callable[[], object]:
    return lambda: net_of(Own(*added, **options))


def tied_to_others() -> FeedForwardNet:
    table = layers.Embedding("e", 5, 3, input_sample_shape=(4,))
    return net_of(table, layers.Dense("d", 2), layers.TiedDense("t", table))


W, V = ("parameter", "w"), ("state", "w")
X = np.ones((4, 3), "f")
OWN = [
    row(adding(W, W), GraphError, "'own'", "add_parameter('w')"),
    row(adding(V, V), GraphError, "'own'", "add_state('w')"),
    row(adding(W, V), GraphError, "'own'", "add_state('w')", "a parameter"),
    row(adding(V, W), GraphError, "'own'", "add_parameter('w')", "a state"),
    row(adding(("parameter", "")), ValueError, "'own'", "''"),
    row(adding(("parameter", "a/b")), ValueError, "'own'", "'a/b'"),
    row(adding(("parameter", "a.b")), ValueError, "'own'", "'a.b'"),
    row(adding(("state", "a\0")), ValueError, "'own'", "NUL"),
    row(lambda: dense().add_parameter("late", (2,), 0.0), GraphError, "'dense'", "setup()"),
    row(adding(W, returned=None), TypeError, "'own'", "setup()", "None"),
    row(adding(W, returned=5), TypeError, "'own'", "5"),
    row(adding(W, returned=[5, 6]), TypeError, "'own'", "[5, 6]"),
    row(adding(W, returned=(0,)), ShapeError, "'own'", "(0,)"),
    row(lambda: net_of(Own(W)).forward(False, X), TypeError, "'own'", "NoneType"),
    row(lambda: net_of(Own(W)).forward(True, X), ShapeError, "'own'", "(2,)", "(3,)"),
    row(lambda: net_of(Holding()).forward(False, X), GraphError, "'inner'", "add_layer"),
    row(lambda: net_of(Forgetful()), GraphError, "super().__init__(name)"),
    row(lambda: net_of(Layer("own", input_sample_shape=(3,))), TypeError, "'own'", "setup(*shapes)", "class Layer"),
    row(lambda: net_of(Untold("own", input_sample_shape=(3,))), TypeError, "'own'", "forward(training, *inputs)"),
    row(lambda: net_of(layers.Flatten), TypeError, "Flatten(name, ...)"),  # type: ignore[arg-type]
    row(tied_to_others, ShapeError, "'t'", "(5, 2)"),
    # what is in a layer is changed by its own methods alone
    row(lambda: dense().parameters.__setitem__("weight", tensor.zeros((3, 2))), GraphError, "'dense'"),
    row(lambda: dense().parameters.pop("weight"), GraphError, "'dense'"),
    row(lambda: dense().parameters.update(weight=tensor.zeros((3, 2))), GraphError, "'dense'"),
    row(lambda: dense().states.__setitem__("more", tensor.zeros((3, 2))), GraphError, "'dense'"),
    row(lambda: setattr(dense(), "parameters", {}), GraphError, "'dense'"),
    row(lambda: setattr(dense(), "states", []), GraphError, "'dense'"),
    row(lambda: dense().parameters["wieght"], KeyError, "'weight'", "'wieght'"),
]


@pytest.mark.parametrize("rows", [windows(), ARGUMENTS, SHAPES, OWN], ids=["windows", "arguments", "shapes", "own"])
def test_misuse(rows):
    assert_all_refused(rows)


@pytest.mark.parametrize(("name", "mode"), [("relu", "relu"), ("relu_2", "relu"), ("act", "relu"), ("Tanhs", "relu")])
def test_names_that_may_go_without_a_mode(name, mode):
    assert layers.Activation(name).mode == mode
    assert layers.Activation(name, "tanh").mode == "tanh"


@pytest.mark.parametrize("number", [np.int64(3), np.uint8(3), np.array(3)])
def test_integers_of_numpy(number):
    layer = layers.Conv2D("c", number, number, input_sample_shape=(number, np.int32(5), 5))
    assert net_of(layer).layers["c"].get_output_sample_shape() == (3, 5, 5)
    assert all(type(extent) is int for extent in layer.get_output_sample_shape())
