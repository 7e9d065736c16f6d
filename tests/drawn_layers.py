"""Every layer with every option, drawn at random: what `test_random_nets` puts before activations and pooling."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from singa_lite import FeedForwardNet, Tensor, autograd, layers
from singa_lite.device import Device
from singa_lite.errors import ShapeError
from singa_lite.layer import Layer

Options = dict[str, Sequence[Any]]

#: Samples have at most so many elements, so that a net takes milliseconds.
MOST = 600
FLAG = (False, True)
RATES = (0.0, 0.4)
EPSILONS = (1e-5, 0.1)
INITIAL: Options = {"weight_init": ("glorot_uniform", "he_normal", 0.1), "bias_init": (0.0, "uniform", 0.2)}
FACTORS: Options = {"gamma_init": (1.0, "uniform"), "beta_init": (0.0, 0.3)}
#: Options of windows along sequences and over images. border_mode "valid", pad and padding exclude each other.
ALONG: Options = {
    "kernel": (1, 2, 3),
    "stride": (1, 2),
    "border_mode": ("same", "valid"),
    "pad": (None, 1, (0, 1)),
    "padding": (None, "same", "valid"),
}
OVER: Options = {
    "kernel": (1, 2, 3, (1, 3)),
    "stride": (1, 2, (2, 1)),
    "border_mode": ("same", "valid"),
    "pad": (None, 1, (1, 0), (0, 1, 1, 0)),
    "padding": (None, "same", "valid"),
}
ACTIVATED: Options = {**INITIAL, "activation": (None, "relu", "tanh")}
FILTERS: Options = {**ACTIVATED, "use_bias": FLAG, "nb_kernels": (1, 4, 6)}
GROUPED: Options = {**FILTERS, "groups": (1, 3)}
RECURRENT: Options = {
    "hidden_size": (1, 3),
    "dropout": RATES,
    "num_stacks": (1, 2),
    "input_mode": ("linear",),
    "bidirectional": FLAG,
    "merge": ("concat", "sum", "mul", "ave"),
    "return_sequences": (True, True, False),
    "stateful": FLAG,
    "batch_size": (None, 4),
    "use_bias": FLAG,
    "weight_init": (None, "glorot_uniform"),
    "recurrent_init": (None, "uniform"),
    "bias_init": (None, 0.1),
}
GATES: Options = {"recurrent_activation": ("sigmoid", "hard_sigmoid")}


def small_net(net: FeedForwardNet, width: int) -> FeedForwardNet:
    """A net of samples (3, width), to be a layer of another net."""
    made = FeedForwardNet(seed=3, device=net.device)
    made.add(layers.Activation("first", "relu", input_sample_shape=(3, width)))
    made.add(layers.MaxPooling1D("second", 2, 1))
    return made


def inner() -> list[Layer]:
    """Layers to hold that keep the shape of a sample."""
    return [layers.Activation("first", "tanh"), layers.RMSNormalization("second")]


def entry(net: FeedForwardNet, shape: tuple[int, ...]) -> Layer:
    """A new input of the net."""
    return net.add(layers.Dummy(input_sample_shape=shape), [])


def twice(x: Tensor) -> list[Tensor]:
    """A function of two outputs."""
    return [autograd.tanh(x), x]


def tied(net: FeedForwardNet) -> layers.Embedding:
    """An embedding that is in the net, of vectors of 8 features, and what is made of them."""
    made = net.add(layers.Embedding(num_embeddings=5, dim=8), entry(net, (2,)))
    net.add(layers.Dense(num_output=2), net.add(layers.Flatten(), made))
    return made


#: Of attention in its newer forms.
HEADS: Options = {
    "rotary_base": (1e4, 7.0),
    "rotary_scaling": (None, {"rope_type": "linear", "factor": 3.0}),
    "qkv_bias": (None, True, False),
    "query_key_norm": FLAG,
    "window": (None, 2),
    "packed": (False,),
    "epsilon": EPSILONS,
}

#: {layer: {option: values to draw from}}, and each option once alone. A function makes a value anew from the net.
TABLE: dict[str, Options] = {
    "Activation": {"mode": tuple(layers.activation.MODES), "slope": (None, 0.3), "alpha": (None, 0.7)},
    "AvgPooling1D": {**ALONG, "count_pad": FLAG, "ceil_mode": FLAG},
    "AvgPooling2D": {**OVER, "count_pad": FLAG, "ceil_mode": FLAG},
    "BatchNormalization": {"momentum": (0.1, 0.9), "epsilon": EPSILONS, **FACTORS},
    "Bidirectional": {
        "layer": (lambda net: layers.GRU("r", 2, return_sequences=True), lambda net: layers.LSTM("r", 2)),
        "merge": RECURRENT["merge"],
    },
    "Concat": {"axis": (1, -1)},
    "Conv1D": {**ALONG, **GROUPED, "dilation": (1, 2), "padding": (None, "same", "valid", "causal")},
    "Conv1DTranspose": {**ALONG, **GROUPED, "dilation": (1, 2), "output_padding": (None, 0, 1)},
    "Conv2D": {**OVER, **GROUPED, "dilation": (1, (1, 2))},
    "Conv2DTranspose": {**OVER, **GROUPED, "dilation": (1, (1, 2)), "output_padding": (None, 0, (0, 1))},
    "Cropping2D": {"crop": (1, (0, 1), (0, 1, 1, 0))},
    "Dense": {"num_output": (3, 8), "use_bias": FLAG, "weight_format": ("float",), **ACTIVATED},
    "DepthwiseConv2D": {**OVER, **ACTIVATED, "use_bias": FLAG, "depth_multiplier": (1, 2), "dilation": (1, (1, 2))},
    "Dropout": {"p": RATES},
    "Dummy": {},
    "Embedding": {
        "weight_format": ("float",),
        "num_embeddings": (7, 9),
        "dim": (3, 8),
        "padding_idx": (None, 0, 2),
        "mask_zero": FLAG,
        "weight_init": INITIAL["weight_init"],
    },
    "Flatten": {"axis": (1, 2, -1)},
    "GRU": {**RECURRENT, **GATES, "reset_after": FLAG},
    "GaussianNoise": {"std": (0.0, 0.3)},
    "GlobalAvgPooling1D": {},
    "GlobalAvgPooling2D": {},
    "GlobalMaxPooling1D": {},
    "GlobalMaxPooling2D": {},
    "GroupNormalization": {"groups": (1, 2, None), "epsilon": EPSILONS, **FACTORS},
    "L2Norm": {"epsilon": EPSILONS},
    "LRN": {"size": (3, 5), "alpha": (1.0, 0.5), "beta": (0.75, 0.5), "mode": ("cross_channel",), "k": (1.0, 2.0)},
    "LSTM": {**RECURRENT, **GATES},
    "Lambda": {"function": (autograd.tanh, twice)},
    "LayerNormalization": {"axis": (1, -1), "epsilon": EPSILONS, **FACTORS},
    "LearnedPositions": {"max_length": (None, 12), "weight_init": INITIAL["weight_init"]},
    "MaxPooling1D": {**ALONG, "ceil_mode": FLAG},
    "MaxPooling2D": {**OVER, "ceil_mode": FLAG},
    "Merge": {},
    "MultiHeadAttention": {
        "weight_format": ("float",),
        "heads": (1, 2),
        "head_size": (None, 4),
        "causal": FLAG,
        "dropout": RATES,
        "kv_heads": (None, 1),
        "use_bias": FLAG,
        "rotary": FLAG,
        **HEADS,
        **INITIAL,
    },
    "Multiply": {},
    "Net": {"net": (lambda net: small_net(net, 8), lambda net: small_net(net, 6))},
    "Normalization": {"mean": (0.5, (1.0, -1.0, 0.5)), "variance": (2.0, (0.5, 1.0, 3.0))},  # neither waits for `adapt`
    "PReLU": {"shared_axes": (None, (), (1,)), "alpha_init": (0.25, "uniform")},
    "PaddingMask": {"padding_idx": (0, 2)},
    "Permute": {"axes": ((1,), (2, 1), (3, 1, 2))},
    "RMSNormalization": {"epsilon": EPSILONS, "gamma_init": FACTORS["gamma_init"]},
    "Rescaling": {"scale": (0.5, -2.0), "offset": (0.0, 0.3)},
    "Reshape": {"shape": ((-1,), (2, -1), (-1, 2), (2, -1, 2))},
    "Residual": {"layers": (lambda net: inner(), lambda net: inner()[1:])},
    "SeparableConv2D": {**OVER, **FILTERS, "depth_multiplier": (1, 2), "dilation": (1, (1, 2))},
    "Sequential": {"layers": (lambda net: inner(), lambda net: inner()[:1])},
    "SimpleRNN": {**RECURRENT, "activation": ("tanh", "relu")},
    "SinusoidalPositions": {"base": (1e4, 10.0)},
    "Slice": {"axis": (1, -1), "slice_point": ([1], [1, 2])},
    "Softmax": {"axis": (1, -1)},
    "SpatialDropout1D": {"p": RATES},
    "SpatialDropout2D": {"p": RATES},
    "Split": {"num_output": (1, 2)},
    "SwiGLU": {"num_output": (3, 8), "weight_format": ("float",), "use_bias": FLAG, **INITIAL},
    "TextStarts": {},
    "TiedDense": {"embedding": (tied,)},
    "TimeDistributed": {"layer": (lambda net: layers.Dense("d", 4), lambda net: layers.Conv1D("c", 2))},
    "TransformerBlock": {
        "weight_format": ("float",),
        "heads": (1, 2),
        "causal": FLAG,
        "hidden_size": (None, 5),
        "dropout": RATES,
        "activation": ("gelu", "relu", "swiglu"),
        "normalize_first": FLAG,
        "norm": ("layer", "rms"),
        "hidden_dropout": RATES,
        "head_size": (None, 4),
        "kv_heads": (None, 1),
        "rotary": FLAG,
        **HEADS,
        "use_bias": FLAG,
        **INITIAL,
    },
    "Upsampling2D": {"factor": (1, 2, (1, 2))},
    "ZeroPadding2D": {"pad": (1, (0, 1), (0, 1, 1, 0))},
}

#: Of how many inputs a layer takes; those not here take one.
INPUTS = {"Merge": (2, 3), "Multiply": (2,), "Concat": (2, 3), "MultiHeadAttention": (1, 1, 2)}
#: What is never left out, though it has a default.
NEEDED = {("Normalization", "mean"), ("Normalization", "variance")}
#: Shapes of an input's samples; extents are unequal, so that no two axes can be mixed up without a word.
SHAPES = ((8,), (3, 8), (3, 8), (3, 6), (3, 5, 6))
MODES = ("relu", "relu", "relu6", *TABLE["Activation"]["mode"])
POOLINGS = tuple(kind for kind in TABLE if "Pooling" in kind)
#: (layer, option, which of its values): all that was drawn and taken.
Seen = set[tuple[str, str, int]]


def options_of(kind: str) -> set[str]:
    """The options that the layer's constructor has."""
    parameters = inspect.signature(getattr(layers, kind)).parameters.values()
    named = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    return named - {"name", "input_sample_shape"}


