"""Keras's words: equal to the package's own, with Keras's defaults; and the manual's script, which is Keras's."""

from __future__ import annotations

import copy
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import singa_lite
import skips
from nets import all_bits
from singa_lite import FeedForwardNet, Layer, autograd, callbacks, layers, loss, optimizer, schedule
from singa_lite.common import words
from singa_lite.tensor import to_numpy

DOCS = Path(__file__).resolve().parents[1] / "docs"
IMAGE, LONG, VECTOR = (3, 7, 10), (3, 11), (6,)
SEQUENCE, IDS = (5, 6), (5,)
VALID: dict[str, Any] = {"padding": "valid"}

#: (by Keras's words, by the package's own, the shape of a sample).
LAYERS: list[tuple[Callable[[], Layer], Callable[[], Layer], tuple[int, ...]]] = [
    (
        lambda: layers.Dense(units=4, kernel_initializer="he_normal", bias_initializer=0.5),
        lambda: layers.Dense(4, weight_init="he_normal", bias_init=0.5),
        VECTOR,
    ),
    (lambda: layers.Dense("d", 4, input_shape=VECTOR), lambda: layers.Dense("d", 4, input_sample_shape=VECTOR), VECTOR),
    (lambda: layers.Conv2D(4, 3, activation="relu"), lambda: layers.Conv2D(4, 3, activation="relu", **VALID), IMAGE),
    (
        lambda: layers.Conv2D(filters=4, kernel_size=(2, 3), strides=(3, 2), padding="same"),
        lambda: layers.Conv2D(4, (2, 3), (3, 2), padding="same"),
        IMAGE,
    ),
    (lambda: layers.Conv2D("c", 4, kernel_size=3), lambda: layers.Conv2D("c", 4, 3, **VALID), IMAGE),
    (
        lambda: layers.Conv2D(4, 3, dilation_rate=2, use_bias=False, border_mode="same"),
        lambda: layers.Conv2D(4, 3, dilation=2, use_bias=False, border_mode="same"),
        IMAGE,
    ),
    (
        lambda: layers.Conv2D(4, 3, 1, "same", kernel_initializer="he_normal"),
        lambda: layers.Conv2D(4, 3, 1, "same", weight_init="he_normal"),
        IMAGE,
    ),
    (
        lambda: layers.Conv1D(filters=4, kernel_size=4, strides=3, padding="causal"),
        lambda: layers.Conv1D(4, 4, 3, padding="causal"),
        LONG,
    ),
    (
        lambda: layers.Conv2DTranspose(filters=4, kernel_size=4, strides=3, padding="same"),
        lambda: layers.Conv2DTranspose(4, 4, 3, padding="same"),
        IMAGE,
    ),
    (
        lambda: layers.Conv1DTranspose(filters=4, kernel_size=2, strides=3),
        lambda: layers.Conv1DTranspose(4, 2, 3, **VALID),
        LONG,
    ),
    (
        lambda: layers.Conv2DTranspose(filters=4, kernel_size=3, strides=2, output_padding=1),
        lambda: layers.Conv2DTranspose(4, 3, 2, "valid", output_padding=1),
        IMAGE,
    ),
    (lambda: layers.DepthwiseConv2D(kernel_size=2), lambda: layers.DepthwiseConv2D(2, **VALID), IMAGE),
    (
        lambda: layers.SeparableConv2D(4, kernel_size=2, padding="same"),
        lambda: layers.SeparableConv2D(4, 2, padding="same"),
        IMAGE,
    ),
    (lambda: layers.MaxPooling2D(pool_size=3), lambda: layers.MaxPooling2D(3, **VALID), IMAGE),
    (
        lambda: layers.MaxPooling2D(strides=3, padding="same"),
        lambda: layers.MaxPooling2D(stride=3, padding="same"),
        IMAGE,
    ),
    (lambda: layers.MaxPooling2D(pool_size=3, pad=1), lambda: layers.MaxPooling2D(3, 3, pad=1), IMAGE),
    (
        lambda: layers.AveragePooling2D(pool_size=(2, 3), padding="same"),
        lambda: layers.AvgPooling2D((2, 3), padding="same"),
        IMAGE,
    ),
    (
        lambda: layers.AveragePooling2D(3),
        lambda: layers.AvgPooling2D(3, **VALID),
        IMAGE,
    ),
    (lambda: layers.MaxPool2D(), lambda: layers.MaxPooling2D(**VALID), IMAGE),
    (lambda: layers.MaxPooling1D(pool_size=4), lambda: layers.MaxPooling1D(4, **VALID), LONG),
    (
        lambda: layers.AvgPooling1D(strides=4),
        lambda: layers.AvgPooling1D(stride=4, **VALID),
        LONG,
    ),
    (lambda: layers.Dropout(rate=0.3), lambda: layers.Dropout(0.3), VECTOR),
    (lambda: layers.SpatialDropout2D(rate=0.3), lambda: layers.SpatialDropout2D(0.3), IMAGE),
    (lambda: layers.GaussianNoise(stddev=0.3), lambda: layers.GaussianNoise(0.3), VECTOR),
    (lambda: layers.Activation(activation="tanh"), lambda: layers.Activation(mode="tanh"), VECTOR),
    (
        lambda: layers.Activation(activation="leaky_relu", negative_slope=0.3),
        lambda: layers.Activation(mode="leaky_relu", slope=0.3),
        VECTOR,
    ),
    (lambda: layers.ReLU(), lambda: layers.Activation(mode="relu"), VECTOR),
    (lambda: layers.ELU(alpha=0.5), lambda: layers.Activation(mode="elu", alpha=0.5), VECTOR),
    (lambda: layers.Reshape(target_shape=(2, 3)), lambda: layers.Reshape((2, 3)), VECTOR),
    (lambda: layers.Permute(dims=(2, 1)), lambda: layers.Permute((2, 1)), SEQUENCE),
    (
        lambda: layers.Embedding(input_dim=7, output_dim=3, embeddings_initializer="normal"),
        lambda: layers.Embedding(7, 3, weight_init="normal"),
        IDS,
    ),
    (lambda: layers.MultiHeadAttention(num_heads=2, key_dim=4), lambda: layers.MultiHeadAttention(2, 4), SEQUENCE),
    (
        lambda: layers.LSTM(units=3, return_sequences=True),
        lambda: layers.LSTM(
            3, return_sequences=True, weight_init="glorot_uniform", recurrent_init="orthogonal", bias_init="unit_forget"
        ),
        SEQUENCE,
    ),
    (
        lambda: layers.GRU(units=3, recurrent_initializer="glorot_normal"),
        lambda: layers.GRU(3, weight_init="glorot_uniform", recurrent_init="glorot_normal", bias_init=0.0),
        SEQUENCE,
    ),
    (
        lambda: layers.Bidirectional(layers.LSTM("lstm", 3), merge_mode="sum"),
        lambda: layers.Bidirectional(layers.LSTM("lstm", 3), "sum"),
        SEQUENCE,
    ),
    (
        lambda: layers.BatchNormalization(gamma_initializer=0.5),
        lambda: layers.BatchNormalization(0.01, epsilon=1e-3, gamma_init=0.5),
        IMAGE,
    ),
    (
        lambda: layers.LayerNormalization(beta_initializer=0.5),
        lambda: layers.LayerNormalization(epsilon=1e-3, beta_init=0.5),
        VECTOR,
    ),
    (
        lambda: layers.GroupNormalization(3, gamma_initializer=0.5),
        lambda: layers.GroupNormalization(3, epsilon=1e-3, gamma_init=0.5),
        IMAGE,
    ),
    (lambda: layers.PReLU(alpha_initializer=0.2), lambda: layers.PReLU((), alpha_init=0.2), VECTOR),
    (lambda: layers.ZeroPadding2D(padding=((1, 2), (0, 3))), lambda: layers.ZeroPadding2D((1, 2, 0, 3)), IMAGE),
    (lambda: layers.Cropping2D(cropping=(1, 2)), lambda: layers.Cropping2D((1, 2)), IMAGE),
    (lambda: layers.UpSampling2D(size=(2, 3)), lambda: layers.Upsampling2D((2, 3)), IMAGE),
]

