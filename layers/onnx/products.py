"""Products, convolutions, pooling, normalization and recurrent operators, over operations of `autograd`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from singa_lite import autograd
from singa_lite.layers.onnx.table import OnnxNode, Table, Value, tensor_of
from singa_lite.tensor import Tensor

PRODUCTS = Table()


@PRODUCTS.computes("MatMul")
def _matmul(node: OnnxNode, a: Value, b: Value) -> Tensor:
    """Rows of any number of axes by a matrix are one product."""
    like = a if isinstance(a, Tensor) else b
    a, b = tensor_of(a, like), tensor_of(b, like)
    if b.ndim == 2 and a.ndim > 2:
        rows = autograd.matmul(autograd.reshape(a, (-1, a.shape[-1])), b)
        return autograd.reshape(rows, (*a.shape[:-1], b.shape[1]))
    return autograd.matmul(a, b)


@PRODUCTS.computes("Gemm")
def _gemm(node: OnnxNode, a: Tensor, b: Value, c: Value = None) -> Tensor:
    """alpha * a @ b + beta * c, with a and b transposed where the attributes say so."""
    b = tensor_of(b, a)
    a = autograd.transpose(a) if node.get("transA") else a
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    if alpha == beta == 1 and isinstance(c, Tensor) and c.shape == (b.shape[0 if node.get("transB") else 1],):
        return autograd.linear(a, b, c, transposed=bool(node.get("transB")))
    y = autograd.linear(a, b, transposed=bool(node.get("transB")))
    y = y if alpha == 1 else autograd.scale(y, alpha)
    if c is None:
        return y
    c = tensor_of(c, a)
    return autograd.add(y, c if beta == 1 else autograd.scale(c, beta))


# ---- windows


def _window(node: OnnxNode, x: Tensor, kernel: list[int], ceil: bool = False) -> dict[str, Any]:
    """Kernel, stride, pad and dilation of an image's two axes; a row of one axis is an image of height 1."""
    axes = len(kernel)
    if axes > 2:
        raise node.wants("one or two axes", axes)
    stride, dilation = node.get("strides") or [1] * axes, node.get("dilations") or [1] * axes
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    auto, pads = node.get("auto_pad", "NOTSET"), list(node.get("pads") or [0] * 2 * axes)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        whole = [max(0, (-(-n // s) - 1) * s + k - n) for n, s, k in zip(x.shape[2:], stride, spans, strict=True)]
        less, more = [n // 2 for n in whole], [n - n // 2 for n in whole]
        pads = less + more if auto == "SAME_UPPER" else more + less
    if ceil:
        for at, (n, step, span) in enumerate(zip(x.shape[2:], stride, spans, strict=True)):
            rest = (n + pads[at] + pads[axes + at] - span) % step
            pads[axes + at] += step - rest if rest else 0
    if axes == 1:
        kernel, stride, dilation, pads = [1, *kernel], [1, *stride], [1, *dilation], [0, pads[0], 0, pads[1]]
    top, left, bottom, right = pads
    return {"kernel": kernel, "stride": stride, "dilation": dilation, "pad": (top, bottom, left, right)}


def _as_image(x: Tensor) -> Tensor:
    return autograd.reshape(x, (*x.shape[:2], 1, x.shape[2])) if x.ndim == 3 else x


def _as_before(y: Tensor, x: Tensor) -> Tensor:
    return autograd.reshape(y, (*y.shape[:2], y.shape[3])) if x.ndim == 3 else y


@PRODUCTS.computes("Conv")
def _conv(node: OnnxNode, x: Tensor, weight: Value, bias: Value = None) -> Tensor:
    weight = tensor_of(weight, x)
    bias = None if bias is None else tensor_of(bias, x)
    window = _window(node, x, list(weight.shape[2:]))
    del window["kernel"]
    y = autograd.conv2d(_as_image(x), _as_image(weight), bias, **window, groups=node.get("group", 1))
    return _as_before(y, x)


@PRODUCTS.computes("ConvTranspose")
def _conv_transpose(node: OnnxNode, x: Tensor, weight: Value, bias: Value = None) -> Tensor:
    if node.get("auto_pad", "NOTSET") != "NOTSET" or node.get("output_shape"):
        raise node.wants("pads", "auto_pad or output_shape")
    weight = tensor_of(weight, x)
    bias = None if bias is None else tensor_of(bias, x)
    window = _window(node, x, list(weight.shape[2:]))
    del window["kernel"]
    extra = list(node.get("output_padding") or [0] * (x.ndim - 2))
    extra = [0, *extra] if x.ndim == 3 else extra
    given = _as_image(x), _as_image(weight), bias
    y = autograd.conv2d_transpose(*given, **window, groups=node.get("group", 1), output_padding=extra)
    return _as_before(y, x)


@PRODUCTS.computes("MaxPool", "AveragePool")
def _pool(node: OnnxNode, x: Tensor) -> Tensor:
    is_max = node.operator == "MaxPool"
    ceil = bool(node.get("ceil_mode"))
    window = _window(node, x, list(node.get("kernel_shape")), ceil and is_max)
    if set(window.pop("dilation")) != {1} or node.outputs > 1 or (ceil and not is_max):
        raise node.wants("one output, without dilations, averages without ceil_mode", dict(node.attributes))
    if is_max:
        return _as_before(autograd.max_pool2d(_as_image(x), **window), x)
    counts = bool(node.get("count_include_pad", 0))
    return _as_before(autograd.avg_pool2d(_as_image(x), **window, count_pad=counts), x)


@PRODUCTS.computes("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(node: OnnxNode, x: Tensor) -> Tensor:
    function = autograd.reduce_mean if node.operator == "GlobalAveragePool" else autograd.reduce_max
    return function(x, tuple(range(2, x.ndim)), True)


@PRODUCTS.computes("Resize", "Upsample")
def _resize(node: OnnxNode, x: Tensor, roi: Value = None, scales: Value = None, sizes: Value = None) -> Tensor:
    """Each pixel as a block of equal ones."""
    if scales is None and sizes is None:  # before opset 11
        scales = roi
    elif not _repeats(node):
        raise node.wants("nearest pixels", dict(node.attributes))
    known = scales if scales is not None and scales.size else None
    wanted = [float(n) for n in known] if known is not None else None
    if wanted is None and sizes is not None:
        wanted = [new / old for new, old in zip(node.numbers(sizes, "sizes"), x.shape, strict=True)]
    whole = wanted is not None and all(n == int(n) >= 1 for n in wanted) and wanted[:2] == [1, 1] and len(wanted) == 4
    if not whole or wanted is None or node.get("mode", "nearest") != "nearest":
        raise node.wants("mode nearest and whole factors of an image's axes", [node.get("mode"), wanted])
    return autograd.upsample_nearest(x, (int(wanted[2]), int(wanted[3])))


def _repeats(node: OnnxNode) -> bool:
    """Whether the nearest pixels are blocks of equal ones, for any whole factor."""
    place, rounding = node.get("coordinate_transformation_mode", "half_pixel"), node.get("nearest_mode", "round_")
    if place == "asymmetric":
        return bool(rounding == "floor")
    return place in ("half_pixel", "pytorch_half_pixel") and rounding.startswith("round_")


# ---- normalization


@PRODUCTS.computes("BatchNormalization")
def _batch_norm(node: OnnxNode, x: Tensor, gamma: Value, beta: Value, mean: Value, variance: Value) -> Tensor:
    """By the statistics of the batch in training, by the running ones else."""
    gamma, beta, mean, variance = (tensor_of(one, x) for one in (gamma, beta, mean, variance))
    epsilon = node.get("epsilon", 1e-5)
    if node.training:
        return autograd.batch_norm(x, gamma, beta, mean, variance, 1 - node.get("momentum", 0.9), epsilon)
    return autograd.batch_norm_inference(x, gamma, beta, mean, variance, epsilon)


@PRODUCTS.computes("LayerNormalization")
def _layer_norm(node: OnnxNode, x: Tensor, gamma: Value, beta: Value = None) -> Tensor:
    gamma = tensor_of(gamma, x)
    if gamma.shape != x.shape[node.get("axis", -1) % x.ndim :]:
        raise node.wants(f"a scale of the normalised axes of {x.shape}", gamma.shape)
    beta = np.zeros(gamma.shape, np.float32) if beta is None else beta
    return autograd.layer_norm(x, gamma, tensor_of(beta, x), node.get("epsilon", 1e-5))


@PRODUCTS.computes("LRN")
def _lrn(node: OnnxNode, x: Tensor) -> Tensor:
    options = {name: node.get(name, default) for name, default in (("alpha", 1e-4), ("beta", 0.75))}
    return autograd.lrn(x, node.get("size"), **options, k=node.get("bias", 1.0))


# ---- recurrent

#: {operator: (places of its gates by ours, the activations that are built in)}
_CELLS: dict[str, tuple[list[int], list[str]]] = {
    "LSTM": ([0, 2, 3, 1], ["Sigmoid", "Tanh", "Tanh"]),
    "GRU": ([1, 0, 2], ["Sigmoid", "Tanh"]),
    "RNN": ([0], ["Tanh"]),
}


@PRODUCTS.computes("LSTM", "GRU", "RNN")
def _recurrent(
    node: OnnxNode,
    x: Tensor,
    weight: Value,
    recurrent: Value,
    bias: Value = None,
    lengths: Value = None,
    hidden: Value = None,
    cell: Value = None,
    peephole: Value = None,
) -> list[Tensor]:
    """[y (time, directions, n, h), the last hidden states (directions, n, h), those of cells]."""
    directions = ["forward", "reverse"] if node.get("direction") == "bidirectional" else [node.get("direction")]
    if lengths is not None or peephole is not None or any(map(node.get, ("layout", "clip", "input_forget"))):
        raise node.wants("neither lengths, peepholes, clips nor layout 1", dict(node.attributes))
    parts = [None if one is None else tensor_of(one, x) for one in (weight, recurrent, bias, hidden, cell)]
    made = []
    for at, direction in enumerate(directions):
        own = [None if one is None else autograd.index(one, at) for one in parts]
        options = _activations(node, at)
        made.append(_direction(node, x, *own, options=options, reverse=direction == "reverse"))
    ys, hs, cs = zip(*made, strict=True)
    states = [autograd.stack(list(one), 0) for one in (hs, cs) if one[0] is not None]
    return [autograd.stack(list(ys), 1), *states]


def _activations(node: OnnxNode, at: int) -> dict[str, Any]:
    """Those of one direction, as options of the operation."""
    wanted = _CELLS[node.operator][1]
    each = len(wanted)
    given = (node.get("activations") or wanted * (at + 1))[at * each :][:each]
    if node.operator == "RNN" and given in (["Tanh"], ["Relu"]):
        return {"activation": given[0].lower()}
    if given == wanted:
        return {}
    alpha, beta = (node.get(f"activation_{name}") or [None] for name in ("alpha", "beta"))
    is_hard = given == ["HardSigmoid", *wanted[1:]] and np.isclose(alpha[0], 1 / 6) and beta[0] == 0.5
    if not is_hard:
        raise node.wants(f"activations {wanted}", given)
    return {"recurrent_activation": "hard_sigmoid"}


def _direction(
    node: OnnxNode, x: Tensor, weight: Any, recurrent: Any, bias: Any, *states: Any, options: Any, reverse: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """One direction: y (time, n, h), and the last states (n, h)."""
    order = _CELLS[node.operator][0]
    into, along = (autograd.transpose(_gates(one, order)) for one in (weight, recurrent))
    gates = _matmul(node, x, into)
    inner: Any = None
    if bias is not None:
        added, inner = (_gates(one, order) for one in autograd.split(bias, 0, [bias.shape[0] // 2]))
        gates = autograd.add(gates, added)
    if node.operator == "GRU":
        reset_after = bool(node.get("linear_before_reset"))
        y, *last = autograd.gru(gates, along, inner, states[0], reverse=reverse, reset_after=reset_after, **options)
    else:
        gates = gates if inner is None else autograd.add(gates, inner)
        function: Callable[..., Any] = autograd.lstm if node.operator == "LSTM" else autograd.simple_rnn
        given = states if node.operator == "LSTM" else states[:1]
        y, *last = function(gates, along, *given, reverse=reverse, **options)
    return y, autograd.index(y, 0 if reverse else -1), last[1] if len(last) > 1 else None


def _gates(value: Tensor, order: list[int]) -> Tensor:
    """The gates along axis 0 in another order."""
    if len(order) == 1:
        return value
    each = value.shape[0] // len(order)
    pieces = autograd.split(value, 0, [each * at for at in range(1, len(order))])
    return autograd.concat([pieces[place] for place in order], 0)