def drawn(choose: random.Random, kind: str, seen: Seen, share: float) -> tuple[dict[str, Any], Seen]:
    """Options for a layer, values of the table that were not seen first; they may not fit together.

    share: of the options with a default, how many are given.
    """
    parameters, picked = inspect.signature(getattr(layers, kind)).parameters, {}
    for name, values in TABLE[kind].items():
        needed = parameters[name].default is inspect.Parameter.empty or (kind, name) in NEEDED
        if needed or choose.random() < share:
            places = range(len(values))
            fresh = [place for place in places if (kind, name, place) not in seen]
            picked[name] = choose.choice(fresh if fresh and choose.random() < 0.7 else places)
    values = {name: TABLE[kind][name][place] for name, place in picked.items()}
    return values, {(kind, name, place) for name, place in picked.items()}


def unseen(kind: str, seen: Seen) -> Seen:
    """The layer's values that are in no net yet."""
    return {(kind, name, place) for name, values in TABLE[kind].items() for place in range(len(values))} - seen


def add(net: FeedForwardNet, choose: random.Random, kind: str, src: Any, seen: Seen, share: float) -> Layer:
    """A layer of this kind, in the net. ShapeError or ValueError for options that do not fit.

    seen: takes in what was drawn, where it was taken.
    """
    values, picked = drawn(choose, kind, seen, share)
    made = {name: v(net) if callable(v) and name != "function" else v for name, v in values.items()}
    layer = net.add(getattr(layers, kind)(**made), src)
    seen |= picked
    return layer