#: Likewise of what is compared by its arguments alone.
OTHERS: list[tuple[Any, Any]] = [
    (optimizer.SGD(learning_rate=0.2), optimizer.SGD(0.2)),
    (optimizer.SGD(learning_rate=schedule.Step(0.1, 2, 0.5)), optimizer.SGD(schedule.Step(0.1, 2, 0.5))),
    (optimizer.Adam(learning_rate=0.002, beta_1=0.8), optimizer.Adam(0.002, 0.8, epsilon=1e-7)),
    (optimizer.AdamW(learning_rate=0.002), optimizer.AdamW(0.002, epsilon=1e-7, weight_decay=0.004)),
    (optimizer.RMSprop(learning_rate=0.002), optimizer.RMSProp(0.002, epsilon=1e-7)),
    (optimizer.RMSprop(), optimizer.RMSProp(0.001, epsilon=1e-7)),
    (optimizer.RMSprop(0.01, epsilon=1e-5), optimizer.RMSProp(0.01, epsilon=1e-5)),
    (optimizer.get("adam"), optimizer.Adam(0.001, epsilon=1e-7)),
    (optimizer.get("SGD"), optimizer.SGD(0.01)),
    (loss.CategoricalCrossentropy(), loss.SoftmaxCrossEntropy(from_logits=False)),
    (loss.get("sparse_categorical_crossentropy"), loss.SoftmaxCrossEntropy(from_logits=False)),
    (loss.SparseCategoricalCrossentropy(from_logits=True), loss.SoftmaxCrossEntropy(from_logits=True)),
    (loss.BinaryCrossentropy(), loss.SigmoidCrossEntropy(from_logits=False)),
]


