"""Each option of each public layer, set after recorded steps: the next step is that
of an object that was made with the new value, bit for bit, or there is an error and nothing has changed. Never silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import signature
from typing import Any

import numpy as np
import pytest

from contract.layer_cases import CASES, SEQUENCE, Case
from every_row import over_rows
from nets import bits, state_of
from singa_lite import FeedForwardNet, autograd, device, layers, loss, optimizer
from singa_lite.errors import GraphError

_POOLINGS = ("AvgPooling1D", "AvgPooling2D", "MaxPooling1D", "MaxPooling2D")

#: Layers whose base case would not show much.
MADE: dict[str, Case] = {
    "Activation": CASES["Activation:leaky_relu"],
    "Activation:elu": CASES["Activation:elu"],
    "AvgPooling1D": CASES["AvgPooling1D"],
    "Embedding": CASES["Embedding:padding"],
    "BatchNormalization": CASES["BatchNormalization:images"],
    "Bidirectional": CASES["Bidirectional:multiplied"],
    "Concat": Case(lambda: layers.Concat("c", 1), ((3, 4), (3, 4))),
    "LayerNormalization": Case(lambda: layers.LayerNormalization("l"), SEQUENCE),
    "GRU": CASES["GRU:reset before, both directions summed"],
    "LRN": CASES["LRN"],
    "LSTM": Case(lambda: layers.LSTM("r", 2, 0.4, 2, bidirectional=True, merge="sum"), ((3, 5),), batch=3),
    "SimpleRNN": CASES["SimpleRNN:relu, averaged"],
    "MultiHeadAttention": Case(
        lambda: layers.MultiHeadAttention("a", 2, 4, True, 0.4, rotary=True, window=2, query_key_norm=True), ((3, 8),)
    ),
    "Permute": Case(lambda: layers.Permute("p", (2, 1)), ((5, 5),)),
    "SpatialDropout1D": CASES["SpatialDropout1D"],
    "TransformerBlock": Case(
        lambda: layers.TransformerBlock(
            *("t", 2, True),
            **{"dropout": 0.2, "hidden_dropout": 0.3, "hidden_size": 3, "head_size": 4, "rotary": True},
        ),
        ((3, 8),),
    ),
    "Normalization": CASES["Normalization:vectors"],
    "PReLU": Case(lambda: layers.PReLU("p", (1,)), ((5, 5),)),
    "Flatten": Case(lambda: layers.Flatten("f"), ((1, 4, 5),)),
    "Embedding:ids": CASES["Embedding"],
    "Softmax": CASES["Softmax:channels"],
    **{f"{name}:{option}": CASES[name] for name in _POOLINGS for option in ("padding", "ceil")},
}

_WINDOW = {"kernel": 5, "stride": 4, "border_mode": "valid", "pad": 0, "padding": "valid"}
_FILTERS = {"weight_init": 0.5, "bias_init": 0.5, "use_bias": False}
_PRODUCTS = {**_FILTERS, "weight_format": "f16"}
_RECURRENT = {
    **{"hidden_size": 3, "num_stacks": 3, "bidirectional": False, "merge": "concat", "stateful": True},
    **{"input_mode": "skip", "recurrent_init": 0.5, **_FILTERS},
}
_ROTARY = {"rotary_base": 3.0, "rotary_scaling": {"rope_type": "linear", "factor": 5.0}}

#: {layer: {option: a value that a recorded net follows}}.
FOLLOWED: dict[str, dict[str, Any]] = {
    "Activation": {"slope": 0.05, "mode": "leaky_relu"},
    "Activation:elu": {"alpha": 0.5},
    "AvgPooling1D": {"kernel": 5, "pad": (0, 2), "count_pad": False, "ceil_mode": True},
    "AvgPooling2D": {"kernel": 5, "pad": (0, 2, 2, 0), "count_pad": False},
    **{f"{name}:padding": {"padding": "same"} for name in _POOLINGS},
    "BatchNormalization": {"momentum": 0.2, "epsilon": 0.3},
    "Bidirectional": {"merge": "sum"},
    "Concat": {"axis": -2},
    "Conv1D": {"activation": "tanh", "pad": (2, 0), "dilation": 2},
    "Conv2D": {"activation": "tanh", "pad": (2, 0, 0, 2), "dilation": (1, 2)},
    "Conv1DTranspose": {"activation": "tanh", "pad": (2, 0), "dilation": 2, "output_padding": 0},
    "Conv2DTranspose": {"activation": "tanh", "pad": (2, 0, 0, 2), "dilation": (1, 2), "output_padding": 0},
    "DepthwiseConv2D": {"activation": "tanh", "pad": (2, 0, 0, 2), "dilation": 2},
    "Dense": {"activation": "tanh"},
    "Dropout": {"p": 0.8},
    "Embedding": {"padding_idx": 0},
    "Embedding:ids": {"mask_zero": True},
    "Flatten": {"axis": -3},
    "GaussianNoise": {"std": 0.9},
    "GroupNormalization": {"groups": 4, "epsilon": 0.3},
    "GRU": {"merge": "ave", "reset_after": True, "recurrent_activation": "hard_sigmoid"},
    "L2Norm": {"epsilon": 0.5},
    "Lambda": {"function": autograd.tanh},
    "LayerNormalization": {"axis": 2, "epsilon": 0.3},
    "LRN": {"size": 3, "alpha": 0.7, "beta": 0.4, "k": 3.0},
    "LSTM": {"dropout": 0.8, "merge": "mul", "recurrent_activation": "hard_sigmoid"},
    "MaxPooling1D": {"kernel": 5, "pad": (0, 2), "ceil_mode": True},
    "MaxPooling2D": {"kernel": 5, "pad": (0, 2, 2, 0)},
    "MultiHeadAttention": {"dropout": 0.8, "window": 1, "epsilon": 0.7, **_ROTARY},
    "Normalization": {"mean": [5, 4, 3, 2, 1], "variance": 0.5},
    "PaddingMask": {"padding_idx": 3},
    "Permute": {"axes": (1, 2)},
    "RMSNormalization": {"epsilon": 0.7},
    "Rescaling": {"scale": 3.0, "offset": 0.9},
    "SeparableConv2D": {"activation": "tanh", "pad": (2, 0, 0, 2), "dilation": 2},
    "SimpleRNN": {"merge": "sum", "activation": "tanh"},
    "SinusoidalPositions": {"base": 3.0},
    "Softmax": {"axis": -1},
    "SpatialDropout1D": {"p": 0.8},
    "SpatialDropout2D": {"p": 0.8},
    "TransformerBlock": {
        "causal": False,
        "dropout": 0.7,
        "activation": "tanh",
        "hidden_dropout": 0.1,
        "epsilon": 0.5,
        **_ROTARY,
    },
    "ZeroPadding2D": {"pad": (2, 0, 0, 2)},
    "Cropping2D": {"crop": (2, 0, 0, 2)},
}

#: {layer: {option: a value that would want other parameters, state or shapes, or comes too late}}.
REFUSED: dict[str, dict[str, Any]] = {
    **{name: {"stride": 4, "border_mode": "valid"} for name in _POOLINGS},
    **{f"{name}:ceil": {"ceil_mode": True} for name in ("AvgPooling2D", "MaxPooling2D")},
    **{
        name: {**_WINDOW, "nb_kernels": 6, "groups": 2, **_FILTERS}
        for name in ("Conv1D", "Conv2D", "Conv1DTranspose", "Conv2DTranspose")
    },
    "DepthwiseConv2D": {**_WINDOW, "depth_multiplier": 2, **_FILTERS},
    "SeparableConv2D": {**_WINDOW, "nb_kernels": 6, "depth_multiplier": 3, **_FILTERS},
    "Activation": {"alpha": 2.0},
    "Activation:elu": {"mode": "tanh"},
    "BatchNormalization": {"gamma_init": 0.5, "beta_init": 0.5},
    "Bidirectional": {"layer": layers.GRU("r", 2)},
    "Cropping2D": {"crop": 2},
    "Dense": {"num_output": 6, **_PRODUCTS},
    "Embedding": {"num_embeddings": 12, "dim": 5, "weight_init": 0.5, "weight_format": "f16"},
    "Flatten": {"axis": 2},
    "GroupNormalization": {"groups": 3, "gamma_init": 0.5, "beta_init": 0.5},
    "GRU": {**_RECURRENT, "dropout": 0.3, "batch_size": 4, "return_sequences": False},
    "LSTM": {**_RECURRENT, "batch_size": 4, "return_sequences": True},
    "SimpleRNN": {**_RECURRENT, "dropout": 0.3, "batch_size": 4, "return_sequences": True},
    "LayerNormalization": {"axis": 1, "gamma_init": 0.5, "beta_init": 0.5},
    "LearnedPositions": {"max_length": 9, "weight_init": 0.5},
    "LRN": {"mode": "within_channel"},
    "MultiHeadAttention": {
        **{"heads": 1, "head_size": 2, "kv_heads": 1, "rotary": False, "dropout": 0.0, "causal": False},
        **{"qkv_bias": False, "query_key_norm": False, "packed": True, **_PRODUCTS},
    },
    "Net": {"net": FeedForwardNet()},
    "Normalization": {"mean": [1, 2]},
    "PReLU": {"shared_axes": (2,), "alpha_init": 0.5},
    "RMSNormalization": {"gamma_init": 0.5},
    "Reshape": {"shape": (3, 30)},
    "Slice": {"axis": 2, "slice_point": [2]},
    "Split": {"num_output": 2},
    "SwiGLU": {"num_output": 3, **_PRODUCTS},
    "TiedDense": {"embedding": layers.Embedding("other", 9, 4)},
    "TimeDistributed": {"layer": layers.Dense("other", 4)},
    "TransformerBlock": {
        **{"heads": 1, "hidden_size": 5, "norm": "rms", "dropout": 0.0, "hidden_dropout": 0.0, "activation": "swiglu"},
        **{"head_size": 2, "kv_heads": 1, "rotary": False, "normalize_first": False, **_PRODUCTS},
        **{"qkv_bias": False, "query_key_norm": True, "window": 2, "packed": True},
    },
    "Upsampling2D": {"factor": 3},
    "ZeroPadding2D": {"pad": 3},
}
KINDS = {name: kind for name, kind in vars(layers).items() if isinstance(kind, type)}
REFUSALS = (GraphError, ValueError, TypeError, AttributeError)
#: Of every layer; `layers` and `name` have setters of their own.
OF_ALL = {"name": "other", "input_sample_shape": (2, 2), "layers": []}


def options(kind: type) -> list[str]:
    parameters = list(signature(kind.__init__).parameters.values())[1:]
    return [each.name for each in parameters if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]


def case_of(key: str) -> Case:
    name = key.partition(":")[0]
    return MADE.get(key) or next(case for other, case in CASES.items() if other.partition(":")[0] == name)


def net_of(case: Case, layer: Any, graph: bool) -> FeedForwardNet:
    """The layer behind others that train, where it takes numbers, and before a loss for each of its outputs."""
    dtype = "float64" if isinstance(layer, layers.Net) else "float32"
    net = FeedForwardNet(device=device.cpu() if dtype == "float64" else device.new_cpu(), seed=3, dtype=dtype)
    fed = [net.add(layers.Dummy(f"in{n}", shape), []) for n, shape in enumerate(case.shapes)]
    if isinstance(layer, layers.TiedDense):
        table = layers.Embedding("e", 9, 4)
        net.add(table, net.add(layers.Dummy("ids", (3,)), []))
        net.add(layers.Flatten("rest"), table)
        layer = layers.TiedDense("t", table)
    if not takes_ids(layer) and case.differentiable:
        fed = [net.add(layers.Dense(f"before{n}", case.shapes[n][-1]), each) for n, each in enumerate(fed)]
    net.add(layer, fed)
    if isinstance(layer, layers.TextStarts):  # which gives whole numbers, for attention alone
        x = net.add(layers.Dense("rows", 4), net.add(layers.Dummy("x", (*case.shapes[0], 4)), []))
        layer = net.add(layers.MultiHeadAttention("packed", 2, causal=True, packed=True), [x, layer])
    ends = [net.add(layers.Dense(f"end{n}", 2), (layer, n)) for n in range(len(layer.output_sample_shapes))]
    ends += [net.layers["rest"]] if "rest" in net.layers else []
    losses = {end.name: loss.SquaredError() for end in ends}
    net.compile(
        optimizer.SGD(0.05), losses if len(losses) > 1 else next(iter(losses.values())), graph=graph, fuse=False
    )
    return net


def takes_ids(layer: Any) -> bool:
    return layer.input_ids is not None or isinstance(layer, layers.PaddingMask)


def batches(net: FeedForwardNet, case: Case, ids: bool) -> Iterator[tuple[Any, Any]]:
    rng = np.random.default_rng(7)
    while True:
        x = {}
        for name, shape in net.input_shapes().items():
            as_ids = (ids and name != "x") or name == "ids"
            drawn = rng.integers(0, 5, (case.batch, *shape)) if as_ids else rng.uniform(-2, 2, (case.batch, *shape))
            x[name] = drawn.astype(np.int64 if as_ids else net.dtype)
        y = {name: rng.uniform(-1, 1, (case.batch, *net.output_shapes(name)[0])) for name in net.output_names()}
        y = {name: each.astype(net.dtype) for name, each in y.items()}
        yield x, y if len(y) > 1 else next(iter(y.values()))


def step(net: FeedForwardNet, batch: tuple[Any, Any]) -> list[Any]:
    """A training step and a prediction, and what they leave."""
    found = [bits(net.train_one_batch(*batch)[0])]
    given = net.predict_one_batch(batch[0])
    found += [bits(each) for each in (given.values() if isinstance(given, dict) else [given])]
    return [*found, state_of(net)]


def made(case: Case, layer: Any = None, graph: bool = False) -> tuple[FeedForwardNet, Any, Iterator[tuple[Any, Any]]]:
    """graph: whether steps are recorded, with equal bits."""
    layer = case.make() if layer is None else layer
    net = net_of(case, layer, graph)
    stream = batches(net, case, takes_ids(layer))
    return net, net.layers[layer.name], stream


def follows(key: str, option: str, value: Any) -> None:
    case = case_of(key)
    net, layer, stream = made(case, graph=True)
    unchanged, _, _ = made(case)
    for _ in range(2):
        batch = next(stream)
        net.train_one_batch(*batch)
        unchanged.train_one_batch(*batch)
    before, batch = state_of(net), next(stream)
    assert before == state_of(unchanged)
    setattr(layer, option, value)
    given = {**case.make().given_arguments, option: value}
    twin, _, _ = made(case, type(layer).construct(**given))  # with none of Keras's defaults
    for name, tensor in {**net.parameters(), **net.states()}.items():
        held = twin.parameters() | twin.states()
        if not isinstance(layer, layers.Normalization | layers.SinusoidalPositions) or name not in net.states():
            held[name].copy_from_numpy(np.asarray(tensor))
    twin.optimizer.restore_step(net.optimizer.step)
    assert {k: v for k, v in state_of(net).items() if layer.name not in k} == {
        k: v for k, v in before.items() if layer.name not in k
    }
    found = step(net, batch)
    assert found == comparable(step(twin, batch), found)
    assert key == "Lambda" or net.config()["layers"] == twin.config()["layers"]
    assert (found != step(unchanged, batch)) or (key, option) in SAME, "the change makes a difference"


def comparable(found: list[Any], like: list[Any]) -> list[Any]:
    """But for how many updates the optimizer has counted of each parameter."""
    counts = {name: value for name, value in like[-1].items() if name.endswith(": count")}
    return [*found[:-1], found[-1] | counts]


#: Values that stand for what was there.
SAME = {
    *(("Activation", "mode"), ("Concat", "axis"), ("Flatten", "axis"), ("LayerNormalization", "axis")),
    *(("Conv1DTranspose", "output_padding"), ("Conv2DTranspose", "output_padding"), ("Embedding:ids", "mask_zero")),
    *(("AvgPooling1D", "ceil_mode"), ("MaxPooling1D", "ceil_mode")),
}


def are_refused(key: str) -> None:
    """All that a layer cannot follow, one by one: nothing has changed, and nothing is recorded anew."""
    net, layer, stream = made(case_of(key), graph=True)
    step(net, next(stream))
    before, graph, config = state_of(net), net.training_graph, None if key == "Lambda" else net.config()
    for option, value in {**OF_ALL, **REFUSED.get(key, {})}.items():
        with pytest.raises(REFUSALS, match=rf"layer '{layer.name}'|{type(layer).__name__}"):
            setattr(layer, option, value)
            raise AssertionError(f"{option} was taken")
        assert state_of(net) == before
    assert key == "Lambda" or net.config() == config
    step(net, next(stream))
    assert net.training_graph is graph


def rows(table: dict[str, dict[str, Any]]) -> Iterable[tuple[str, tuple[Any, ...]]]:
    return ((f"{key} {name}={value!r:.40}", (key, name, value)) for key in table for name, value in table[key].items())


def test_no_option_of_a_layer_is_left_out():
    for name, kind in KINDS.items():
        known = {"name", "input_sample_shape", "layers"}
        for table in (FOLLOWED, REFUSED):
            known |= {option for key in table if key.partition(":")[0] == name for option in table[key]}
        assert not set(options(kind)) - known, name


def test_what_a_recorded_step_follows():
    over_rows(follows, rows(FOLLOWED))


def test_what_it_cannot_follow():
    over_rows(are_refused, ((key, (key,)) for key in {**KINDS, **REFUSED}))
