"""The nets of the tests of Keras's layout, each beside a function of its name in keras_models.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import h5py
import numpy as np

from singa_lite import FeedForwardNet, Layer, layers
from singa_lite.snapshots import net_tree
from singa_lite.tensor import to_numpy


def net_of(*added: Layer, seed: int = 3, dtype: str = "float32") -> FeedForwardNet:
    """One behind the other."""
    net = FeedForwardNet(seed=seed, dtype=dtype)
    for layer in added:
        net.add(layer)
    return net


def randomized(net: FeedForwardNet, seed: int = 1) -> FeedForwardNet:
    """All floats of the net at random, variances above zero."""
    rng = np.random.default_rng(seed)
    for name, tensor in net_tree.tensors(net).items():
        if tensor.dtype.kind == "f":
            tensor.copy_from_numpy(rng.uniform(0.5 if "var" in name else -1, 1.5, tensor.shape).astype(tensor.dtype))
    return net


def depthwise_by_groups() -> FeedForwardNet:
    """The same, to read the file of a model that has a class for it."""
    return depthwise_by(layers.Conv2D("conv", 6, (2, 3), 1, "valid", groups=3, input_sample_shape=(3, 5, 6)))


def depthwise_by(convolution: Layer) -> FeedForwardNet:
    return net_of(
        convolution,
        layers.LayerNormalization("over all", 1),
        layers.Flatten("flat"),
        layers.BatchNormalization("norm"),
        layers.LayerNormalization("by sample"),
        layers.Dense("out", 4),
    )


def branches() -> FeedForwardNet:
    net = FeedForwardNet(seed=3)
    image = net.add(layers.Dummy("image", (2, 6, 4)), [])
    vector = net.add(layers.Dummy("vector", (5,)), [])
    split = net.add(layers.Split("split", 3), image)
    short = net.add(layers.Conv2D("short", 3, 1), (split, 0))
    net.add(layers.Conv2D("long", 3, 3), (split, 1))
    net.add(layers.Activation("tanh", "tanh"))
    longer = net.add(layers.Conv2D("longer", 3, 3))
    joined = net.add(layers.Merge("joined"), [short, longer])
    both = net.add(layers.Concat("both", 1), [joined, (split, 2)])
    flat = net.add(layers.Flatten("flat"), both)
    other = net.add(layers.Reshape("other", (-1,)), image)
    everything = net.add(layers.Concat("everything", 1), [flat, vector, other])
    wide = net.add(layers.Dense("wide", 3), everything)
    first = net.add(layers.Dense("first", 4), wide)
    net.add(layers.Upsampling2D("up", 2), both)
    net.add(layers.GlobalAvgPooling2D("pooled"))
    net.add(layers.Dense("narrow", 3))
    net.add(layers.L2Norm("unit"))
    second = net.add(layers.Dense("again", 4).share_parameters(first))
    net.add(layers.Multiply("product"), [first, second])
    net.add(layers.Dense("end", 2))
    return net


def attention() -> FeedForwardNet:
    net = FeedForwardNet(seed=3)
    words = net.add(layers.Embedding("words", 9, 6, input_sample_shape=(5,)), [])
    memory = net.add(layers.Dummy("memory", (4, 8)), [])
    attended = net.add(layers.MultiHeadAttention("self", 2, 4, True), words)
    net.add(layers.Merge("sum"), [words, attended])
    x = net.add(layers.LayerNormalization("norm of sum"))
    read = net.add(layers.MultiHeadAttention("read", 3, use_bias=False), [x, memory])
    x = net.add(layers.Merge("sum of both"), [x, read])
    grouped = net.add(layers.MultiHeadAttention("grouped", 4, 3, kv_heads=2), x)
    net.add(layers.Merge("sum of all"), [x, grouped])
    net.add(layers.LayerNormalization("norm"))
    net.add(layers.TiedDense("scores", words))
    return net


def nested() -> FeedForwardNet:
    innermost = [layers.Dense("a", 6), layers.Activation("act", "tanh"), layers.Dense("b", 2)]
    inner = [layers.Dense("a", 4), layers.Dropout("drop", 0.2), layers.Sequential("inner", innermost)]
    step = [layers.Conv2D("conv", 3, 2, 1, "valid"), layers.Flatten("flat"), layers.Dense("dense", 5)]
    return net_of(
        layers.TimeDistributed("images", layers.Sequential("step", step), input_sample_shape=(4, 2, 3, 5)),
        layers.TimeDistributed("each", layers.Dense("dense", 3)),
        layers.Bidirectional("both", layers.LSTM("lstm", 2, return_sequences=True)),
        layers.Sequential("outer", inner),
        layers.Dense("out", 7),
    )


NETS: dict[str, Callable[[], FeedForwardNet]] = {
    "dense": lambda: net_of(
        layers.Dense("in", 5, input_sample_shape=(3,)),
        layers.Activation("relu"),
        layers.Dropout("drop", 0.3),
        layers.Dense("out", 4, use_bias=False),
        layers.Softmax("soft"),
    ),
    "images": lambda: net_of(
        layers.Conv2D("conv", 6, (3, 5), input_sample_shape=(2, 9, 8)),
        layers.BatchNormalization("norm"),
        layers.Activation("relu"),
        layers.MaxPooling2D("max", (2, 1), (2, 1), "valid"),
        layers.Conv2D("grouped", 4, 3, (1, 2), "valid", groups=2, use_bias=False),
        layers.AvgPooling2D("mean", 2, 1, "valid"),
        layers.Flatten("flat"),
        layers.Dropout("drop"),
        layers.Dense("first", 7),
        layers.Dense("second", 3),
    ),
    "depthwise": lambda: depthwise_by(
        layers.DepthwiseConv2D("conv", (2, 3), 1, "valid", depth_multiplier=2, input_sample_shape=(3, 5, 6))
    ),
    "grouped": lambda: net_of(
        layers.Conv2D("conv", 6, (2, 3), 1, "valid", groups=3, input_sample_shape=(3, 5, 6)),
        layers.DepthwiseConv2D("depthwise", 2, 1, "valid"),
        layers.Conv2D("each", 6, 1, groups=6, use_bias=False),
        layers.Reshape("as a sequence", (6, 9)),
        layers.Conv1D("long", 12, 3, 1, "valid", groups=6),
        layers.Flatten("flat"),
        layers.Dense("out", 4),
    ),
    "sequences": lambda: net_of(
        layers.Conv1D("conv", 6, 3, groups=2, dilation=2, input_sample_shape=(4, 19)),
        layers.BatchNormalization("norm"),
        layers.MaxPooling1D("max", 2, 1, "valid"),
        layers.Conv1D("depthwise", 6, 5, 1, "valid", groups=6),
        layers.AvgPooling1D("mean", 3, 2, "valid"),
        layers.LayerNormalization("over all", 1),
        layers.Flatten("flat"),
        layers.Dense("out", 3),
    ),
    "branches": branches,
    "recurrent": lambda: net_of(
        layers.Embedding("words", 9, 4, mask_zero=True, input_sample_shape=(7,)),
        layers.LSTM("lstm", 6, return_sequences=True),
        layers.GRU("gru", 5, return_sequences=True),
        layers.SimpleRNN("rnn", 4, use_bias=False, return_sequences=True),
        layers.Bidirectional("both", layers.GRU("cho", 3, return_sequences=True, reset_after=False)),
        layers.LSTM("in one", 2, bidirectional=True, merge="mul"),
        layers.RMSNormalization("norm", epsilon=1e-5),
        layers.Dense("out", 3),
    ),
    "attention": attention,
    "nested": nested,
    "everyday": lambda: net_of(
        layers.Rescaling("half", 0.5, 0.1, input_sample_shape=(2, 4, 5)),
        layers.Conv2DTranspose("up", 4, (3, 2), 2, "valid"),
        layers.PReLU("slopes"),
        layers.GroupNormalization("groups", 2),
        layers.SpatialDropout2D("drop"),
        layers.Conv2DTranspose("up to the double", 3, 3, 2, pad=(0, 1, 0, 1)),
        layers.ZeroPadding2D("zeros", (1, 0, 2, 3)),
        layers.SeparableConv2D("separable", 6, (3, 5), depth_multiplier=2),
        layers.PReLU("each", ()),
        layers.Cropping2D("crop", (0, 2, 1, 0)),
        layers.DepthwiseConv2D("depthwise", (2, 3), 1, "valid", use_bias=False),
        layers.GaussianNoise("noise", 0.3),
        layers.MaxPooling2D("max", 7, 7, "valid"),
        layers.Flatten("flat"),
        layers.PReLU("of features"),
        layers.Dense("out", 3),
    ),
    "pooled": lambda: net_of(
        layers.SpatialDropout1D("drop", input_sample_shape=(3, 5)),
        layers.Conv1DTranspose("up", 4, 3, 2, "valid", use_bias=False),
        layers.GroupNormalization("instances", None),
        layers.Conv1DTranspose("more", 6, 2, 1, "valid"),
        layers.PReLU("slopes", (2,)),
        layers.GlobalMaxPooling1D("max"),
        layers.PReLU("one", (1,)),
        layers.Dense("out", 3),
    ),
    # A model whose class we lack: it is read alone.
    "deep": lambda: net_of(
        layers.Conv1D("conv", 8, 5, 1, "valid", groups=4, input_sample_shape=(4, 9)),
        layers.Flatten("flat"),
        layers.Dense("out", 3),
    ),
    "strided": lambda: net_of(
        layers.Conv2D("by two", 4, 3, 2, padding="same", input_sample_shape=(2, 13, 10)),
        layers.MaxPooling2D("max", 2, 1, padding="same"),
        layers.DepthwiseConv2D("even", 2, padding="same"),
        layers.Conv2DTranspose("up", 3, 4, 3, padding="same"),
        layers.SeparableConv2D("separable", 3, 3, 2, padding="same"),
        layers.Conv2DTranspose("beyond the kernel", 2, 2, 3, padding="valid"),
        layers.MaxPooling2D("half", padding="same"),
        layers.AvgPooling2D("mean", 3, 1, padding="same"),
        layers.Flatten("flat"),
        layers.Dense("out", 3),
    ),
    "causal": lambda: net_of(
        layers.Conv1D("causal", 4, 3, padding="causal", input_sample_shape=(3, 11)),
        layers.Conv1D("by two", 4, 2, 2, padding="same"),
        layers.Conv1DTranspose("up", 3, 3, 2, padding="same"),
        layers.MaxPooling1D("max", 3, padding="same"),
        layers.Flatten("flat"),
        layers.Dense("out", 2),
    ),
}

#: Keras takes sequences and ids as we do; all others with channels last, behind the steps where there are some.
ALIKE = {"recurrent", "attention"}
STEPS = {"nested"}


# ---- what Keras wrote and predicted, for values that are made anew; `python keras_models.py` writes it

RECORDED = Path(__file__).with_name("keras_recorded.json")

#: Ids below this are the inputs of one axis.
WORDS = 9


def recorded_models() -> dict[str, Any]:
    """{name: names of groups, shapes of arrays, output}."""
    found = json.loads(RECORDED.read_text())
    del found["keras"]
    return found


def recorded_values(place: str, shape: tuple[int, ...]) -> np.ndarray:
    """Of the array at this place of any model's file; a variance is no less than 0."""
    low = 0.5 if "batch_normalization" in place else -1
    return np.random.default_rng(crc32(place.encode())).uniform(low, 1, shape).astype("float32")


