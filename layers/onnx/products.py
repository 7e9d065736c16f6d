"""Products, convolutions, pooling, normalization and recurrent operators, over operations of `autograd`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from singa_lite import autograd
from singa_lite.autograd.ops.windows import as_image, window
from singa_lite.kernels.interface.window import Window
from singa_lite.layers._windows import as_images, as_samples, padded
from singa_lite.layers.onnx.table import TENSORS, OnnxNode, Value, tensor_of, tensors_of
from singa_lite.tensor import Tensor


@TENSORS.enters("MatMul")
def _matmul(node: OnnxNode, a: Value, b: Value) -> Tensor:
    """Rows of any number of axes by a matrix are one product."""
    a, b = tensor_of(a, b), tensor_of(b, a)
    return autograd.linear(a, b) if b.ndim == 2 else autograd.matmul(a, b)


@TENSORS.enters("Gemm")
def _gemm(node: OnnxNode, a: Tensor, b: Value, c: Value = None) -> Tensor:
    """alpha * a @ b + beta * c, with a and b transposed where the attributes say so."""
    b, c = tensors_of((b, c), a)
    a = autograd.transpose(a) if node.get("transA") else a
    b = autograd.transpose(b) if node.get("transB") else b
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    if alpha == beta == 1 and c is not None and c.shape == b.shape[1:]:
        return autograd.linear(a, b, c)
    y = autograd.linear(a, b) if alpha == 1 else autograd.scale(autograd.linear(a, b), alpha)
    return y if c is None else autograd.add(y, c if beta == 1 else autograd.scale(c, beta))


# ---- windows


def _window(node: OnnxNode, x: Tensor, kernel: Sequence[int]) -> Window:
    """The window over an image; a row of one axis is an image of height 1."""
    axes, auto = len(kernel), node.get("auto_pad", "NOTSET")
    if axes > 2:
        raise node.wants("one or two axes", axes)
    given = node.get("pads") or [0] * 2 * axes
    pads = [one for axis in range(axes) for one in given[axis::axes]]
    made = window(node.operator, kernel, node.get("strides") or 1, pads, node.get("dilations") or 1, axes)
    if auto.startswith("SAME"):  # which leaves the larger half of an odd number behind, or before
        made = padded(made, "same", x.shape[2:])
        top, bottom, left, right = made.pad
        return made if auto == "SAME_UPPER" else replace(made, pad=(bottom, top, right, left))
    if not node.get("ceil_mode"):
        return made
    extents = zip(as_image(x.shape[2:]), made.pad_before, made.pad_behind, made.span, made.stride, strict=True)
    rows, columns = (-(n + before + behind - span) % step for n, before, behind, span, step in extents)
    top, bottom, left, right = made.pad
    return replace(made, pad=(top, bottom + rows, left, right + columns))


@TENSORS.enters("Conv", "ConvTranspose")
def _conv(node: OnnxNode, x: Tensor, weight: Value, bias: Value = None) -> Tensor:
    weight, bias = tensors_of((weight, bias), x)
    found = _window(node, x, weight.shape[2:])
    given = as_images(x), as_images(weight), bias, found.stride, found.pad, found.dilation, node.get("group", 1)
    if node.operator == "Conv":
        return as_samples(autograd.conv2d(*given), x)
    if node.get("auto_pad", "NOTSET") != "NOTSET" or node.get("output_shape"):
        raise node.wants("pads", "auto_pad or output_shape")
    extra = [0, *(node.get("output_padding") or [0] * (x.ndim - 2))][-2:]
    return as_samples(autograd.conv2d_transpose(*given, extra), x)


@TENSORS.enters("MaxPool", "AveragePool")
def _pool(node: OnnxNode, x: Tensor) -> Tensor:
    found = _window(node, x, node.get("kernel_shape"))
    is_max, given = node.operator == "MaxPool", (as_images(x), found.kernel, found.stride, found.pad)
    if found.dilation != (1, 1) or (node.get("ceil_mode") and not is_max):
        raise node.wants("windows without dilations, averages without ceil_mode", dict(node.attributes))
    if is_max:
        return as_samples(autograd.max_pool2d(*given), x)
    return as_samples(autograd.avg_pool2d(*given, bool(node.get("count_include_pad"))), x)


@TENSORS.enters("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(node: OnnxNode, x: Tensor) -> Tensor:
    function = autograd.reduce_mean if node.operator == "GlobalAveragePool" else autograd.reduce_max
    return function(x, tuple(range(2, x.ndim)), True)


@TENSORS.enters("Resize", "Upsample")
def _resize(node: OnnxNode, x: Tensor, roi: Value = None, scales: Value = None, sizes: Value = None) -> Tensor:
    """Each pixel as a block of equal ones."""
    if node.get("scales"):  # before opset 9
        scales = np.asarray(node.get("scales"))
    elif scales is None and sizes is None:  # before opset 11
        scales = roi
    elif not _repeats(node):
        raise node.wants("nearest pixels", dict(node.attributes))
    if node.get("axes") or node.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise node.wants("scales or sizes of all axes", dict(node.attributes))
    if sizes is None:
        factors = [float(one) for one in node.known(scales, "scales")]
    else:
        factors = [new / old for new, old in zip(node.numbers(sizes, "sizes") or (), x.shape, strict=True)]
    is_whole = len(factors) == 4 and factors[:2] == [1, 1] and all(one == int(one) >= 1 for one in factors)
    if not is_whole or node.get("mode", "nearest") != "nearest":
        raise node.wants("mode nearest and whole factors of an image's axes", [node.get("mode"), factors])
    return autograd.upsample_nearest(x, [int(one) for one in factors[2:]])


def _repeats(node: OnnxNode) -> bool:
    """Whether the nearest pixels are blocks of equal ones, for any whole factor."""
    place, rounding = node.get("coordinate_transformation_mode", "half_pixel"), node.get("nearest_mode", "round_")
    if place == "asymmetric":
        return bool(rounding == "floor")
    return place in ("half_pixel", "pytorch_half_pixel") and rounding.startswith("round_")


# ---- normalization


@TENSORS.enters("BatchNormalization")
def _batch_norm(node: OnnxNode, x: Tensor, gamma: Value, beta: Value, mean: Value, variance: Value) -> Tensor:
    """By the statistics of the batch in training, by the running ones else."""
    if not node.get("spatial", 1):  # before opset 9
        raise node.wants("one mean for each channel", "spatial 0")
    gamma, beta, mean, variance = tensors_of((gamma, beta, mean, variance), x)
    epsilon = node.get("epsilon", 1e-5)
    if node.training:
        return autograd.batch_norm(x, gamma, beta, mean, variance, 1 - node.get("momentum", 0.9), epsilon)
    return autograd.batch_norm_inference(x, gamma, beta, mean, variance, epsilon)


@TENSORS.enters("LayerNormalization")
def _layer_norm(node: OnnxNode, x: Tensor, gamma: Value, beta: Value = None) -> Tensor:
    gamma = tensor_of(gamma, x)
    if gamma.shape != x.shape[node.get("axis", -1) % x.ndim :]:
        raise node.wants(f"a scale of the normalised axes of {x.shape}", gamma.shape)
    beta = np.zeros(gamma.shape, np.float32) if beta is None else beta
    return autograd.layer_norm(x, gamma, tensor_of(beta, x), node.get("epsilon", 1e-5))


@TENSORS.enters("LRN")
def _lrn(node: OnnxNode, x: Tensor) -> Tensor:
    return autograd.lrn(x, node.get("size"), node.get("alpha", 1e-4), node.get("beta", 0.75), node.get("bias", 1.0))


# ---- recurrent

#: {operator: (places of its gates by ours, the activations that are built in)}
_CELLS: dict[str, tuple[list[int], list[str]]] = {
    "LSTM": ([0, 2, 3, 1], ["Sigmoid", "Tanh", "Tanh"]),
    "GRU": ([1, 0, 2], ["Sigmoid", "Tanh"]),
    "RNN": ([0], ["Tanh"]),
}


@TENSORS.enters("LSTM", "GRU", "RNN")
def _recurrent(node: OnnxNode, x: Tensor, *given: Value) -> list[Tensor]:
    """given: weight, recurrent weight, bias, lengths, first hidden states, those of cells, peepholes. Returns
    [y (time, directions, n, h), the last hidden states (directions, n, h), those of cells].
    """
    weight, recurrent, bias, lengths, hidden, cell, peephole = given + (None,) * (7 - len(given))
    if lengths is not None or peephole is not None or any(map(node.get, ("layout", "clip", "input_forget"))):
        raise node.wants("neither lengths, peepholes, clips nor layout 1", dict(node.attributes))
    parts = tensors_of((weight, recurrent, bias, hidden, cell), x)
    direction, made = node.get("direction", "forward"), []
    for at in range(2 if direction == "bidirectional" else 1):
        own: list[Any] = [None if one is None else autograd.index(one, at) for one in parts]
        made.append(_direction(node, x, *own, options=_activations(node, at), reverse=direction == "reverse" or at > 0))
    return [autograd.stack(one, 0 if place else 1) for place, one in enumerate(zip(*made, strict=True))]


def _activations(node: OnnxNode, at: int) -> dict[str, Any]:
    """Those of one direction, as options of the operation."""
    wanted = _CELLS[node.operator][1]
    other = ["Relu"] if node.operator == "RNN" else ["HardSigmoid", *wanted[1:]]
    every, start = node.get("activations") or wanted * (at + 1), at * len(wanted)
    given = every[start:][: len(wanted)]
    numbers = _hard_numbers(node, every[:start].count("HardSigmoid")) if "HardSigmoid" in given else []
    if given not in (wanted, other) or (numbers and not np.allclose(numbers, [1 / 6, 0.5])):
        raise node.wants(f"activations {wanted} or {other}, HardSigmoid of 1/6 and 0.5", [*given, *numbers])
    if node.operator == "RNN":
        return {"activation": given[0].lower()}
    return {} if given == wanted else {"recurrent_activation": "hard_sigmoid"}


def _hard_numbers(node: OnnxNode, before: int) -> list[float]:
    """Returns alpha and beta of the HardSigmoid with this index: of the node's lists, or the defaults beyond."""
    found = []
    for name, default in (("alpha", 0.2), ("beta", 0.5)):
        given = node.get(f"activation_{name}") or []
        found.append(given[before] if before < len(given) else default)
    return found


