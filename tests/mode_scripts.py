"""Small training scripts, one for each kind of net, that `test_modes.py` runs in every mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import own_steps
from singa_lite import FeedForwardNet, Layer, Tensor, autograd, layers, loss, optimizer, regularizer, schedule
from singa_lite.device import Device

Batch = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Script:
    """build: a net on a device, its layers added. batch: what a step is given, by a random generator.

    compiled: options that belong to the script. beside: more of them, which want the net. without: modes that the
    script refuses, with the reason. long_to_plan: a budget takes a second.
    """

    build: Callable[[Device], FeedForwardNet]
    batch: Callable[[np.random.Generator], Batch]
    optimizer: Callable[[], optimizer.Optimizer] = lambda: optimizer.SGD(0.05, momentum=0.9)
    compiled: Mapping[str, Any] = field(default_factory=dict)
    beside: Callable[[FeedForwardNet], Mapping[str, Any]] = lambda net: {}
    without: Mapping[str, str] = field(default_factory=dict)
    long_to_plan: bool = False


def images(rng: np.random.Generator) -> Batch:
    """8 images of 3 x 6 x 7, 5 classes."""
    return rng.standard_normal((8, 3, 6, 7), dtype=np.float32), rng.integers(0, 5, 8)


def vectors(rng: np.random.Generator) -> Batch:
    """8 vectors of 6, 5 classes."""
    return rng.standard_normal((8, 6), dtype=np.float32), rng.integers(0, 5, 8)


def texts(rng: np.random.Generator) -> Batch:
    """8 texts of 6 ids below 30, with the next id at each place; some places do not count."""
    return rng.integers(0, 30, (8, 6)), rng.integers(0, 30, (8, 6)) * (rng.random((8, 6)) > 0.3)


def quantised(on: Device) -> FeedForwardNet:
    """A block whose large weights, and whose table, are bytes that nobody writes."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1, ignore_index=0), None, on, seed=4)
    words = net.add(layers.Embedding("words", 30, 32, weight_format="q8_0", input_sample_shape=(6,)))
    formats = {"attention": "q4_1", "hidden": {"gate": "q4_0"}}
    net.add(
        layers.TransformerBlock(
            "block", 2, True, norm="rms", use_bias=False, activation="swiglu", weight_format=formats
        )
    )
    net.add(layers.TiedDense("head", words))
    return with_blocks(net)


def with_blocks(net: FeedForwardNet) -> FeedForwardNet:
    """The net, its quantised weights drawn: bytes that are small scales wherever they are some."""
    for name, frozen in net.frozen().items():
        of, _, own = name.partition("/")
        net.layers[of].set_frozen(own, np.random.default_rng(3).integers(0x14, 0x24, frozen.shape, np.uint8))
    return net


def series(rng: np.random.Generator) -> Batch:
    """8 sequences of 4 steps of 4 features, 5 classes."""
    return rng.standard_normal((8, 4, 4), dtype=np.float32), rng.integers(0, 5, 8)


def classifier(on: Device) -> FeedForwardNet:
    return FeedForwardNet(loss.SoftmaxCrossEntropy(), "accuracy", on, seed=4)


def residual(on: Device) -> FeedForwardNet:
    """Convolutions, batch statistics, a branch that joins, dropout."""
    net = classifier(on)
    start = net.add(layers.Conv2D("stem", 4, 3, input_sample_shape=(3, 6, 7)))
    relu = net.add(layers.Activation("relu"), net.add(layers.BatchNormalization("norm"), start))
    net.add(layers.Merge("sum"), [net.add(layers.Conv2D("right", 4, 1), start), relu])
    net.add(layers.Dropout("drop", 0.4))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 5))
    return net


def adapted(on: Device) -> FeedForwardNet:
    """Adapters that drop beside convolutions and matrices, all else frozen."""
    net = classifier(on)
    net.add(layers.Conv2D("first", 6, 3, stride=2, activation="relu", input_sample_shape=(3, 6, 7)))
    net.add(layers.Conv2D("second", 4, 1))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("hidden", 20, activation="tanh"))
    net.add(layers.Dense("dense", 5))
    net.add_lora(3, 6, "all", dropout=0.2)
    return net