def recorded_inputs(name: str, number: int, shape: tuple[int, ...]) -> np.ndarray:
    """Three samples for an input of Keras's model of this name."""
    rng = np.random.default_rng(crc32(f"{name} {number}".encode()))
    return rng.integers(0, WORDS, (3, *shape)) if len(shape) == 1 else rng.normal(size=(3, *shape)).astype("float32")


def write_recorded(name: str, path: Path) -> np.ndarray:
    """The file of a model; returns its output for `inputs`."""
    model = recorded_models()[name]
    with h5py.File(path, "w") as file:
        for place, text in model["names"].items():
            file.create_group(place).attrs["name"] = text
        for place, shape in model["arrays"].items():
            file[place] = recorded_values(place, tuple(shape))
    return np.array(model["output"])


def predicted(name: str, net: FeedForwardNet) -> np.ndarray:
    """What a net of ours makes of the inputs of Keras's model of this name, with channels where we have them."""
    given = {}
    for number, (called, shape) in enumerate(net.input_shapes().items()):
        if name in ALIKE or len(shape) == 1:
            given[called] = recorded_inputs(name, number, shape)
        else:
            first = int(name in STEPS)
            last = (*shape[:first], *shape[first + 1 :], shape[first])
            given[called] = np.moveaxis(recorded_inputs(name, number, last), -1, 1 + first)
    return to_numpy(net.predict(given if len(given) > 1 else next(iter(given.values()))))