def tried(attempt: Callable[[float], Any], what: str) -> Any:
    """What the first attempt gives whose options fit. Each is told the share of options to give, at last few."""
    for share in (0.9,) * 60 + (0.6,) * 60 + (0.3,) * 200:
        try:
            return attempt(share)
        except (ShapeError, ValueError):
            continue
    raise AssertionError(f"{what}: no options were taken")


def random_chain(seed: int, kind: str, seen: Seen, on: Device | None = None) -> FeedForwardNet:
    """A net of a layer of this kind, and behind each of its outputs an activation and a pooling, in either order."""
    choose = random.Random(seed)

    def begun(share: float) -> tuple[FeedForwardNet, Layer]:
        net, shape = FeedForwardNet(seed=seed, device=on), choose.choice(SHAPES)
        inputs = [entry(net, shape) for _ in range(choose.choice(INPUTS.get(kind, (1,))))]
        return net, add(net, choose, kind, inputs, seen, share)

    net, layer = tried(begun, kind)
    if kind == "TextStarts":  # which gives whole numbers, for attention alone
        x = entry(net, (*layer.output_sample_shapes[0], 4))
        layer = net.add(layers.MultiHeadAttention(heads=2, causal=True, packed=True), [x, layer])
    for place in range(len(layer.output_sample_shapes)):
        end = _pooled(net, choose, layer, place, seen)
        net.add(layers.Dense(num_output=2), net.add(layers.Flatten(), end))
    return net


def _pooled(net: FeedForwardNet, choose: random.Random, layer: Layer, place: int, seen: Seen) -> Layer:
    """Activations and poolings behind one of a layer's outputs, which is perhaps given another shape on the way."""
    end: Any = (layer, place)
    axes = len(layer.output_sample_shapes[place])
    if axes not in (2, 3) or choose.random() < 0.4:
        if choose.random() < 0.5:
            end = net.add(layers.Activation(mode=choose.choice(MODES)), end)
        end = net.add(layers.Reshape(shape=choose.choice(((1, -1), (1, 1, -1)))), end)
        axes = len(end.get_output_sample_shape())
    while axes > 1:
        end = net.add(layers.Activation(mode=choose.choice(MODES)), end)
        kinds = [kind for kind in POOLINGS if kind.endswith(f"{axes - 1}D")]
        pooled = partial(_any, net, choose, kinds, end, seen)
        end = tried(pooled, "pooling")
        if choose.random() < 0.6:
            break
        axes = len(end.get_output_sample_shape())
    return end


def _any(net: FeedForwardNet, choose: random.Random, kinds: Sequence[str], src: Any, seen: Seen, share: float) -> Layer:
    return add(net, choose, choose.choice(kinds), src, seen, share)
