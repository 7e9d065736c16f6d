"""The table of layers: how to make each of them, and for which inputs. No exported layer may be missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from singa_lite import FeedForwardNet, autograd, device, layers
from singa_lite.device import Device
from singa_lite.layer.layer import Context, Layer

Arrays = Mapping[str, np.ndarray]
Evaluation = Callable[[Arrays, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Case:
    """One way of using one layer; its key is the class name, up to a colon if there is one.

    make: the layer, in no net yet. shapes: sample shapes of its inputs, all extents and the batch different.
    reach: inputs lie between -reach and reach. evaluation: {parameter and state names: values}, input -> output in
    evaluation mode, for a layer that differs there; None for one whose output is the same in both modes.
    differentiable: False for a layer that nothing is handed back through. placed: the layer for a dtype and a device,
    where it depends on these.
    """

    make: Callable[[], Layer]
    shapes: tuple[tuple[int, ...], ...]
    batch: int = 2
    reach: float = 2.0
    evaluation: Evaluation | None = None
    placed: Callable[[str, Device], Layer] | None = None
    differentiable: bool = True


def _batch_normalization(values: Arrays, x: np.ndarray) -> np.ndarray:
    def along(vector: np.ndarray) -> np.ndarray:
        return vector.reshape(-1, *(1,) * (x.ndim - 2))

    centered = x - along(values["running_mean"])
    deviation = np.sqrt(values["running_var"] + 1e-5)
    return along(values["gamma"]) * centered / along(deviation) + along(values["beta"])


def _same(values: Arrays, x: np.ndarray) -> np.ndarray:
    return x


def _small_net(dtype: str, device: Device | None = None) -> FeedForwardNet:
    """Two ways between its input and its output."""
    net = FeedForwardNet(dtype=dtype, device=device, seed=1)
    first = net.add(layers.Dense("first", 4, input_sample_shape=(5,)))
    second = net.add(layers.Activation("second", "tanh"))
    net.add(layers.Merge("sum"), [first, second])
    return net


def _attention_of_two_heads(values: Arrays, x: np.ndarray) -> np.ndarray:
    q, k, v = (np.stack(np.split(x @ values[f"{name}/weight"], 2, -1)) for name in ("query", "key", "value"))
    powers = np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    attended = powers / powers.sum(-1, keepdims=True) @ v
    return np.concatenate(list(attended), -1) @ values["output/weight"]


def _tied_head(dtype: str = "float32", on: Device | None = None) -> Layer:
    """By the table of an embedding of 9 ids, which is there."""
    embedding = layers.Embedding("e", 9, 4)
    embedding.prepare(((3,),), Context(on or device.cpu(), np.dtype(dtype), 5))
    return layers.TiedDense("t", embedding)


def _quantised_head(dtype: str = "float32", on: Device | None = None) -> Layer:
    """By the quantised table of an embedding of 9 ids, which is there."""
    embedding = layers.Embedding("e", 9, 32, weight_format="q8_0")
    embedding.prepare(((3,),), Context(on or device.cpu(), np.dtype(dtype), 5))
    return layers.TiedDense("t", embedding)


def _stacked_lstm(stacks: int, state: str) -> Evaluation:
    """The last output of a stacked LSTM from zero. state: one that the layer is to have."""

    def evaluate(values: Arrays, x: np.ndarray) -> np.ndarray:
        assert state in values
        for stack in range(stacks):
            w, u = (values[f"weight_{kind}_l{stack}"] for kind in ("ih", "hh"))
            bias = sum(values.get(f"bias_{kind}_l{stack}", 0) for kind in ("ih", "hh"))
            h = c = np.zeros((len(x), len(u)))
            outputs = []
            for step in x.swapaxes(0, 1):
                i, f, g, o = np.split(step @ w + h @ u + bias, 4, 1)
                c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
                h = np.tanh(c) / (1 + np.exp(-o))
                outputs.append(h)
            x = np.stack(outputs, 1)
        return x[:, -1]

    return evaluate


IMAGE = ((3, 5, 6),)
GROUPED = ((4, 5, 6),)
SEQUENCE = ((3, 7),)

CASES: dict[str, Case] = {
    "Dense": Case(lambda: layers.Dense("d", 4), ((5,),), batch=3),
    "Dense:no bias": Case(lambda: layers.Dense("d", 4, use_bias=False), ((5,),), batch=3),
    "Dense:activation": Case(lambda: layers.Dense("d", 4, activation="gelu"), ((5,),), batch=3),
    "Dense:softmax of sequences": Case(lambda: layers.Dense("d", 4, activation="softmax"), ((5, 6),), batch=3),
    "Dense:sequences": Case(lambda: layers.Dense("d", 4), ((5, 6),), batch=3),
    "Dense:three axes": Case(lambda: layers.Dense("d", 4, use_bias=False), ((3, 5, 6),)),
    "Embedding": Case(lambda: layers.Embedding("e", 9, 4), ((3,),)),
    "Embedding:padding": Case(lambda: layers.Embedding("e", 9, 4, 3), ((3, 5),)),
    "TiedDense": Case(_tied_head, ((3, 4),), placed=_tied_head),
    "LearnedPositions": Case(lambda: layers.LearnedPositions("p"), SEQUENCE),
    "LearnedPositions:more": Case(lambda: layers.LearnedPositions("p", 5), SEQUENCE),
    "SinusoidalPositions": Case(lambda: layers.SinusoidalPositions("p", 100.0), ((3, 8),)),
    "TextStarts": Case(lambda: layers.TextStarts("s"), ((3,),), differentiable=False),
    "RMSNormalization": Case(lambda: layers.RMSNormalization("r"), ((5,),), batch=3),
    "RMSNormalization:sequences": Case(lambda: layers.RMSNormalization("r", 0.1), SEQUENCE),
    "PaddingMask": Case(lambda: layers.PaddingMask("m", 4), ((3,),), differentiable=False),
    "Permute": Case(lambda: layers.Permute("p", (2, 1)), SEQUENCE),
    "Permute:three axes": Case(lambda: layers.Permute("p", (2, 3, 1)), IMAGE),
    "Conv2D": Case(lambda: layers.Conv2D("c", 4), IMAGE),
    "Conv2D:valid, pair of extents": Case(lambda: layers.Conv2D("c", 4, (2, 3), border_mode="valid"), IMAGE),
    "Conv2D:softmax": Case(lambda: layers.Conv2D("c", 4, activation="softmax"), IMAGE),
    "Conv2D:activation with an option": Case(
        lambda: layers.Conv2D("c", 4, 3, 2, "same", activation=layers.Activation(mode="elu", alpha=0.7)), IMAGE
    ),
    "Conv2D:stride": Case(lambda: layers.Conv2D("c", 4, 3, (2, 3)), IMAGE),
    "Conv2D:four pads": Case(lambda: layers.Conv2D("c", 4, (3, 2), 2, pad=(2, 0, 1, 3)), IMAGE),
    "Conv2D:pair of pads": Case(lambda: layers.Conv2D("c", 4, (1, 4), pad=(0, 2)), IMAGE),
    "Conv2D:dilation": Case(lambda: layers.Conv2D("c", 4, 3, dilation=(1, 2)), IMAGE),
    "Conv2D:stride and dilation": Case(lambda: layers.Conv2D("c", 4, 3, 2, dilation=2), IMAGE),
    "Conv2D:groups": Case(lambda: layers.Conv2D("c", 6, 3, groups=2), GROUPED, batch=3),
    "Conv2D:groups, stride, no bias": Case(
        lambda: layers.Conv2D("c", 6, (3, 2), (2, 1), pad=1, use_bias=False, groups=2), GROUPED, batch=3
    ),
    "Conv2D:depthwise": Case(lambda: layers.Conv2D("c", 4, 3, groups=4), GROUPED, batch=3),
    "Conv2D:depthwise, two a channel": Case(lambda: layers.Conv2D("c", 8, 3, 2, groups=4), GROUPED, batch=3),
    "Conv2D:pointwise": Case(lambda: layers.Conv2D("c", 4, 1), IMAGE),
    "Conv2D:Keras's padding": Case(lambda: layers.Conv2D("c", 4, (2, 3), (1, 2), padding="same"), IMAGE),
    "Conv1D": Case(lambda: layers.Conv1D("c", 4), SEQUENCE),
    "Conv1D:causal": Case(lambda: layers.Conv1D("c", 4, 3, 2, padding="causal", dilation=2), SEQUENCE),
    "Conv1D:stride, pads": Case(lambda: layers.Conv1D("c", 4, 4, 2, pad=(0, 3)), SEQUENCE),
    "Conv1D:dilation": Case(lambda: layers.Conv1D("c", 5, 3, dilation=2, use_bias=False), SEQUENCE),
    "Conv1D:groups, valid": Case(lambda: layers.Conv1D("c", 6, 2, border_mode="valid", groups=2), ((4, 7),), batch=3),
    "Conv2DTranspose": Case(lambda: layers.Conv2DTranspose("t", 4), IMAGE),
    "Conv2DTranspose:activation": Case(lambda: layers.Conv2DTranspose("t", 4, activation="tanh"), IMAGE),
    "Conv2DTranspose:stride": Case(lambda: layers.Conv2DTranspose("t", 4, 3, (2, 3)), IMAGE),
    "Conv2DTranspose:valid, pair of extents, no bias": Case(
        lambda: layers.Conv2DTranspose("t", 2, (2, 3), 2, "valid", use_bias=False), IMAGE
    ),
    "Conv2DTranspose:four pads, output padding": Case(
        lambda: layers.Conv2DTranspose("t", 2, (3, 4), (3, 2), pad=(2, 0, 1, 3), output_padding=(2, 1)), IMAGE
    ),
    "Conv2DTranspose:groups, dilation": Case(
        lambda: layers.Conv2DTranspose("t", 6, (3, 2), (1, 2), pad=1, dilation=(2, 1), groups=2), GROUPED, batch=3
    ),
    "Conv2DTranspose:Keras's padding": Case(
        lambda: layers.Conv2DTranspose("t", 4, (2, 3), (3, 2), padding="same"), IMAGE
    ),
    "Conv1DTranspose": Case(lambda: layers.Conv1DTranspose("t", 4), SEQUENCE),
    "Conv1DTranspose:stride, pads, groups": Case(
        lambda: layers.Conv1DTranspose("t", 6, 4, 3, pad=(0, 2), output_padding=1, groups=2), ((4, 5),), batch=3
    ),
    "DepthwiseConv2D": Case(lambda: layers.DepthwiseConv2D("c"), IMAGE),
    "DepthwiseConv2D:two a channel": Case(
        lambda: layers.DepthwiseConv2D("c", (3, 2), 2, pad=1, use_bias=False, depth_multiplier=2), IMAGE
    ),
    "SeparableConv2D": Case(lambda: layers.SeparableConv2D("c", 4, depth_multiplier=2), IMAGE, reach=1.0),
    "SeparableConv2D:Keras's padding": Case(
        lambda: layers.SeparableConv2D("c", 4, 2, padding="same"), IMAGE, reach=1.0
    ),
    "ZeroPadding2D": Case(lambda: layers.ZeroPadding2D("z"), IMAGE),
    "ZeroPadding2D:four": Case(lambda: layers.ZeroPadding2D("z", (2, 0, 1, 3)), IMAGE),
    "Cropping2D": Case(lambda: layers.Cropping2D("c"), IMAGE),
    "Cropping2D:four": Case(lambda: layers.Cropping2D("c", (2, 0, 1, 3)), IMAGE),
    "GlobalMaxPooling2D": Case(lambda: layers.GlobalMaxPooling2D("p"), IMAGE),
    "GlobalMaxPooling1D": Case(lambda: layers.GlobalMaxPooling1D("p"), SEQUENCE),
    "GlobalAvgPooling1D": Case(lambda: layers.GlobalAvgPooling1D("p"), SEQUENCE),
    "PReLU": Case(lambda: layers.PReLU("p"), IMAGE),
    "PReLU:vectors": Case(lambda: layers.PReLU("p"), ((5,),), batch=3),
    "PReLU:each element": Case(lambda: layers.PReLU("p", ()), SEQUENCE),
    "PReLU:one for all": Case(lambda: layers.PReLU("p", (1, 2, 3)), IMAGE),
    "SpatialDropout1D": Case(lambda: layers.SpatialDropout1D("o"), ((7, 3),), batch=5, evaluation=_same),
    "SpatialDropout2D": Case(lambda: layers.SpatialDropout2D("o", 0.3), ((7, 2, 3),), batch=5, evaluation=_same),
    "SpatialDropout2D:none": Case(lambda: layers.SpatialDropout2D("o", 0), IMAGE),
    "GaussianNoise": Case(lambda: layers.GaussianNoise("n", 0.3), IMAGE, evaluation=_same),
    "GaussianNoise:none": Case(lambda: layers.GaussianNoise("n", 0), ((5,),), batch=3),
    "Rescaling": Case(lambda: layers.Rescaling("r", 0.7, -0.2), IMAGE),
    "Normalization": Case(lambda: layers.Normalization("n", 0.5, 4.0), IMAGE),
    "Normalization:vectors": Case(lambda: layers.Normalization("n", [1, 2, 3, 4, 5], 2.0), ((5,),), batch=3),
    "Lambda": Case(lambda: layers.Lambda("l", lambda x: x * x + 1), IMAGE),
    "Lambda:two inputs": Case(lambda: layers.Lambda("l", autograd.multiply), (SEQUENCE[0], SEQUENCE[0])),
    "Lambda:two outputs": Case(lambda: layers.Lambda("l", lambda x: [autograd.tanh(x), x]), SEQUENCE),
    "MaxPooling2D": Case(lambda: layers.MaxPooling2D("p"), IMAGE),
    "MaxPooling2D:valid": Case(lambda: layers.MaxPooling2D("p", 2, 2, "valid"), IMAGE),
    "MaxPooling2D:unequal pads": Case(lambda: layers.MaxPooling2D("p", (3, 2), 1, pad=(2, 1, 0, 1)), IMAGE),
    "MaxPooling2D:gaps": Case(lambda: layers.MaxPooling2D("p", (1, 2), (2, 3), "valid"), IMAGE),
    "MaxPooling2D:Keras's padding": Case(lambda: layers.MaxPooling2D("p", (2, 3), 2, padding="same"), IMAGE),
    "MaxPooling1D": Case(lambda: layers.MaxPooling1D("p"), SEQUENCE),
    "MaxPooling1D:unequal pads": Case(lambda: layers.MaxPooling1D("p", 4, 3, pad=(1, 2)), SEQUENCE),
    "AvgPooling2D": Case(lambda: layers.AvgPooling2D("p"), IMAGE),
    "AvgPooling2D:pads not counted": Case(lambda: layers.AvgPooling2D("p", count_pad=False), IMAGE),
    "AvgPooling2D:unequal pads": Case(lambda: layers.AvgPooling2D("p", (3, 2), 1, pad=(2, 1, 0, 1)), IMAGE),
    "AvgPooling2D:unequal pads not counted": Case(
        lambda: layers.AvgPooling2D("p", (3, 4), (2, 1), pad=(0, 2, 3, 1), count_pad=False), IMAGE
    ),
    "AvgPooling2D:valid": Case(lambda: layers.AvgPooling2D("p", 2, 2, "valid"), IMAGE),
    "AvgPooling2D:Keras's padding": Case(lambda: layers.AvgPooling2D("p", (2, 3), padding="same"), IMAGE),
    "AvgPooling1D": Case(lambda: layers.AvgPooling1D("p"), SEQUENCE),
    "MaxPooling2D:ceil mode": Case(lambda: layers.MaxPooling2D("p", (2, 3), (2, 3), pad=0, ceil_mode=True), IMAGE),
    "MaxPooling1D:ceil mode": Case(lambda: layers.MaxPooling1D("p", 3, 3, pad=(1, 0), ceil_mode=True), SEQUENCE),
    "AvgPooling2D:ceil mode": Case(lambda: layers.AvgPooling2D("p", 3, 2, pad=(1, 0, 0, 1), ceil_mode=True), IMAGE),
    "AvgPooling2D:ceil mode, pads not counted": Case(
        lambda: layers.AvgPooling2D("p", 3, (2, 4), pad=1, count_pad=False, ceil_mode=True), IMAGE
    ),
    "AvgPooling1D:ceil mode": Case(lambda: layers.AvgPooling1D("p", 2, 4, ceil_mode=True), SEQUENCE),
    "AvgPooling1D:pads not counted": Case(
        lambda: layers.AvgPooling1D("p", 4, 2, pad=(3, 0), count_pad=False), SEQUENCE
    ),
    "GlobalAvgPooling2D": Case(lambda: layers.GlobalAvgPooling2D("p"), IMAGE),
    "Upsampling2D": Case(lambda: layers.Upsampling2D("u"), IMAGE),
    "Upsampling2D:pair of factors": Case(lambda: layers.Upsampling2D("u", (3, 2)), IMAGE),
    "BatchNormalization:vectors": Case(
        lambda: layers.BatchNormalization("b"), ((4,),), batch=5, evaluation=_batch_normalization
    ),
    "BatchNormalization:sequences": Case(
        lambda: layers.BatchNormalization("b"), SEQUENCE, evaluation=_batch_normalization
    ),
    "BatchNormalization:images": Case(
        lambda: layers.BatchNormalization("b", 0.7), IMAGE, evaluation=_batch_normalization
    ),
    "LayerNormalization:last axis": Case(lambda: layers.LayerNormalization("l"), IMAGE),
    "LayerNormalization:two axes": Case(lambda: layers.LayerNormalization("l", 2), IMAGE),
    "LayerNormalization:whole samples": Case(lambda: layers.LayerNormalization("l", 1), IMAGE),
    "LayerNormalization:vectors": Case(lambda: layers.LayerNormalization("l", epsilon=0.1), ((5,),), batch=3),
    "GroupNormalization": Case(lambda: layers.GroupNormalization("g", 2), GROUPED, batch=3),
    "GroupNormalization:sequences": Case(lambda: layers.GroupNormalization("g", 1, epsilon=0.1), SEQUENCE),
    "GroupNormalization:instances": Case(lambda: layers.GroupNormalization("g", None), IMAGE),
    "LRN": Case(lambda: layers.LRN("l"), ((7, 2, 4),), batch=3),
    "LRN:vectors": Case(lambda: layers.LRN("l", 3, 0.5, 0.6, k=2.0), ((5,),), batch=3),
    "LRN:wider than the channels": Case(lambda: layers.LRN("l", 7, 2.0), IMAGE),
    "L2Norm": Case(lambda: layers.L2Norm("l"), ((5,),), batch=3),
    "L2Norm:images": Case(lambda: layers.L2Norm("l", 0.1), IMAGE),
    "Activation": Case(lambda: layers.Activation("a"), IMAGE),
    "Activation:relu6": Case(lambda: layers.Activation("a", "relu6"), IMAGE, reach=9.0),
    "Activation:leaky_relu": Case(lambda: layers.Activation("a", "leaky_relu", slope=0.3), IMAGE),
    "Activation:leaky_relu, default": Case(lambda: layers.Activation("a", "leaky_relu"), IMAGE),
    "Activation:elu": Case(lambda: layers.Activation("a", "elu", alpha=1.7), IMAGE),
    "Activation:elu, default": Case(lambda: layers.Activation("a", "elu"), IMAGE),
    "Activation:sigmoid": Case(lambda: layers.Activation("a", "sigmoid"), IMAGE),
    "Activation:tanh": Case(lambda: layers.Activation("a", "tanh"), IMAGE),
    "Activation:gelu": Case(lambda: layers.Activation("a", "gelu"), IMAGE),
    "Activation:gelu_tanh": Case(lambda: layers.Activation("a", "gelu_tanh"), IMAGE),
    "Activation:silu": Case(lambda: layers.Activation("a", "silu"), IMAGE),
    "Activation:softplus": Case(lambda: layers.Activation("a", "softplus"), IMAGE),
    "Softmax": Case(lambda: layers.Softmax("s"), ((5,),), batch=3),
    "Softmax:channels": Case(lambda: layers.Softmax("s"), IMAGE),
    "Softmax:last axis": Case(lambda: layers.Softmax("s", -1), IMAGE),
    "Dropout": Case(lambda: layers.Dropout("o"), IMAGE, evaluation=_same),
    "Dropout:few": Case(lambda: layers.Dropout("o", 0.1), ((7,),), batch=5, evaluation=_same),
    "Dropout:none": Case(lambda: layers.Dropout("o", 0), ((5,),), batch=3),
    # A bias of keys adds the same to all scores of a row, and does nothing but where keys are turned by position.
    "MultiHeadAttention": Case(lambda: layers.MultiHeadAttention("a", 2, use_bias=False), ((3, 4),), reach=0.5),
    "MultiHeadAttention:all options": Case(
        lambda: layers.MultiHeadAttention("a", 4, 2, True, kv_heads=2, rotary=True), ((3, 5),), reach=0.5
    ),
    "MultiHeadAttention:as Qwen3 has it": Case(
        lambda: layers.MultiHeadAttention(
            *("a", 4, 4, True),
            **{"kv_heads": 2, "rotary": True, "rotary_base": 7.0, "rotary_scaling": {"type": "linear", "factor": 1.7}},
            **{"use_bias": False, "qkv_bias": True, "query_key_norm": True, "window": 2, "epsilon": 0.3},
        ),
        ((3, 5),),
    ),
    "MultiHeadAttention:of a memory": Case(
        lambda: layers.MultiHeadAttention("a", 2, use_bias=False), ((3, 4), (5, 7)), reach=0.3
    ),
    "MultiHeadAttention:dropout": Case(
        lambda: layers.MultiHeadAttention("a", 2, dropout=0.4, use_bias=False),
        ((3, 4),),
        reach=0.5,
        evaluation=_attention_of_two_heads,
    ),
    "LSTM": Case(lambda: layers.LSTM("r", 2), ((3, 5),)),
    "LSTM:two stacks of sequences": Case(
        lambda: layers.LSTM(
            "r", 2, num_stacks=2, return_sequences=True, recurrent_activation="hard_sigmoid", use_bias=False
        ),
        ((3, 5),),
        reach=0.2,
    ),
    "LSTM:both directions": Case(lambda: layers.LSTM("r", 2, 0.0, 2, "linear", True), ((4, 3),), batch=3),
    "LSTM:dropout": Case(
        lambda: layers.LSTM("r", 2, 0.4, 2, use_bias=False), ((3, 4),), reach=0.3, evaluation=_stacked_lstm(2, "random")
    ),
    "LSTM:stateful": Case(
        lambda: layers.LSTM("r", 2, stateful=True, batch_size=3),
        ((4, 5),),
        batch=3,
        evaluation=_stacked_lstm(1, "hidden_l0"),
    ),
    "GRU": Case(lambda: layers.GRU("r", 2), ((3, 5),)),
    "GRU:reset before, both directions summed": Case(
        lambda: layers.GRU("r", 2, bidirectional=True, merge="sum", reset_after=False, return_sequences=True), ((3, 5),)
    ),
    "SimpleRNN": Case(lambda: layers.SimpleRNN("r", 4), ((3, 5),)),
    "SimpleRNN:relu, averaged": Case(
        lambda: layers.SimpleRNN("r", 2, bidirectional=True, merge="ave", activation="relu"), ((3, 5),)
    ),
    "Bidirectional": Case(lambda: layers.Bidirectional("b", layers.LSTM("r", 2, return_sequences=True)), ((4, 3),)),
    "Bidirectional:multiplied": Case(lambda: layers.Bidirectional("b", layers.GRU("r", 2), "mul"), ((4, 3),)),
    "Flatten": Case(lambda: layers.Flatten("f"), IMAGE),
    "Flatten:from the second axis": Case(lambda: layers.Flatten("f", 2), IMAGE),
    "Flatten:from the end": Case(lambda: layers.Flatten("f", -2), IMAGE),
    "Reshape": Case(lambda: layers.Reshape("r", (6, -1, 3)), IMAGE),
    "Reshape:all extents": Case(lambda: layers.Reshape("r", [9, 10]), IMAGE),
    "Merge": Case(lambda: layers.Merge("m"), ((3, 4), (3, 4))),
    "Merge:three": Case(lambda: layers.Merge("m"), ((3, 4),) * 3),
    "Multiply": Case(lambda: layers.Multiply("m"), ((3, 4), (3, 4))),
    "Multiply:three": Case(lambda: layers.Multiply("m"), ((3, 4),) * 3),
    "Split": Case(lambda: layers.Split("s", 3), ((4, 5),)),
    "Split:one": Case(lambda: layers.Split("s", 1), ((4,),)),
    "Concat": Case(lambda: layers.Concat("c", 1), ((3, 5, 6), (1, 5, 6), (4, 5, 6))),
    "Concat:last axis": Case(lambda: layers.Concat("c", -1), ((3, 5), (3, 4))),
    "Slice": Case(lambda: layers.Slice("s", 1, [1, 3]), ((4, 5, 3),)),
    "Slice:last axis": Case(lambda: layers.Slice("s", -1, (2,)), IMAGE),
    "Dummy": Case(lambda: layers.Dummy("d", (4, 5)), ((4, 5),)),
    "Sequential": Case(
        lambda: layers.Sequential("s", [layers.Dense("d", 4), layers.Activation("a", "silu")]), ((5,),), batch=3
    ),
    "Sequential:several outputs": Case(
        lambda: layers.Sequential("s", [layers.Dense("d", 5), layers.Slice("cut", 1, [2])]), ((4,),), batch=3
    ),
    "Residual": Case(
        lambda: layers.Residual("r", [layers.Dense("d", 4), layers.Activation("a", "tanh"), layers.Dense("e", 5)]),
        ((5,),),
        batch=3,
    ),
    "TimeDistributed": Case(lambda: layers.TimeDistributed("t", layers.Dense("d", 4)), ((3, 5),)),
    "TimeDistributed:images": Case(lambda: layers.TimeDistributed("t", layers.Conv2D("c", 2)), ((3, 2, 4, 5),)),
    "TransformerBlock": Case(
        lambda: layers.TransformerBlock("t", 1, True, head_size=2, hidden_size=3, rotary=True, epsilon=1.0), ((3, 5),)
    ),
    "TransformerBlock:causal, norms last, grouped": Case(
        lambda: layers.TransformerBlock(
            "t", 4, True, head_size=2, kv_heads=2, rotary=True, activation="silu", normalize_first=False, use_bias=False
        ),
        ((3, 6),),
    ),
    "TransformerBlock:as Llama has it": Case(
        lambda: layers.TransformerBlock(
            "t", 2, True, hidden_size=3, kv_heads=1, rotary=True, activation="swiglu", norm="rms", use_bias=False
        ),
        ((3, 4),),
    ),
    "TransformerBlock:as Qwen3 has it": Case(
        lambda: layers.TransformerBlock(
            *("t", 2, True),
            **{"hidden_size": 3, "head_size": 4, "activation": "swiglu", "norm": "rms", "use_bias": False},
            **{"kv_heads": 1, "rotary": True, "qkv_bias": True, "query_key_norm": True, "window": 2, "epsilon": 0.3},
        ),
        ((3, 5),),
    ),
    "SwiGLU": Case(lambda: layers.SwiGLU("s", 4), ((3, 5),)),
    "Net": Case(
        lambda: layers.Net("n", _small_net("float64")),
        ((5,),),
        batch=3,
        placed=lambda *at: layers.Net("n", _small_net(*at)),
    ),
    "Dense:quantised": Case(lambda: layers.Dense("d", 4, weight_format="q8_0"), ((5, 32),), batch=3),
    "Embedding:quantised": Case(
        lambda: layers.Embedding("e", 9, 32, weight_format="q4_0"), ((3,),), differentiable=False
    ),
    "TiedDense:quantised": Case(_quantised_head, ((3, 32),), placed=_quantised_head),
    "SwiGLU:quantised": Case(lambda: layers.SwiGLU("g", 4, weight_format={"value": "q4_1"}), ((5, 32),), batch=3),
}