def net_of(*added: Layer, shape: tuple[int, ...]) -> FeedForwardNet:
    net = FeedForwardNet(seed=4)
    net.add(layers.Dummy("input", shape))
    for layer in added:
        net.add(layer)
    return net


def samples(shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.integers(0, 7, (3, *shape)) if shape == IDS else rng.normal(size=(3, *shape)).astype(np.float32)


@pytest.mark.parametrize("row", range(len(LAYERS)))
def test_a_layer_by_keras_words_is_the_same_layer(row):
    by_keras, by_ours, shape = LAYERS[row]
    nets = [net_of(make(), shape=shape) for make in (by_keras, by_ours)]
    assert nets[0].config() == nets[1].config()
    outputs = [to_numpy(net.forward(True, net_input(net, shape))) for net in nets]
    assert outputs[0].tobytes() == outputs[1].tobytes()
    assert FeedForwardNet.from_config(nets[0].config()).config() == nets[0].config()


def net_input(net: FeedForwardNet, shape: tuple[int, ...]) -> Any:
    return singa_lite.tensor.from_numpy(samples(shape), net.device)


def test_a_pooling_by_keras_words_has_keras_window():
    wanted = layers.MaxPooling2D(3, 3, **VALID).window
    assert layers.MaxPooling2D(pool_size=3).window == layers.AveragePooling2D(3).window == wanted
    assert layers.MaxPool2D().window == layers.MaxPooling2D(2, 2, **VALID).window
    assert not layers.AveragePooling2D(pool_size=3, pad=1).count_pad


def test_an_activation_of_a_recurrent_layer_brings_no_defaults_of_keras():
    assert layers.SimpleRNN(3, activation="relu").given_arguments.keys() == {"hidden_size", "activation"}


def test_each_word_of_layers_is_tried():
    source = Path(__file__).read_text(encoding="utf-8")
    assert [word for word in words.ALIASES if not re.search(rf"\b{word}=", source)] == []


def test_other_objects_by_keras_words():
    for by_keras, by_ours in OTHERS:
        assert type(by_keras) is type(by_ours)
        for name, value in by_ours.given_arguments.items():
            found = getattr(by_keras, name)
            assert found == value or by_keras.schedule(3) == by_ours.schedule(3), (by_keras, name)


def test_a_word_of_keras_is_an_attribute_too():
    layer, rate = layers.Dropout(rate=0.25), optimizer.Adam(learning_rate=0.1)
    layer.rate, rate.learning_rate = 0.5, 0.2
    assert (layer.p, layer.rate, rate.lr, rate.learning_rate) == (0.5, 0.5, 0.2, 0.2)


def test_an_option_that_is_set_later_brings_no_defaults_of_keras():
    """The pads of `border_mode` stay, also in what is read from a configuration."""
    net = net_of(layers.Conv2D("conv", 4, 3), shape=IMAGE)
    net.layers["conv"].activation = "tanh"
    again = FeedForwardNet.from_config(net.config())
    assert net.layers["conv"].window.pad == again.layers["conv"].window.pad == (1, 1, 1, 1)
    assert again.layers["conv"].activation == "tanh"


def test_a_subclass_may_use_keras_words():
    class Mine(layers.Conv2D):
        def __init__(self, name: str, filters: int) -> None:
            super().__init__(name, filters=filters, kernel_size=3)

    class Plain(layers.Conv2D):
        def __init__(self, name: str, filters: int, activation: str) -> None:
            super().__init__(name, filters, 3, activation=activation)

    net = net_of(Mine("mine", 5), Plain("plain", filters=4, activation="relu"), shape=IMAGE)
    assert net.layers["mine"].output_sample_shape == (5, 5, 8)
    assert net.layers["plain"].output_sample_shape == (4, 5, 8) and net.layers["plain"].activation == "relu"


class Unnamed(layers.Conv2D):
    def __init__(self, filters: int, gain: float = 1.0, **options: Any) -> None:
        super().__init__(filters, 3, **options)
        self.gain = gain


def test_a_subclass_without_a_name_keeps_its_own_arguments():
    net = net_of(Unnamed(4, gain=2.0), shape=IMAGE)
    again = FeedForwardNet.from_config(net.config(), custom={"Unnamed": Unnamed})
    assert net.layers["unnamed"].given_arguments == {"filters": 4, "gain": 2.0}
    assert again.layers["unnamed"].gain == 2.0


# ---- windows, against PyTorch with explicit pads in float64


def pads(extents: tuple[int, ...], spans: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Of "same", as torch.nn.functional.pad takes them: the last axis first, the larger half behind."""
    missing = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(extents, spans, strides, strict=True)]
    return [half for each in reversed(missing) for half in (each // 2, each - each // 2)]


@pytest.mark.peer
@pytest.mark.parametrize("extents", [(7, 10), (8, 5), (9, 9)])
@pytest.mark.parametrize(("kernel", "strides"), [((2, 3), (3, 2)), ((4, 5), (1, 3)), ((3, 2), (2, 2))])
def test_same_padding_is_uneven_where_it_must_be(extents, kernel, strides):
    torch = skips.library("torch")
    given: dict[str, Any] = {"strides": strides, "padding": "same"}
    net = FeedForwardNet(dtype="float64", seed=1)
    image = net.add(layers.Input((3, *extents), name="image"))
    conv = net.add(layers.Conv2D(filters=4, kernel_size=kernel, name="conv", **given), image)
    net.add(layers.MaxPooling2D(pool_size=kernel, name="max", **given), image)
    net.add(layers.AveragePooling2D(pool_size=kernel, name="mean", **given), image)
    x = np.random.default_rng(3).normal(size=(2, 3, *extents))
    found = {name: to_numpy(y) for name, y in net.predict(x).items()}
    around, functions = pads(extents, kernel, strides), torch.nn.functional
    zeros = functions.pad(torch.from_numpy(x), around)
    weight, bias = (torch.from_numpy(to_numpy(conv.parameters[name])) for name in ("weight", "bias"))
    ones = functions.avg_pool2d(functions.pad(torch.ones(2, 3, *extents, dtype=torch.float64), around), kernel, strides)
    wanted = {
        "conv": functions.conv2d(zeros, weight, bias, strides),
        "max": functions.max_pool2d(functions.pad(torch.from_numpy(x), around, value=-np.inf), kernel, strides),
        "mean": functions.avg_pool2d(zeros, kernel, strides) / ones,
    }
    for name, y in wanted.items():
        np.testing.assert_allclose(found[name], y.numpy(), 1e-12, 1e-12, err_msg=name)


# ---- activation=


def shallow(**options: Any) -> dict[str, tuple[Layer, tuple[int, ...]]]:
    """A layer of each class that has an activation."""
    return {
        "Dense": (layers.Dense("layer", 4, **options), SEQUENCE),
        "Conv1D": (layers.Conv1D("layer", 4, kernel_size=3, **options), LONG),
        "Conv2D": (layers.Conv2D("layer", 4, kernel_size=3, **options), IMAGE),
        "Conv1DTranspose": (layers.Conv1DTranspose("layer", 4, kernel_size=3, **options), LONG),
        "Conv2DTranspose": (layers.Conv2DTranspose("layer", 4, kernel_size=3, **options), IMAGE),
        "DepthwiseConv2D": (layers.DepthwiseConv2D("layer", kernel_size=3, **options), IMAGE),
        "SeparableConv2D": (layers.SeparableConv2D("layer", 4, kernel_size=3, **options), IMAGE),
    }


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("kind", shallow())
def test_an_activation_is_a_layer_of_its_own_in_bits(kind, graph, tmp_path):
    """By name, as an operation, and as a layer; through training, copies, pickles and files."""
    wanted = None
    given = {"separate": None, "name": "tanh", "operation": autograd.tanh, "layer": layers.Activation(mode="tanh")}
    for how, activation in given.items():
        layer, shape = shallow(activation=activation)[kind]
        behind = [layers.Activation("behind", "tanh")] if how == "separate" else []
        net = net_of(layer, *behind, layers.Flatten("flat"), layers.Dense("out", 3), shape=shape)
        net.compile(optimizer.SGD(0.1, momentum=0.9), "softmax_cross_entropy", graph=graph)
        for _ in range(3):
            net.train_one_batch(samples(shape), np.array([0, 2, 1]))
        wanted = wanted or all_bits(net.parameters())
        assert all_bits(net.parameters()) == wanted, how
        assert how == "separate" or "tanh)" in net.summary()
        check_copies(net, shape, tmp_path)


def check_copies(net: FeedForwardNet, shape: tuple[int, ...], folder: Path) -> None:
    """Copies predict the same, and their layer has the same activation."""
    wanted = to_numpy(net.predict(samples(shape))).tobytes()
    net.save(folder / "net.h5")
    net.save(folder / "net.weights.h5")
    fresh = FeedForwardNet.from_config(net.config())
    fresh.load(folder / "net.weights.h5")
    copies = [copy.deepcopy(net), pickle.loads(pickle.dumps(net)), singa_lite.load(folder / "net.h5"), fresh]
    for each in copies:
        assert to_numpy(each.predict(samples(shape))).tobytes() == wanted
        assert each.layers["layer"].activation == "tanh" or type(each.layers["layer"].activation) is type(
            net.layers["layer"].activation
        )


def test_an_activation_by_an_operation_is_its_name():
    for given, name in ((autograd.relu, "relu"), (autograd.softmax, "softmax"), ("swish", "silu"), ("linear", None)):
        assert layers.Dense(4, activation=given).activation == name
    assert layers.Dense(4, activation=autograd.silu).given_arguments["activation"] == "silu"


def test_a_softmax_is_that_of_the_features():
    for layer, axis, shape in (
        (layers.Dense("d", 4, activation="softmax"), -1, SEQUENCE),
        (layers.Conv2D("c", 4, 3, activation="softmax"), 1, IMAGE),
    ):
        sums = to_numpy(net_of(layer, shape=shape).predict(samples(shape))).sum(axis)
        np.testing.assert_allclose(sums, np.ones_like(sums), 1e-5)
        assert layer.gives == "softmax"


# ---- losses of probabilities


@pytest.mark.parametrize("ids", [True, False])
def test_a_crossentropy_of_probabilities_is_that_of_scores(ids):
    y = np.array([0, 3, 1, 1])
    y = y if ids else np.eye(4)[y]
    nets = []
    for activation, name in (("softmax", "categorical_crossentropy"), (None, "softmax_cross_entropy")):
        net = net_of(layers.Dense("d", 4, activation=activation), shape=VECTOR)
        net.compile("sgd", name)
        nets.append(net)
    x = np.random.default_rng(2).normal(size=(4, 6)).astype(np.float32)
    for _ in range(4):
        found, wanted = (float(net.fit(x, y, verbose=0)["loss"][0]) for net in nets)
        assert found == pytest.approx(wanted, rel=1e-5)
    np.testing.assert_allclose(*(to_numpy(net.param_values()[0]) for net in nets), rtol=1e-4, atol=1e-6)


def test_a_binary_crossentropy_of_probabilities():
    scores = np.array([[0.3, -2.0], [40.0, 1.0]])
    x, y = singa_lite.tensor.from_numpy(1 / (1 + np.exp(-scores))), np.array([[1.0, 0.0], [0.0, 1.0]])
    found = to_numpy(loss.BinaryCrossentropy().forward(False, x, y))
    p = np.clip(1 / (1 + np.exp(-scores)), 1e-7, 1 - 1e-7)
    np.testing.assert_allclose(found, -(y * np.log(p) + (1 - y) * np.log(1 - p)).mean(1), 1e-9)


def test_a_loss_of_probabilities_warns_of_raw_scores():
    net = net_of(layers.Dense("d", 4), shape=VECTOR)
    with pytest.warns(UserWarning, match=r"probabilities of a softmax.*'d'"):
        net.compile("adam", "categorical_crossentropy")


# ---- the training loop, callbacks


def test_what_asks_for_what_is_done_anyway_is_accepted():
    layer = layers.Conv2D(filters=4, kernel_size=3, data_format="channels_first", kernel_regularizer=None)
    assert layer.given_arguments == layers.Conv2D(filters=4, kernel_size=3).given_arguments
    net = net_of(layers.Dense("d", 4), shape=VECTOR)
    net.compile("sgd", loss.SparseCategoricalCrossentropy(from_logits=True), jit_compile=True, metrics=[])
    assert net.optimizer.lr == 0.01 and net.metric is None
    assert net.evaluate(samples(VECTOR), np.array([0, 3, 1]), return_dict=False)[1] is None


def test_keras_words_of_calls(tmp_path, capsys):
    net = net_of(layers.Dense("d", 4, activation="softmax"), shape=VECTOR)
    net.compile(optimizer="rmsprop", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    x, y = samples(VECTOR), np.array([0, 3, 1])
    stopping = callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True)
    logger = callbacks.CSVLogger(filename=tmp_path / "log.csv")
    history = net.fit(x, y, batch_size=2, epochs=2, verbose=0, callbacks=[stopping, logger])
    assert stopping.restore_best and logger.path.is_file() and set(history) >= {"loss", "accuracy"}
    assert capsys.readouterr().out == ""
    found = net.evaluate(x, y, verbose=2)
    assert all(f"{value}" in capsys.readouterr().out for value in found[:1]) and isinstance(found[1], float)
    assert net.predict(x, verbose=0).shape == (3, 4)
    assert callbacks.TensorBoard(log_dir="logs").folder == "logs"


# ---- the manual


def test_the_manual_prints_the_tables():
    text = (DOCS / "keras_words.md").read_text(encoding="utf-8")
    for line in (*word_rows(), *default_rows(), *class_rows()):
        assert line in text, line


def word_rows() -> list[str]:
    return [f"| `{word}` | {', '.join(f'`{name}`' for name in names)} |" for word, names in words.ALIASES.items()]


def default_rows() -> list[str]:
    """A row for each class that has defaults of Keras's."""
    rows = []
    for kind, defaults in words.DEFAULTS.items():
        shown = (
            f"`{name}={value.parameter if isinstance(value, words.SameAs) else repr(value)}`"
            for (name, *_), value in defaults.items()
        )
        rows.append(f"| `{kind}` | {', '.join(shown)} |")
    return rows


def class_rows() -> list[str]:
    """A row for each class of Keras's that has another name here."""
    rows = []
    for keras, (ours, given) in words.CLASSES.items():
        rows.append(
            f"| `{keras}` | `{ours}{(given and '(' + ', '.join(f'{k}={v!r}' for k, v in given.items()) + ')') or ''}` |"
        )
    return rows


# ---- the script


def scripts() -> tuple[str, str]:
    """Keras's script and ours, as the manual has them."""
    keras, ours = re.findall(
        r"```python\n(.*?)```", (DOCS / "from_keras.md").read_text(encoding="utf-8").split("## A script")[1], re.S
    )[:2]
    return keras, ours


def digits() -> dict[str, np.ndarray]:
    """Pictures of 16 x 16, of scikit-learn's digits, with one-hot labels."""
    found = pytest.importorskip("sklearn.datasets").load_digits()
    x = np.kron(found.images[:500] / 16, np.ones((2, 2))).astype(np.float32)
    y = np.eye(10)[found.target[:500]]
    return {"x_train": x[:400], "y_train": y[:400], "x_test": x[400:], "y_test": y[400:]}


def test_only_imports_and_the_axis_of_channels_differ():
    keras, ours = (text.splitlines() for text in scripts())
    differing = [(a, b) for a, b in zip(keras, ours, strict=True) if a != b]
    assert differing and all("import" in a or "expand_dims" in a for a, _ in differing)


def test_keras_well_known_script_runs(capsys):
    given: dict[str, Any] = digits()
    exec(scripts()[1], given)
    assert given["score"][1] > 0.6
    assert "3 x 3, stride 1, pad 0, relu" in capsys.readouterr().out


def test_the_quickstart_for_beginners_runs():
    """TensorFlow's, of raw scores, with Keras's modules by their names."""
    keras: Any = singa_lite
    given = digits()
    model = keras.Sequential(
        [
            layers.Flatten(input_shape=(16, 16)),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(10),
        ]
    )
    scores = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(), loss=scores, metrics=["accuracy"])
    model.fit(given["x_train"], given["y_train"].argmax(1), epochs=5, verbose=0)
    assert model.evaluate(given["x_test"], given["y_test"].argmax(1), verbose=2)[1] > 0.6
    assert all(getattr(keras, name) is getattr(keras, ours) for name, ours in words.MODULES.items())


@pytest.mark.peer
def test_the_script_learns_what_keras_learns(tmp_path):
    """From equal weights, without what is drawn at random."""
    if find_spec("keras") is None or find_spec("torch") is None:
        pytest.skip("wants Keras and its backend PyTorch, pip install keras torch")
    np.savez(tmp_path / "digits.npz", **digits())
    losses = []
    for text in reversed([text.replace("Dropout(0.5)", "Dropout(0.0)") for text in scripts()]):
        before, after = text.replace("epochs=15", "epochs=2, shuffle=False").split("model.fit(")
        program = f"""
import os
os.environ["KERAS_BACKEND"] = "torch"
import json, numpy as np
globals().update(np.load({str(tmp_path / "digits.npz")!r}))
{before}
if "singa_lite" in keras.__name__:
    model.save({str(tmp_path / "net.weights.h5")!r})
else:
    model.load_weights({str(tmp_path / "net.weights.h5")!r})
history = model.fit({after}
history = getattr(history, "history", history)
found = {{name: history[name] for name in ("loss", "accuracy", "val_loss", "val_accuracy")}}
print(json.dumps([found, [float(each) for each in score]]))
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        losses.append(json.loads(done.stdout.splitlines()[-1]))
    (ours, score), (theirs, their_score) = losses
    for name, values in theirs.items():
        np.testing.assert_allclose(ours[name], values, 1e-3, 0.02 if "accuracy" in name else 0, err_msg=name)
    np.testing.assert_allclose(score, their_score, 1e-3, 0.02)
