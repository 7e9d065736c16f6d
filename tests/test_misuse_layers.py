"""Misuses of layers' constructors and of layers of one's own: one table, and every option given whatever there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from misuse import assert_options_are_checked, assert_refused, row
from singa_lite import FeedForwardNet, GraphError, Layer, ShapeError, autograd, device, layers, tensor

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


def net_of(*added: Layer) -> FeedForwardNet:
    net = FeedForwardNet(device=device.new_cpu(), seed=0)
    for layer in added:
        net.add(layer)
    return net


def adding(*added: Any, **options: Any) -> Any:
    return lambda: net_of(Own(*added, **options))


def late() -> None:
    layer = net_of(layers.Dense("dense", 2, input_sample_shape=(3,))).layers["dense"]
    layer.add_parameter("late", (2,), 0.0)


def renamed() -> None:
    layers.Dense("one", 2).name = "two"


W, V = ("parameter", "w"), ("state", "w")
X = np.ones((4, 3), "f")

#: Options that layers had once, and that none has.
FORMER: dict[str, Any] = {"storage": "float16"}
STRANGE: dict[str, Any] = {"breadth": 3}

ROWS = {
    # a name that was left out, or is a number
    "Dense(10)": row(lambda: layers.Dense(10, 5), ValueError, "use_bias", "received 5"),
    "Dropout('0.3')": row(lambda: layers.Dropout("0.3"), ValueError, "'0.3'", "received 0.5", "Dropout(name, p)"),
    # names that are functions
    "Activation('tanh')": row(lambda: layers.Activation("tanh"), ValueError, "'tanh'", "none, which is 'relu'"),
    "Activation('LeakyReLU')": row(lambda: layers.Activation("LeakyReLU"), ValueError, "'leaky_relu')"),
    "Activation('Sigmoid_2')": row(lambda: layers.Activation("Sigmoid_2"), ValueError, "'Sigmoid_2', 'sigmoid')"),
    "Activation('softmax')": row(lambda: layers.Activation("softmax"), ValueError, "layers.Softmax"),
    "Activation('swish')": row(lambda: layers.Activation("swish"), ValueError, "none for 'swish'"),
    "mode that is a list": row(lambda: layers.Activation("act", mode=["relu"]), ValueError, "mode", "['relu']"),
    "slope of the default": row(lambda: layers.Activation("act", slope=0.1), ValueError, "slope", "'relu'"),
    "Merge('concat')": row(lambda: layers.Merge("concat"), ValueError, "Merge", "Concat"),
    "Merge('max_1')": row(lambda: layers.Merge("max_1"), ValueError, "Merge", "no layer"),
    "Multiply('sum')": row(lambda: layers.Multiply("sum"), ValueError, "Multiply", "Merge"),
    "MaxPooling2D('average')": row(lambda: layers.MaxPooling2D("average"), ValueError, "AvgPooling"),
    "AvgPooling1D('max')": row(lambda: layers.AvgPooling1D("max"), ValueError, "MaxPooling"),
    # names that no snapshot holds
    "name .": row(lambda: layers.Dense(".", 2), ValueError, "snapshot", "'.'"),
    "name with NUL": row(lambda: layers.Dense("a\0b", 2), ValueError, "snapshot", "'a\\x00b'"),
    "name of 1001 bytes": row(lambda: layers.Dense("x" * 1001, 2), ValueError, "1000 bytes"),
    "name of half a character": row(lambda: layers.Dense("\ud800", 2), ValueError, "Unicode"),
    "renamed": row(renamed, GraphError, "'one'", "'two'"),
    # options
    "use_bias='no'": row(lambda: layers.Dense("d", 2, use_bias="no"), ValueError, "'d'", "use_bias", "'no'"),
    "count_pad=1": row(lambda: layers.AvgPooling2D("p", count_pad=1), ValueError, "count_pad", "received 1"),
    "bias_init without bias": row(
        lambda: layers.Conv2D("c", 2, use_bias=False, bias_init="ones"), ValueError, "'c'", "bias_init", "use_bias=True"
    ),
    "PyTorch's padding": row(lambda: layers.Conv2D("c", 2, padding=1), TypeError, "'c'", "same, valid", "1", "pad="),
    "padding of another word": row(lambda: layers.MaxPooling1D("c", padding="causal"), ValueError, "'c'", "'causal'"),
    "padding beside pad": row(lambda: layers.Conv1D("c", 2, pad=1, padding="causal"), ValueError, "padding", "pad"),
    "padding beside border_mode": row(
        lambda: layers.SeparableConv2D("c", 2, border_mode="same", padding="same"), ValueError, "'c'", "border_mode"
    ),
    "padding beside output_padding": row(
        lambda: layers.Conv1DTranspose("c", 2, output_padding=0, padding="same"), ValueError, "'c'", "output_padding"
    ),
    "pad beside valid": row(lambda: layers.Conv2D("c", 2, border_mode="valid", pad=1), ValueError, "'valid'", "pad"),
    "storage of a Dense": row(
        lambda: layers.Dense("d", 2, **FORMER), TypeError, "'d'", "net.compile(optimizer, precision="
    ),
    "storage of a Conv1D": row(lambda: layers.Conv1D("c", 2, **FORMER), TypeError, "storage='float16'"),
    "storage of an Activation": row(lambda: layers.Activation("a", **FORMER), TypeError, "wanted no storage"),
    "an option of none": row(lambda: layers.Dense("d", 2, **STRANGE), TypeError, "'d'", "received breadth"),
    "initializer that is a class": row(
        lambda: layers.Dense("d", 2, weight_init=type("He", (), {})), TypeError, "'d': weight_init", "perhaps He()"
    ),
    "initializer unknown": row(lambda: layers.Dense("d", 2, weight_init="he"), ValueError, "'d': weight_init", "'he'"),
    "input_sample_shape=5": row(
        lambda: layers.Dense("d", 2, input_sample_shape=5), ShapeError, "'d'", "input_sample_shape", "perhaps (5,)"
    ),
    "input_sample_shape='5'": row(lambda: layers.Dense("d", 2, input_sample_shape="5"), ShapeError, "received '5'"),
    "input_sample_shape=(None, 3)": row(
        lambda: layers.Dense("d", 2, input_sample_shape=(None, 3)), ShapeError, "(None, 3)"
    ),
    # parameters and state of a layer of one's own
    "parameter twice": row(adding(W, W), GraphError, "'own'", "add_parameter('w')", "a parameter"),
    "state twice": row(adding(V, V), GraphError, "'own'", "add_state('w')", "a state"),
    "state named as a parameter": row(adding(W, V), GraphError, "'own'", "add_state('w')", "a parameter"),
    "parameter named as a state": row(adding(V, W), GraphError, "'own'", "add_parameter('w')", "a state"),
    "parameter without a name": row(adding(("parameter", "")), ValueError, "'own'", "received ''"),
    "parameter with a slash": row(adding(("parameter", "a/b")), ValueError, "'own'", "'a/b'"),
    "parameter with a dot": row(adding(("parameter", "a.b")), ValueError, "'own'", "'a.b'"),
    "state with NUL": row(adding(("state", "a\0")), ValueError, "'own'", "NUL"),
    "parameter after setup": row(late, GraphError, "'dense'", "within setup()"),
    "setup without a return": row(adding(W, returned=None), TypeError, "'own'", "setup()", "None"),
    "setup that returns a number": row(adding(W, returned=5), TypeError, "'own'", "received 5"),
    "setup that returns a list of numbers": row(adding(W, returned=[5, 6]), TypeError, "'own'", "[5, 6]"),
    "setup that returns nothing's shape": row(adding(W, returned=(0,)), ShapeError, "'own'", "(0,)"),
    "forward without a return": row(lambda: net_of(Own(W)).forward(False, X), TypeError, "'own'", "NoneType"),
    "forward of another shape": row(lambda: net_of(Own(W)).forward(True, X), ShapeError, "'own'", "(2,)", "(3,)"),
    "a layer in a layer": row(lambda: net_of(Holding()).forward(False, X), GraphError, "'inner'", "add_layer"),
    "without the base's __init__": row(lambda: net_of(Forgetful()), GraphError, "super().__init__(name)"),
    "a class for a layer": row(lambda: net_of(layers.Flatten), TypeError, "perhaps Flatten(name, ...)"),  # type: ignore[arg-type]
    "a head tied to no embedding": row(
        lambda: layers.TiedDense("t", layers.Dense("d", 2)),  # type: ignore[arg-type]
        TypeError,
        "'t'",
        "an Embedding",
    ),
    "a head tied to a table of other features": row(
        lambda: net_of(
            table := layers.Embedding("e", 5, 3, input_sample_shape=(4,)),
            layers.Dense("d", 2),
            layers.TiedDense("t", table),
        ),
        ShapeError,
        "'t'",
        "(5, 2)",
    ),
    "sharing with no layer": row(lambda: layers.Dense("d", 2).share_parameters("e"), TypeError, "'d'", "'e'"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("one", ROWS.values(), ids=ROWS)
def test_misuse(one):
    assert_refused(one)


def test_what_is_in_a_layer_is_changed_by_no_hand():
    layer = net_of(layers.Dense("dense", 2, input_sample_shape=(3,))).layers["dense"]
    weight, other = layer.parameters["weight"], tensor.zeros((3, 2))
    for change in (
        lambda: layer.parameters.__setitem__("weight", other),
        lambda: layer.parameters.pop("weight"),
        lambda: layer.parameters.update(weight=other),
        lambda: layer.states.__setitem__("more", other),
        lambda: setattr(layer, "parameters", {"weight": other}),
        lambda: setattr(layer, "states", []),
    ):
        with pytest.raises(
            GraphError, match=r"layer 'dense': wanted .* in setup\(\).* received (a change by hand|[\[{])"
        ):
            change()
    assert layer.parameters["weight"] is weight
    with pytest.raises(KeyError, match=r"wanted one of \['weight', 'bias'\], received 'wieght'"):
        layer.parameters["wieght"]
    assert layer.parameters.get("wieght") is None and "wieght" not in layer.parameters


@pytest.mark.parametrize(("name", "mode"), [("relu", "relu"), ("relu_2", "relu"), ("act", "relu"), ("Tanhs", "relu")])
def test_names_that_may_go_without_a_mode(name, mode):
    assert layers.Activation(name).mode == mode


def test_a_mode_that_is_given_counts_whatever_the_name():
    assert layers.Activation("tanh", mode="relu").mode == "relu"
    assert layers.Activation("relu", "tanh").mode == "tanh"


@pytest.mark.parametrize("number", [np.int64(3), np.uint8(3), np.array(3)])
def test_integers_of_numpy(number):
    layer = layers.Conv2D("c", number, number, input_sample_shape=(number, np.int32(5), 5))
    assert net_of(layer).layers["c"].get_output_sample_shape() == (3, 5, 5)
    assert all(type(extent) is int for extent in layer.get_output_sample_shape())