def depthwise(on: Device) -> FeedForwardNet:
    net = classifier(on)
    net.add(layers.Conv2D("first", 6, 3, stride=2, use_bias=False, input_sample_shape=(3, 6, 7)))
    net.add(layers.Activation("relu6", "relu6"))
    net.add(layers.Conv2D("depth", 12, 3, groups=6))
    net.add(layers.Activation("silu", "silu"))
    net.add(layers.GlobalAvgPooling2D("mean"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 5))
    return net


def pooled(on: Device) -> FeedForwardNet:
    net = classifier(on)
    net.add(layers.Conv2D("conv", 5, 3, input_sample_shape=(3, 6, 7)))
    net.add(layers.LRN("lrn"))
    net.add(layers.Activation("tanh", "tanh"))
    net.add(layers.MaxPooling2D("max", 3, 2))
    net.add(layers.AvgPooling2D("average", 2, 1, "valid"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 5))
    return net


def upsampled(on: Device) -> FeedForwardNet:
    """A score for each pixel."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on, seed=4)
    first = net.add(layers.Conv2D("down", 5, 3, stride=2, input_sample_shape=(3, 6, 8)))
    net.add(layers.Conv2DTranspose("up", 4, 2, stride=2, border_mode="valid"), first)
    net.add(layers.GroupNormalization("norm", 2))
    net.add(layers.Activation("gelu", "gelu"))
    net.add(layers.Conv2D("scores", 3, 1))
    return net


def pixels(rng: np.random.Generator) -> Batch:
    return rng.standard_normal((8, 3, 6, 8), dtype=np.float32), rng.integers(0, 3, (8, 6, 8))


def perceptron(on: Device, net: FeedForwardNet | None = None, width: int = 9) -> FeedForwardNet:
    net = net or classifier(on)
    net.add(layers.Dense("a", width, input_sample_shape=(6,)))
    net.add(layers.Activation("tanh", "tanh"))
    net.add(layers.Dense("b", 5))
    return net


def two_inputs(on: Device) -> FeedForwardNet:
    losses = {"class": loss.SoftmaxCrossEntropy(), "value": loss.SquaredError()}
    net = FeedForwardNet(losses, {"class": "accuracy"}, on, seed=8)
    a = net.add(layers.Dense("a", 4, input_sample_shape=(3,)), [])
    b = net.add(layers.Dense("b", 4, input_sample_shape=(5,)), [])
    both = net.add(layers.Merge("both"), [a, b])
    net.add(layers.Dense("class", 3), both)
    net.add(layers.Dense("value", 2), both)
    return net


def two_batches(rng: np.random.Generator) -> Batch:
    x = {name: rng.standard_normal((8, width), dtype=np.float32) for name, width in (("a", 3), ("b", 5))}
    return x, {"class": rng.integers(0, 3, 8), "value": rng.standard_normal((8, 2), dtype=np.float32)}


def shared(on: Device) -> FeedForwardNet:
    net = classifier(on)
    first = layers.Dense("first", 6, input_sample_shape=(6,))
    net.add(first)
    net.add(layers.Activation("act", "sigmoid"))
    net.add(layers.Dense("again", 6).share_parameters(first))
    net.add(layers.Dense("scores", 5))
    return net


def transformer(on: Device) -> FeedForwardNet:
    """A decoder whose table is its head too; id 0 does not count."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1, ignore_index=0), device=on, seed=4)
    tokens = net.add(layers.Embedding("tokens", 30, 8, input_sample_shape=(6,)))
    net.add(layers.LearnedPositions("positions", 6))
    net.add(layers.TransformerBlock("block", 2, True, rotary=True, window=4, query_key_norm=True))
    net.add(layers.TiedDense("head", tokens))
    return net


def recurrent(on: Device) -> FeedForwardNet:
    """Padding is masked."""
    net = classifier(on)
    net.add(layers.Embedding("tokens", 30, 5, padding_idx=0, input_sample_shape=(4,)))
    net.add(layers.LSTM("lstm", 7, bidirectional=True))
    net.add(layers.Dense("dense", 5))
    return net


