"""The table of operations: how to call each. No function of `autograd` and no Op class may be missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernel_cases_quantized import random_blocks
from singa_lite import autograd, tensor
from singa_lite.autograd.ops.loss import weigh
from singa_lite.autograd.ops.low_rank import Adapter, adapted_conv2d, adapted_linear
from singa_lite.autograd.ops.synced_normalization import RankShare, across
from singa_lite.device import device_of
from singa_lite.testing.gradients import spread

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Case:
    """One way of calling one function of `autograd`; its key is the function's name, up to a colon if any.

    shapes: of the inputs that derivatives are taken by; extents that need not be equal all differ. low, high:
    bounds of the inputs' values. fixed: tensors behind them that have no derivative (targets, statistics,
    random state). settings: plain values, by keyword. call: how to call the function with all tensors, where it
    is not function(*tensors, **settings). differentiable: False for an operation of evaluation only.
    """

    shapes: tuple[tuple[int, ...], ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    fixed: Callable[[np.random.Generator], Arrays] = lambda rng: []
    low: float = -2.0
    high: float = 2.0
    call: Callable[..., Any] | None = None
    differentiable: bool = True

    def arrays(self) -> tuple[Arrays, Arrays]:
        """Inputs and fixed tensors, float64, the same at each call."""
        rng = np.random.default_rng(11)
        inputs = [spread(rng, shape, self.low, self.high) for shape in self.shapes]
        return inputs, self.fixed(rng)


def _of_all_processes(function: Callable[..., Any], x: Any, *others: Any) -> Any:
    """The function where statistics are those of all processes, of which there is one."""
    share, total = (tensor.from_numpy(np.float64(number), device_of(x)) for number in (1.0, x.shape[0]))
    before = across.set(RankShare(share, total, lambda sums: None))
    try:
        return function(x, *others)
    finally:
        across.reset(before)


def case(*shapes: tuple[int, ...], **settings: Any) -> Case:
    """The usual form of a case: inputs between -2 and 2, nothing fixed."""
    return Case(shapes, settings)


def _class_ids(*shape: int, classes: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: [rng.integers(0, classes, shape)]


def _rows(*shape: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: [rng.uniform(0.1, 1.0, shape)]


def _targets(*shape: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: [rng.uniform(-0.5, 0.5, shape)]


def _running(channels: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: [rng.uniform(-1, 1, channels), rng.uniform(0.5, 2, channels)]


def _random_state(rng: np.random.Generator) -> Arrays:
    return [np.array([17, 4, 2], np.uint64)]


def _adapted_linear(linear: Any, x: Any, weight: Any, bias: Any, a: Any, b: Any, state: Any = None) -> Any:
    """An adapter beside the weight."""
    return adapted_linear(x, weight, bias, Adapter(a, b, 1.7, 0.4, state))


def _adapted_conv2d(conv2d: Any, x: Any, weight: Any, bias: Any, a: Any, b: Any, state: Any = None) -> Any:
    """The same, of a convolution by a stride and with a margin."""
    return adapted_conv2d(x, weight, bias, Adapter(a, b, 0.3, 0.4, state), ((2, 3), (1, 0, 2, 1), (1, 1)))


def _chosen(where: Callable[..., Any], a: Any, b: Any, condition: Any) -> Any:
    return where(condition, a, b)


def _blocks(rows: int, columns: int, format: str) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: [random_blocks(rng, rows, columns, format)]


def _quantized(linear: Callable[..., Any], x: Any, bias: Any, blocks: Any) -> Any:
    return linear(x, blocks, bias, format="q4_1")


def _at(shape: tuple[int, ...], at: Any) -> Case:
    """A tensor of this shape, indexed so."""
    return Case((shape,), {"at": at})


ACTIVATIONS = {
    "relu": case((2, 3, 4, 5)),
    "relu6": Case(((2, 3, 5),), low=-9, high=9),
    "leaky_relu": case((2, 3, 5)),
    "leaky_relu:steep": case((2, 3, 5), slope=0.3),
    "elu": case((2, 3, 5)),
    "elu:steep": case((2, 3, 5), alpha=1.7),
    "sigmoid": case((2, 3, 5)),
    "tanh": case((2, 3, 5)),
    "gelu": case((2, 3, 5)),
    "gelu_tanh": case((2, 3, 5)),
    "silu": case((2, 3, 5)),
    "softplus": case((2, 3, 5)),
    "prelu": case((2, 3, 4, 5), (3, 1, 1)),
    "prelu:each element": case((2, 3, 5), (3, 5)),
    "prelu:one": case((2, 3, 5), ()),
    "prelu:one of a sample": case((1, 3), (1, 3)),
    "softmax": case((2, 5)),
    "softmax:middle axis": case((2, 5, 3), axis=1),
    "softmax:last axis": case((2, 5, 3), axis=-1),
    "softmax:first axis": case((4, 3), axis=0),
}

ARITHMETIC = {
    "add": case((2, 3), (2, 3)),
    "add:broadcast": case((4, 1, 3), (2, 1)),
    "add:number": case((2, 3), b=1.5),
    "add:number on the left": Case(((2, 3),), call=lambda add, x: add(1.5, x)),
    "subtract": case((2, 3), (2, 3)),
    "subtract:broadcast": case((3,), (4, 2, 3)),
    "subtract:number": case((2, 3), b=1.5),
    "subtract:number on the left": Case(((2, 3),), call=lambda subtract, x: subtract(1.5, x)),
    "multiply": case((2, 3), (2, 3)),
    "multiply:broadcast": case((4, 1, 3), (2, 1)),
    "multiply:number": case((2, 3), b=-1.5),
    "multiply:by itself": Case(((2, 3),), call=lambda multiply, x: multiply(x, x)),
    "divide": Case(((2, 3), (2, 3)), low=0.5),
    "divide:broadcast": Case(((3,), (4, 2, 1)), low=0.5),
    "divide:number": case((2, 3), b=-1.5),
    "divide:number on the left": Case(((2, 3),), low=0.5, call=lambda divide, x: divide(1.5, x)),
    "scale": case((2, 3), alpha=-1.5),
    "scale:and shift": case((2, 3), alpha=-1.5, beta=0.5),
    "shift": case((2, 3), beta=1.5),
    "power": case((2, 3), exponent=3),
    "power:root": Case(((2, 3),), {"exponent": 0.5}, low=0.5),
    "power:reciprocal": case((2, 3), exponent=-1),
    "exp": case((2, 3)),
    "log": Case(((2, 3),), low=0.5),
    "reduce_sum": case((2, 3, 4)),
    "reduce_sum:one axis": case((2, 3, 4), axes=1),
    "reduce_sum:kept axes": case((2, 3, 4), axes=(0, -1), keepdims=True),
    "reduce_sum:of a single number": case((), axes=None),
    "reduce_sum:no axes": case((2, 3), axes=()),
    "reduce_mean": case((2, 3, 4)),
    "reduce_mean:two axes": case((2, 3, 4), axes=(0, 2)),
    "reduce_mean:kept axis": case((2, 3, 4), axes=-1, keepdims=True),
}

ARITHMETIC |= {
    "square": case((2, 3, 4)),
    "sqrt": Case(((2, 3, 4),), low=0.5),
    "reduce_max": case((2, 3, 4)),
    "reduce_max:one axis": case((2, 3, 4), axes=1),
    "reduce_max:kept axes": case((2, 3, 4), axes=(0, -1), keepdims=True),
    "reduce_max:no axes": case((2, 3), axes=()),
    "reduce_min": case((2, 3, 4)),
    "reduce_min:two axes": case((2, 3, 4), axes=(0, 1)),
}

ORDERING = {
    "abs": case((2, 3, 5)),
    "clip": case((2, 3, 5), low=-0.7, high=1.1),
    "clip:above": case((2, 3, 5), high=0.4),
    "clip:below": case((2, 3, 5), low=0.4),
    "maximum": case((2, 3, 5), (2, 3, 5)),
    "maximum:broadcast": case((4, 1, 3), (2, 1)),
    "maximum:number": case((2, 3, 5), b=0.3),
    "maximum:number on the left": Case(((2, 3, 5),), call=lambda maximum, x: maximum(0.3, x)),
    "minimum": case((2, 3, 5), (2, 3, 5)),
    "minimum:broadcast": case((3,), (4, 2, 3)),
    "minimum:of one tensor": Case(((2, 3),), call=lambda minimum, x: minimum(x, x)),
    "where": Case(((2, 3, 5), (2, 3, 5)), fixed=lambda rng: [rng.random((2, 3, 5)) < 0.5], call=_chosen),
    "where:broadcast": Case(((4, 1, 3), (2, 1)), fixed=lambda rng: [rng.random((5, 1, 2, 3)) < 0.5], call=_chosen),
    "where:number": Case(((3, 5),), fixed=lambda rng: [rng.random(5) < 0.5], call=lambda f, x, c: f(c, x, -1.5)),
    "where:by a comparison": Case(((3, 5),), call=lambda where, x: where(autograd.less(x, 0.1), x * x, 2 * x)),
    **{
        name: Case(((2, 3), (4, 1, 3)), differentiable=False)
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    },
}

LINEAR = {
    "matmul": case((2, 3), (3, 4)),
    "matmul:batched": case((5, 2, 3), (5, 3, 4)),
    "matmul:one for all on the right": case((5, 6, 2, 3), (3, 4)),
    "matmul:one for all on the left": case((2, 3), (5, 3, 4)),
    "matmul:broadcast": case((5, 1, 2, 3), (6, 3, 4)),
    "matmul:of transposed matrices": Case(
        ((5, 3, 2), (4, 3)), call=lambda f, a, b: f(autograd.transpose(a, (0, 2, 1)), autograd.transpose(b))
    ),
    "add_bias": case((2, 3, 4), (3,)),
    "add_bias:last axis": case((2, 3, 4), (4,), axis=-1),
    "linear": case((2, 3), (3, 4), (4,)),
    "linear:no bias": case((2, 3), (3, 4)),
    "linear:transposed": case((2, 3), (4, 3), transposed=True),
    "linear:transposed, three axes": case((2, 5, 3), (4, 3), transposed=True),
    "linear:with an adapter": Case(((2, 5, 3), (3, 4), (4,), (3, 2), (2, 4)), call=_adapted_linear),
    "linear:with an adapter that drops": Case(
        ((7, 3), (3, 4), (4,), (3, 2), (2, 4)), fixed=_random_state, call=_adapted_linear
    ),
}

CONVOLUTION = {
    "conv2d": case((2, 3, 5, 4), (6, 3, 2, 3), (6,)),
    "conv2d:no bias": case((2, 3, 5, 4), (6, 3, 2, 3)),
    "conv2d:stride": case((2, 3, 5, 7), (4, 3, 3, 2), (4,), stride=(2, 3)),
    "conv2d:four pads": case((2, 3, 4, 5), (4, 3, 3, 2), (4,), pad=(2, 0, 1, 3)),
    "conv2d:stride and pads": case((2, 3, 4, 5), (4, 3, 3, 2), (4,), stride=(3, 2), pad=(0, 2, 3, 1)),
    "conv2d:dilation": case((2, 3, 6, 5), (4, 3, 3, 2), (4,), dilation=(2, 3)),
    "conv2d:all together": case(
        (3, 4, 6, 7), (2, 2, 3, 2), (2,), stride=(2, 1), pad=(1, 2, 0, 3), dilation=(1, 2), groups=2
    ),
    "conv2d:groups": case((3, 4, 5, 6), (8, 2, 3, 2), (8,), groups=2),
    "conv2d:depthwise": case((2, 4, 5, 6), (4, 1, 3, 2), (4,), pad=(1, 1, 0, 1), groups=4),
    "conv2d:depthwise, two a channel": case((2, 3, 5, 4), (6, 1, 3, 2), (6,), stride=(2, 1), groups=3),
    "conv2d:pointwise": case((2, 3, 5, 4), (6, 3, 1, 1), (6,)),
    "conv2d:pointwise, stride": case((2, 3, 5, 4), (6, 3, 1, 1), (6,), stride=(3, 2)),
    "conv2d:kernel of the image's size": case((2, 3, 5, 4), (6, 3, 5, 4), (6,)),
    "conv2d:with an adapter": Case(
        ((2, 3, 5, 7), (4, 3, 3, 2), (4,), (2, 3, 3, 2), (4, 2, 1, 1)), call=_adapted_conv2d
    ),
    "conv2d:with an adapter that drops": Case(
        ((2, 3, 5, 7), (4, 3, 3, 2), (4,), (2, 3, 3, 2), (4, 2, 1, 1)), fixed=_random_state, call=_adapted_conv2d
    ),
    "conv2d:pads beyond the kernel": case((2, 3, 4, 5), (6, 3, 1, 2), (6,), pad=(2, 1, 3, 0)),
}

CONVOLUTION |= {
    "conv2d_transpose": case((2, 3, 5, 4), (3, 6, 2, 3), (6,)),
    "conv2d_transpose:no bias, groups": case((3, 4, 5, 6), (4, 3, 3, 2), groups=2),
    "conv2d_transpose:all together": case(
        (3, 4, 3, 5), (4, 2, 3, 2), (4,), stride=(2, 3), pad=(1, 2, 0, 3), dilation=(1, 2), groups=2,
        output_padding=(1, 2),
    ),
}  # fmt: skip

POOLING = {
    "max_pool2d": case((2, 3, 6, 5), kernel=(2, 3), stride=(2, 3)),
    "max_pool2d:overlapping": case((2, 3, 5, 6), kernel=(3, 2), stride=(1, 1)),
    "max_pool2d:unequal pads": case((2, 3, 4, 5), kernel=(3, 4), stride=(2, 3), pad=(2, 0, 1, 3)),
    "max_pool2d:gaps": case((2, 3, 6, 7), kernel=(2, 1), stride=(3, 2)),
    "max_pool2d:large windows": case((1, 2, 17, 18), kernel=(16, 17), stride=(1, 1)),
    "avg_pool2d": case((2, 3, 6, 5), kernel=(2, 3), stride=(2, 3)),
    "avg_pool2d:overlapping": case((2, 3, 5, 6), kernel=(3, 2), stride=(1, 1)),
    "avg_pool2d:unequal pads": case((2, 3, 4, 5), kernel=(3, 4), stride=(2, 3), pad=(2, 0, 1, 3)),
    "avg_pool2d:unequal pads not counted": case(
        (2, 3, 4, 5), kernel=(3, 4), stride=(2, 3), pad=(2, 0, 1, 3), count_pad=False
    ),
    "avg_pool2d:overlapping, pads not counted": case(
        (2, 3, 4, 5), kernel=(3, 3), stride=(1, 2), pad=(1, 1, 1, 1), count_pad=False
    ),
    "avg_pool2d:gaps": case((2, 3, 6, 7), kernel=(2, 1), stride=(3, 2)),
    "global_avg_pool2d": case((2, 3, 5, 4)),
    "upsample_nearest": case((2, 3, 5, 4), factor=(2, 2)),
    "upsample_nearest:unequal factors": case((2, 3, 4, 5), factor=(3, 1)),
}


def _seen(*seen: int) -> Callable[[np.random.Generator], Arrays]:
    return lambda rng: [np.array(seen).reshape(2, -1)]


def _attending(*shapes: tuple[int, ...], mask: Callable[..., Arrays] | None = None, **settings: Any) -> Case:
    """q, k, v and perhaps a mask."""
    return Case(shapes, settings, **({} if mask is None else {"fixed": mask}))


Q, KV, SHARED = (2, 3, 2, 4), (2, 5, 2, 4), (2, 5, 1, 4)

ATTENTION = {
    "attention": _attending(Q, KV, KV),
    "attention:scale": _attending(Q, KV, KV, scale=0.9),
    "attention:grouped": _attending((2, 3, 4, 3), (2, 5, 2, 3), (2, 5, 2, 3)),
    "attention:one key head": _attending(Q, SHARED, SHARED),
    "attention:causal": _attending(Q, Q, Q, causal=True),
    "attention:causal, more keys": _attending(Q, KV, KV, causal=True),
    "attention:causal, fewer keys": _attending(KV, Q, Q, causal=True),
    "attention:one row": _attending((2, 1, 2, 4), KV, KV),
    "attention:one key": Case(
        ((2, 1, 2, 4),),
        fixed=lambda rng: [rng.standard_normal(Q), rng.standard_normal((2, 1, 2, 4))],
        call=lambda attention, v, q, k: attention(q, k, v),
    ),
    "attention:mask": _attending(Q, KV, KV, mask=_seen(1, 0, 1, 1, 0, 0, 0, 1, 1, 1)),
    "attention:a sample sees nothing": _attending(Q, KV, KV, mask=_seen(0, 0, 0, 0, 0, 0, 1, 1, 0, 1)),
    "attention:causal and a mask": _attending(KV, KV, KV, mask=_seen(0, 1, 1, 0, 1, 1, 1, 0, 0, 0), causal=True),
    "attention:first keys": Case(
        (KV, SHARED, SHARED),
        fixed=lambda rng: [np.array([[0, 0, 1, 3, 5], [-1, 1, 1, 1, 3]])],  # a row of the first sample sees none
        call=lambda attention, q, k, v, first: attention(q, k, v, None, first, causal=True),
    ),
    "attention:first keys of all samples": Case(
        (KV, KV, KV),
        fixed=lambda rng: [np.array([[0, 0, 0, 1, 2]], np.int32)],
        call=lambda attention, q, k, v, first: attention(q, k, v, first=first, causal=True),
    ),
    "attention:of itself": Case((Q,), call=lambda attention, x: attention(x, x, x, causal=True)),
    "attention:dropout": Case(
        (Q, KV, KV), fixed=_random_state, call=lambda f, q, k, v, state: f(q, k, v, dropout=0.4, state=state)
    ),
    "attention:dropout and all else": Case(
        (KV, SHARED, SHARED),
        fixed=lambda rng: [*_seen(1, 0, 1, 1, 1, 1, 1, 0, 1, 1)(rng), *_random_state(rng)],
        call=lambda f, q, k, v, mask, state: f(q, k, v, mask, causal=True, dropout=0.4, state=state),
    ),
}


def _recurrent(*shapes: tuple[int, ...], states: int = 0, masked: bool = False, **settings: Any) -> Case:
    """gates, weight and perhaps a bias, then fixed first states (3, 2) and a mask of 3 samples; y is what counts."""

    def fixed(rng: np.random.Generator) -> Arrays:
        mask = [np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 0]])] if masked else []
        return [rng.uniform(-1, 1, (3, 2)) for _ in range(states)] + mask

    return Case(shapes, settings, fixed, -1.0, 1.0, call=lambda f, *given, **options: _named(f, given, options)[0])


def _named(function: Callable[..., Any], given: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """The call, each tensor under its name: vectors are biases, integers masks, and of (3, 2) the first states."""
    names = {1: ["bias"], 2: ["weight", "hidden", "cell"], 3: ["gates"]}
    named = {"mask" if t.dtype.kind == "i" else names[t.ndim].pop(0): t for t in given}
    return function(**named, **options)


#: 4 steps of 3 samples, 2 units.
RECURRENT = {
    "lstm": _recurrent((4, 3, 8), (2, 8)),
    "lstm:first states and a mask": _recurrent((4, 3, 8), (2, 8), states=2, masked=True),
    "lstm:backwards, the last": _recurrent((4, 3, 8), (2, 8), states=2, masked=True, reverse=True, last=True),
    "lstm:hard, one step": _recurrent((1, 3, 8), (2, 8), states=2, recurrent_activation="hard_sigmoid"),
    "gru": _recurrent((4, 3, 6), (2, 6), (6,)),
    "gru:first state and a mask": _recurrent((4, 3, 6), (2, 6), (6,), states=1, masked=True),
    "gru:no bias, backwards, the last": _recurrent((4, 3, 6), (2, 6), states=1, masked=True, reverse=True, last=True),
    "gru:reset before": _recurrent((4, 3, 6), (2, 6), (6,), states=1, masked=True, reset_after=False),
    "gru:reset before, hard": _recurrent((4, 3, 6), (2, 6), reset_after=False, recurrent_activation="hard_sigmoid"),
    "simple_rnn": _recurrent((4, 3, 2), (2, 2)),
    "simple_rnn:all": _recurrent((4, 3, 2), (2, 2), states=1, masked=True, reverse=True, last=True, activation="relu"),
}

NORMALIZATION = {
    "batch_norm": Case(((2, 3, 4, 5), (3,), (3,)), fixed=_running(3)),
    "batch_norm:processes": Case(((2, 3, 4, 5), (3,), (3,)), fixed=_running(3), call=_of_all_processes),
    "batch_norm:vectors": Case(((5, 3), (3,), (3,)), {"epsilon": 0.1, "momentum": 0.5}, fixed=_running(3)),
    "batch_norm:sequences": Case(((2, 3, 4), (3,), (3,)), fixed=_running(3)),
    "batch_norm_inference": Case(((2, 3, 4, 5), (3,), (3,)), fixed=_running(3)),
    "batch_norm_inference:vectors": Case(((5, 3), (3,), (3,)), {"epsilon": 0.2}, fixed=_running(3)),
    "layer_norm": case((2, 3, 4), (4,), (4,)),
    "layer_norm:two axes": case((2, 3, 4), (3, 4), (3, 4), epsilon=0.1),
    "layer_norm:whole tensor": case((3, 4), (3, 4), (3, 4)),
    "group_norm": Case(((2, 6, 3, 4), (6,), (6,)), call=lambda f, x, *scale: f(x, 3, *scale)),
    "group_norm:vectors": Case(((3, 8), (8,), (8,)), call=lambda f, x, *scale: f(x, 2, *scale, epsilon=0.1)),
    "group_norm:instances": Case(((3, 2, 4), (2,), (2,)), call=lambda f, x, *scale: f(x, 2, *scale)),
    "lrn": case((2, 7, 3, 4)),
    "lrn:settings": case((2, 5), size=3, alpha=0.5, beta=0.6, k=2.0),
    "l2_norm": case((2, 3)),
    "l2_norm:images": case((2, 3, 4, 5), epsilon=0.1),
}

RANDOM = {
    "dropout": Case(((2, 3, 7),), fixed=_random_state),
    "dropout:few": Case(((5, 6),), {"p": 0.2}, fixed=_random_state),
    "spatial_dropout": Case(((5, 4, 3, 2),), fixed=_random_state),
    "spatial_dropout:vectors": Case(((5, 6),), {"p": 0.2}, fixed=_random_state),
    "normal": Case(
        ((2, 5),),
        fixed=_random_state,
        call=lambda normal, x, state: autograd.multiply(x, normal((2, 5), state, 1.0, 0.2, "float64")),
    ),
}

SHAPES = {
    "cast": Case(((3, 4, 5),), call=lambda cast, x: cast(cast(x, np.longdouble), np.float64)),
    "pad": case((2, 3, 4), margins=[(1, 0), (2, 3)]),
    "pad:all axes": case((2, 3), margins=[(1, 2), (0, 3)]),
    "pad:by nothing": case((2, 3), margins=[]),
    "crop": case((2, 4, 7), margins=[(1, 0), (2, 3)]),
    "crop:all axes": case((4, 5), margins=[(1, 2), (0, 3)]),
    "reshape": case((2, 3, 4), shape=(4, -1)),
    "flatten": case((2, 3, 4)),
    "flatten:second axis": case((2, 3, 4), axis=2),
    "transpose": case((2, 3, 4)),
    "transpose:axes": case((2, 3, 4), axes=(1, 2, 0)),
    "reshape:of a transposed tensor": Case(
        ((2, 3, 4),),
        call=lambda reshape, x: reshape(autograd.transpose(x, (2, 0, 1)), (8, 3)),
    ),
    "split": case((2, 5, 3), axis=1, points=(1, 3)),
    "split:whole": case((2, 5, 3), axis=2, points=()),
    "concat": Case(((2, 3, 4), (2, 1, 4), (2, 5, 4)), call=lambda concat, *xs: concat(xs, 1)),
    "concat:one twice": Case(((2, 3),), call=lambda concat, x: concat([x, x], 0)),
    "identity": case((2, 3, 4)),
    "index": _at((4, 3), slice(1, 3)),
    "index:number": _at((4, 3, 5), 1),
    "index:from behind": _at((4, 3, 5), (-1, slice(None), -2)),
    "index:single number": _at((4, 3), (2, 1)),
    "index:steps": _at((7, 3, 5), (slice(1, 6, 3), ..., slice(None, None, 2))),
    "index:backwards": _at((4, 3, 5), (slice(None, None, -1), slice(1, 2), slice(4, 0, -2))),
    "index:new axes": _at((4, 3), (None, slice(1, None), None, 1, None)),
    "index:everything": _at((4, 3), ...),
    "index:overlapping": Case(((4, 3),), call=lambda index, x: x[1:] * x[:-1] + x[::-1][:3] * index(x, 0)),
    "gather": Case(((4, 3),), fixed=_class_ids(2, 5, classes=4)),
    "gather:second axis": Case(((2, 4, 3),), {"axis": 1}, fixed=_class_ids(5, classes=4)),
    "gather:last axis, one id": Case(((2, 4, 3),), {"axis": -1}, fixed=_class_ids(classes=3)),
    "stack": Case(((2, 3), (2, 3)), call=lambda stack, *xs: stack(xs)),
    "stack:last axis": Case(((2, 3), (2, 3), (2, 3)), call=lambda stack, *xs: stack(xs, -1)),
}

SEQUENCES = {
    "embedding": Case(((7, 3),), fixed=_class_ids(2, 5, classes=6), call=lambda embedding, w, ids: embedding(ids, w)),
    "embedding:padding that does not occur": Case(
        ((5, 3),), fixed=_class_ids(2, 4, 3, classes=4), call=lambda embedding, w, ids: embedding(ids, w, 4)
    ),
    "rotary": Case(((2, 3, 4),), fixed=_targets(2, 3, 2)),
    "rotary:heads behind time": Case(((2, 3, 5, 4),), {"axis": 1}, fixed=_targets(2, 3, 2)),
    "rms_norm": case((2, 3, 4), (4,)),
    "rms_norm:two axes": case((2, 3, 4), (3, 4), epsilon=0.1),
}

#: Of 3 x 2 positions all but two.
_SOME = Case(((3, 2, 4),), {"axis": -1, "ignore_index": 9}, fixed=lambda rng: [np.array([[0, 9], [3, 1], [9, 2]])])

LOSSES = {
    "softmax_cross_entropy": Case(((3, 4),), fixed=_class_ids(3, classes=4)),
    "softmax_cross_entropy_values": Case(((3, 4),), fixed=_class_ids(3, classes=4)),
    "softmax_cross_entropy_values:weighed": Case(
        ((3, 4),),
        fixed=lambda rng: [*_class_ids(3, classes=4)(rng), np.array([0.5, 0.0, 2.0])],
        call=lambda values, x, ids, weights: weigh(values(x, ids), weights),
    ),
    "softmax_cross_entropy_values:positions": Case(((3, 4, 2, 5),), fixed=_class_ids(3, 2, 5, classes=4)),
    "softmax_cross_entropy_values:rows": Case(((3, 4, 2),), fixed=_rows(3, 4, 2)),
    "softmax_cross_entropy:last axis": Case(((3, 2, 4),), {"axis": -1}, fixed=_class_ids(3, 2, classes=4)),
    "softmax_cross_entropy_values:ignored": _SOME,
    "softmax_cross_entropy_values:ignored and smoothed": replace(
        _SOME, settings={**_SOME.settings, "label_smoothing": 0.3}
    ),
    "softmax_cross_entropy_values:smoothed": Case(
        ((3, 4, 2, 5),), {"label_smoothing": 0.2}, fixed=_class_ids(3, 2, 5, classes=4)
    ),
    "softmax_cross_entropy_values:smoothed rows": Case(
        ((3, 2, 4),), {"axis": 2, "label_smoothing": 0.2}, fixed=_rows(3, 2, 4)
    ),
    "sigmoid_cross_entropy": Case(((3, 4),), fixed=_rows(3, 4)),
    "sigmoid_cross_entropy_values": Case(((3, 4, 2),), fixed=_rows(3, 4, 2)),
    "squared_error": Case(((3, 4),), fixed=_targets(3, 4)),
    "squared_error_values": Case(((3, 4),), fixed=_targets(3, 4)),
    "huber": Case(((3, 4),), fixed=_targets(3, 4)),
    "huber_values": Case(((3, 4, 2),), {"delta": 0.6}, fixed=_targets(3, 4, 2)),
}

QUANTIZED = {
    "quantized_linear": Case(((3, 64), (5,)), fixed=_blocks(5, 64, "q4_1"), call=_quantized),
    "quantized_linear:sequences": Case(((2, 3, 256),), {"format": "q6_k"}, fixed=_blocks(5, 256, "q6_k")),
    "quantized_linear:halves": Case(((3, 7),), {"format": "bf16"}, fixed=_blocks(5, 7, "bf16")),
    "quantized_embedding": Case(
        (),
        {"format": "q8_0", "dtype": "float64"},
        fixed=lambda rng: [*_class_ids(2, 3, classes=5)(rng), *_blocks(5, 64, "q8_0")(rng)],
        differentiable=False,
    ),
    "dequantize": Case((), {"format": "q5_k", "dtype": "float64"}, _blocks(3, 256, "q5_k"), differentiable=False),
}

CASES: dict[str, Case] = {
    **ACTIVATIONS,
    **ARITHMETIC,
    **ORDERING,
    **LINEAR,
    **CONVOLUTION,
    **POOLING,
    **ATTENTION,
    **NORMALIZATION,
    **RANDOM,
    **SHAPES,
    **SEQUENCES,
    **QUANTIZED,
    **RECURRENT,
    **LOSSES,
}