def _direction(
    node: OnnxNode, x: Tensor, weight: Any, recurrent: Any, bias: Any, *states: Any, options: Any, reverse: bool
) -> tuple[Tensor, ...]:
    """One direction: y (time, n, h), and the last states (n, h)."""
    order = _CELLS[node.operator][0]
    into, along = (autograd.transpose(_gates(one, order)) for one in (weight, recurrent))
    added, inner = (
        [None] * 2 if bias is None else (_gates(one, order) for one in autograd.split(bias, 0, [len(bias) // 2]))
    )
    gates = autograd.linear(x, into, added)
    if node.operator == "GRU":
        reset_after = bool(node.get("linear_before_reset"))
        y, *last = autograd.gru(gates, along, inner, states[0], reverse=reverse, reset_after=reset_after, **options)
    else:
        gates = gates if inner is None else autograd.add(gates, inner)
        function: Any = autograd.lstm if node.operator == "LSTM" else autograd.simple_rnn
        given = states if node.operator == "LSTM" else states[:1]
        y, *last = function(gates, along, *given, reverse=reverse, **options)
    return y, autograd.index(y, 0 if reverse else -1), *last[1:]


def _gates(value: Tensor, order: list[int]) -> Tensor:
    """The gates along axis 0 in another order."""
    if len(order) == 1:
        return value
    each = value.shape[0] // len(order)
    pieces = autograd.split(value, 0, [each * at for at in range(1, len(order))])
    return autograd.concat([pieces[place] for place in order], 0)