def padded(rng: np.random.Generator) -> Batch:
    ids = rng.integers(1, 30, (8, 4))
    ids[np.arange(4) >= rng.integers(2, 5, (8, 1))] = 0
    return ids, rng.integers(0, 5, 8)


def convolved_series(on: Device) -> FeedForwardNet:
    net = classifier(on)
    net.add(layers.GRU("gru", 6, return_sequences=True, input_sample_shape=(4, 4)))
    net.add(layers.LayerNormalization("norm"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 5))
    return net


class Gated(Layer):
    """A layer of the user's own."""

    def setup(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        for name in ("value", "gate"):
            self.add_parameter(name, (shape[0], 7), "glorot_uniform", (shape[0], 7))
        return (7,)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        own = self.parameters
        gate = autograd.sigmoid(autograd.linear(x, own["gate"]))
        return autograd.linear(Halved()(x), own["value"]) * gate


class Halved(autograd.Function):
    """An operation of the user's own: y = x / 2."""

    overwrites = (("y", "x"), ("dx", "dy"))

    def makes(self, x: Any) -> dict[str, Any]:
        return {"y": autograd.Output(x.shape)}

    def forward(self, x: Any, y: Any) -> None:
        np.multiply(x, 0.5, out=y)

    def derivative_x(self, dy: Any, dx: Any) -> None:
        np.multiply(dy, 0.5, out=dx)


def own_layer(on: Device) -> FeedForwardNet:
    net = classifier(on)
    net.add(Gated("gated", input_sample_shape=(6,)))
    net.add(layers.Dense("b", 5))
    return net


class Twice(Layer):
    """Runs a layer twice, with a parameter of its own between."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.inner = self.add_layer(layers.Dense("inner", 6))

    def setup(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        shape = self.set_up(self.inner, shape)
        self.add_parameter("scale", shape, 0.7)
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        x = autograd.tanh(self.run(self.inner, training, x) * self.parameters["scale"])
        return self.run(self.inner, training, x)


def nested(on: Device) -> FeedForwardNet:
    """Layers within layers, and one that is run twice."""
    net = classifier(on)
    inner = [layers.Dense("c", 6), layers.Dropout("drop", 0.3)]
    parts = [layers.Dense("a", 6, input_sample_shape=(6,)), layers.Residual("inner", inner), Twice("twice")]
    net.add(layers.Sequential("outer", parts))
    net.add(layers.Dense("b", 5))
    return net


def submodel(on: Device) -> FeedForwardNet:
    """A new head behind a part of another net, whose layers it shares."""
    whole = classifier(on)
    whole.add(layers.Dense("a", 7, input_sample_shape=(6,)))
    whole.add(layers.BatchNormalization("norm"))
    whole.add(layers.Activation("act", "tanh"))
    whole.add(layers.Dense("unused", 3))
    net = whole.submodel("act")
    net.loss = loss.SoftmaxCrossEntropy()
    net.add(layers.Dense("head", 5))
    return net


def tagged(on: Device) -> FeedForwardNet:
    """A class for each position, by a table of ids that is updated row by row."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(-1), device=on, seed=7)
    net.add(layers.Embedding("table", 30, 5, 2, input_sample_shape=(6,)))
    net.add(layers.LearnedPositions("positions"))
    net.add(layers.RMSNormalization("norm"))
    net.add(layers.Dropout("drop", 0.2))
    net.add(layers.Dense("scores", 4))
    return net


def weighed_texts(rng: np.random.Generator) -> Batch:
    """Weights of positions, some of them 0, and of classes."""
    weights = rng.uniform(0, 2, (8, 6)) * (rng.random((8, 6)) > 0.3)
    return rng.integers(0, 30, (8, 6)), rng.integers(0, 4, (8, 6)), weights, {1: 3.0}


def weighed(rng: np.random.Generator) -> Batch:
    """Weights of samples and of classes."""
    return *vectors(rng), rng.uniform(0, 3, 8), {0: 2.0, 2: 0.25}


def numbers(rng: np.random.Generator) -> Batch:
    """Vectors of 5, and no targets."""
    return rng.standard_normal((8, 5), dtype=np.float32), None


def by_rules() -> optimizer.Optimizer:
    """Some parameters go by rules of their own."""
    made = optimizer.SGD(
        0.05, 0.5, regularizer=regularizer.L2Regularizer(0.1), constraint=regularizer.ElementConstraint(0.1)
    )
    made.register("*/bias", lr_mult=2.0, constraint=regularizer.NormConstraint(0.05))
    return made


def own_step(net: FeedForwardNet, call: Any) -> dict[str, Tensor]:
    """A step of the user's own."""
    scores = net.forward(call.training, call.x)
    fault = autograd.reduce_mean(autograd.softmax_cross_entropy(scores, call.y)) + autograd.reduce_mean(scores * scores)
    call.update(fault, net)
    return {"loss": fault}


_STATISTICS = {"micro_batches": "batch normalization works on the whole batch"}
_STATELESS = "an optimizer without state keeps none in another way"
_NO_STATE = dict.fromkeys(("state in 8 bits", "all together", "clip in bfloat16"), _STATELESS)
_STEP = "a step of one's own has no option of the built-in step"
_BUILT_IN = ("accumulate", "micro_batches", "loss_scale", "float16", "all together", "keep")
_OWN_STEP = dict.fromkeys(_BUILT_IN, _STEP)

SCRIPTS = {
    "residual": Script(
        residual, images, lambda: optimizer.SGD(schedule.get(lambda n: 0.1 / (1 + n)), 0.9), without=_STATISTICS
    ),
    "adapters": Script(adapted, images),
    "depthwise": Script(depthwise, images, lambda: optimizer.AdamW(0.01)),
    "pooled": Script(pooled, images, lambda: optimizer.RMSProp(0.001)),
    "upsampled": Script(upsampled, pixels, lambda: optimizer.Adam(0.01)),
    "perceptron": Script(perceptron, vectors, lambda: optimizer.AdaGrad(0.05)),
    "regularized, wide": Script(lambda on: perceptron(on, width=700), vectors, by_rules),  # 8 bits can hold its state
    "frozen": Script(residual, images, compiled={"freeze": "dense"}),
    "frozen within": Script(nested, vectors, compiled={"freeze": ["outer/a", "b"]}, long_to_plan=True),
    "two inputs and losses": Script(
        two_inputs, two_batches, lambda: optimizer.Nesterov(0.05), compiled={"loss_weights": {"class": 0.25}}
    ),
    "shared parameters": Script(shared, vectors, lambda: optimizer.Adam(0.01, amsgrad=True)),
    "transformer": Script(transformer, texts, lambda: optimizer.SGD(0.1, 0.9, weight_decay=0.01), long_to_plan=True),
    "table by rows": Script(tagged, weighed_texts, lambda: optimizer.SGD(0.1), without=_NO_STATE),
    "weighed samples": Script(perceptron, weighed, lambda: optimizer.SGD(0.1), without=_NO_STATE),
    "recurrent, padded": Script(recurrent, padded, long_to_plan=True),
    "recurrent, every step": Script(convolved_series, series, lambda: optimizer.Adam(0.01), long_to_plan=True),
    "quantised": Script(quantised, texts, long_to_plan=True),
    "own layer": Script(own_layer, vectors),
    "nested layers": Script(nested, vectors, long_to_plan=True),
    "submodel": Script(submodel, vectors, without=_STATISTICS),
    "own step": Script(
        lambda on: perceptron(on, FeedForwardNet(device=on, seed=4)),
        vectors,
        compiled={"step": own_step},
        without=_OWN_STEP,
    ),
    "two nets": Script(
        own_steps.critic, numbers, beside=own_steps.with_generator, without=_OWN_STEP, long_to_plan=True
    ),
    "one walk through two nets": Script(
        own_steps.encoder, numbers, beside=own_steps.with_decoder, without=_OWN_STEP, long_to_plan=True
    ),
}
