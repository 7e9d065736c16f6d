"""Converters of products, convolutions, pooling, normalization, and attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from singa_lite import autograd
from singa_lite.autograd.ops.quantized import QuantizedLinear, columns_of
from singa_lite.common.errors import SnapshotError
from singa_lite.kernels.interface.window import Window
from singa_lite.snapshots.onnx.calls import Table, TracedCall
from singa_lite.snapshots.onnx.elements import reduced
from singa_lite.snapshots.onnx.writer import Value, Writer
from singa_lite.snapshots.tree import LazyArray
from singa_lite.tensor import to_numpy

TABLE = Table()


@TABLE.converts("Linear")
def _linear(w: Writer, a: TracedCall) -> Value:
    """x @ weight + bias; the weight transposed where it has one row for each output."""
    x, weight, *bias = a.inputs
    return w.node("Gemm", x, weight, *bias, transB=int(a.op.transposed))


@TABLE.converts("AddBias")
def _add_bias(w: Writer, a: TracedCall) -> Value:
    x, bias = a.inputs
    return w.node("Add", x, broadcast_vector(w, bias, a.op.axis, a.ndim))


def broadcast_vector(w: Writer, vector: Value, axis: int, ndim: int) -> Value:
    """A vector as one that is broadcast from its axis over those behind it."""
    behind = ndim - 1 - axis
    return w.node("Unsqueeze", vector, w.constant(range(1, behind + 1))) if behind else vector


@TABLE.converts("AdaptedLinear")
def _adapted(w: Writer, a: TracedCall) -> Value:
    """x @ weight + bias + scale * x @ reduce @ expand."""
    x, weight, bias, reduce, expand, _ = a.inputs
    if isinstance(a.op.base, QuantizedLinear):
        _dequantize(w, a, 1, a.op.base.format)
    y = w.node("Gemm", x, weight, bias, transB=int(getattr(a.op.base, "transposed", True)))
    added = w.node("MatMul", w.node("MatMul", x, reduce), expand)
    return w.node("Add", y, w.node("Mul", added, w.float(a.op.scale, a.dtype)))


@TABLE.converts("AdaptedConv2d")
def _adapted_conv2d(w: Writer, a: TracedCall) -> Value:
    """What the convolution gives, plus scale * the same window by reduce, then expand."""
    x, weight, bias, reduce, expand, _ = a.inputs
    base = a.op.base
    y = w.node("Conv", x, weight, bias, **window_of(base.settings["window"], group=base.groups))
    low = w.node("Conv", x, reduce, **window_of(base.settings["window"]))
    return w.node("Add", y, w.node("Mul", w.node("Conv", low, expand), w.float(a.op.scale, a.dtype)))


@TABLE.converts("QuantizedLinear")
def _quantized_linear(w: Writer, a: TracedCall) -> Value:
    _dequantize(w, a, 1, a.op.format)
    return w.node("Gemm", *a.inputs, transB=1)


@TABLE.converts("quantized_embedding")
def _quantized_embedding(w: Writer, a: TracedCall) -> Value:
    _dequantize(w, a, 1, a.settings["format"])
    return w.node("Gather", a.inputs[1], a.inputs[0])


@TABLE.converts("dequantize")
def _numbers(w: Writer, a: TracedCall) -> Value:
    _dequantize(w, a, 0, a.settings["format"])
    return a.inputs[0]


def _dequantize(w: Writer, a: TracedCall, index: int, format: str) -> None:
    """Have the file hold an input's numbers in the place of its quantised blocks."""
    blocks = a.tensor(index)
    shape = blocks.shape[0], columns_of("export", blocks, format)
    w.weights[a.inputs[index]] = LazyArray(
        shape, w.dtype_of(a.dtype), lambda: to_numpy(autograd.dequantize(blocks, format=format, dtype=a.dtype))
    )


def window_of(window: Window, **others: Any) -> dict[str, Any]:
    """A window as attributes of a node."""
    top, bottom, left, right = window.pad
    steps = {"strides": window.stride, "dilations": window.dilation}
    return {"kernel_shape": window.kernel, "pads": [top, left, bottom, right], **steps, **others}


@TABLE.converts("Conv2d")
def _conv2d(w: Writer, a: TracedCall) -> Value:
    return w.node("Conv", *a.inputs, **window_of(a.settings["window"], group=a.op.groups))


@TABLE.converts("Conv2dTranspose")
def _conv2d_transpose(w: Writer, a: TracedCall) -> Value:
    return w.node(
        "ConvTranspose",
        *a.inputs,
        **window_of(a.settings["window"], group=a.op.groups, output_padding=list(a.op.extra)),
    )


@TABLE.converts("max_pool2d")
def _max_pool2d(w: Writer, a: TracedCall) -> Value:
    return w.node("MaxPool", a.inputs[0], **window_of(a.op.window))


@TABLE.converts("avg_pool2d")
def _avg_pool2d(w: Writer, a: TracedCall) -> Value:
    attributes = window_of(a.op.window, count_include_pad=int(a.settings["count_pad"]))
    if w.opset < 19:
        del attributes["dilations"]  # all 1 there
    return w.node("AveragePool", a.inputs[0], **attributes)


@TABLE.converts("UpsampleNearest")
def _upsample(w: Writer, a: TracedCall) -> Value:
    scales = w.constant([1, 1, *a.op.factor], np.float32)
    modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return w.node("Resize", a.inputs[0], "", scales, **modes)


@TABLE.converts("BatchNormInference")
def _batch_norm(w: Writer, a: TracedCall) -> Value:
    mean, variance = (w.value([tensor]) for tensor in a.op.running)
    return w.node("BatchNormalization", *a.inputs, mean, variance, epsilon=a.op.epsilon)


@TABLE.converts("layer_norm")
def _layer_norm(w: Writer, a: TracedCall) -> Value:
    axis = -len(a.shapes(1)[0])
    return w.node("LayerNormalization", *a.inputs, axis=axis, epsilon=a.settings["epsilon"])


def _has_fused(w: Writer, a: TracedCall) -> bool:
    """Whether there are the operators that came with opset 23, in whose place runtimes compute float64 as float32."""
    return w.opset >= 23 and w.dtype_of(a.dtype) in (np.float16, np.float32)


@TABLE.converts("rms_norm")
def _rms_norm(w: Writer, a: TracedCall) -> Value:
    """gamma * x / sqrt(mean of x**2 + epsilon)."""
    x, gamma = a.inputs
    axes = tuple(range(-len(a.shapes(1)[0]), 0))
    if _has_fused(w, a):
        return w.node("RMSNormalization", x, gamma, axis=axes[0], epsilon=a.settings["epsilon"])
    mean = reduced(w, "ReduceMean", w.node("Mul", x, x), axes, 1)
    deviation = w.node("Sqrt", w.node("Add", mean, w.float(a.settings["epsilon"], a.dtype)))
    return w.node("Mul", w.node("Div", x, deviation), gamma)


@TABLE.converts("l2_norm")
def _l2_norm(w: Writer, a: TracedCall) -> Value:
    """x / sqrt(sum of x**2 over the sample + epsilon)."""
    x, axes = a.inputs[0], w.constant(range(1, a.ndim))
    total = w.node("ReduceSum", w.node("Mul", x, x), axes, keepdims=1)
    epsilon = w.float(a.op.forward_settings["epsilon"], a.dtype)
    return w.node("Div", x, w.node("Sqrt", w.node("Add", total, epsilon)))


@TABLE.converts("lrn")
def _lrn(w: Writer, a: TracedCall) -> Value:
    settings = {name: a.settings[name] for name in ("size", "alpha", "beta")}
    behind = w.constant(range(a.ndim, 4))  # the operator is one of images
    x = w.node("Unsqueeze", a.inputs[0], behind) if a.ndim < 4 else a.inputs[0]
    y = w.node("LRN", x, bias=a.op.forward_settings["k"], **settings)
    return w.node("Squeeze", y, behind) if a.ndim < 4 else y


@TABLE.converts("group_norm")
def _group_norm(w: Writer, a: TracedCall) -> Value:
    """Each group of channels as a row that is normalised, then gamma and beta by channel."""
    x, gamma, beta = a.inputs
    _, groups = a.op.parts
    rows = w.node("Reshape", x, w.constant([0, groups, -1]))
    mean = reduced(w, "ReduceMean", rows, (-1,), 1)
    centred = w.node("Sub", rows, mean)
    variance = reduced(w, "ReduceMean", w.node("Mul", centred, centred), (-1,), 1)
    deviation = w.node("Sqrt", w.node("Add", variance, w.float(a.settings["epsilon"], a.dtype)))
    y = w.node("Reshape", w.node("Div", centred, deviation), w.node("Shape", x))
    y = w.node("Mul", y, broadcast_vector(w, gamma, 1, a.ndim))
    return w.node("Add", y, broadcast_vector(w, beta, 1, a.ndim))


@TABLE.converts("Attention")
def _attention(w: Writer, a: TracedCall) -> Value:
    """softmax(scale * q @ k^T) @ v, head by head; the heads of q in groups, one for each head of k."""
    q, k, v, mask, first = a.inputs
    if a.op.state is not None:
        raise SnapshotError(f"export: wanted no random numbers, received 'attention' with dropout in layer {w.layer!r}")
    if _has_fused(w, a) and not mask and not first:  # there a row that sees no key is NaN
        heads_first = [w.node("Transpose", x, perm=[0, 2, 1, 3]) for x in (q, k, v)]
        settings = {"is_causal": int(a.settings["causal"]), "scale": a.settings["scale"]}
        return w.node("Transpose", w.node("Attention", *heads_first, **settings), perm=[0, 2, 1, 3])
    _, _, heads, size = a.shapes(0)[0]
    groups = a.shapes(1)[0][2]
    rows = w.node("Transpose", q, perm=[0, 2, 1, 3])
    rows = w.node("Reshape", rows, w.constant([0, groups, heads // groups, -1, size]))
    keys = w.node("Unsqueeze", w.node("Transpose", k, perm=[0, 2, 3, 1]), w.constant([2]))
    scores = w.node("Mul", w.node("MatMul", rows, keys), w.float(a.settings["scale"], a.dtype))
    seen = _seen_keys(w, a, q, k, mask, first)
    if seen:
        scores = w.node("Where", seen, scores, w.float(-np.inf, a.dtype))
    weights = w.node("Softmax", scores, axis=-1)
    if mask or first:  # a row may see no key
        weights = w.node("Where", seen, weights, w.float(0.0, a.dtype))
    values = w.node("Unsqueeze", w.node("Transpose", v, perm=[0, 2, 1, 3]), w.constant([2]))
    mixed = w.node("Reshape", w.node("MatMul", weights, values), w.constant([0, heads, -1, size]))
    return w.node("Transpose", mixed, perm=[0, 2, 1, 3])


def _seen_keys(w: Writer, a: TracedCall, q: Value, k: Value, mask: Value, first: Value) -> Value:
    """Which keys each row sees, of a shape that broadcasts to the scores (n, groups, heads, t, s). "": all."""
    found = []
    if mask:
        found.append(w.node("Unsqueeze", w.node("Cast", mask, to=9), w.constant([1, 2, 3])))  # 9: bool
    if a.settings["causal"]:
        row, key = (w.node("Range", *_span(w, x)) for x in (q, k))
        row = w.node("Unsqueeze", row, w.constant([1]))
        found.append(w.node("LessOrEqual", key, row))
        if first:
            begin = w.node("Unsqueeze", w.node("Cast", first, to=7), w.constant([1, 2, 4]))  # 7: int64
            found.append(w.node("GreaterOrEqual", key, begin))
    if not found:
        return ""
    seen, *others = found
    for other in others:
        seen = w.node("And", seen, other)
    return seen


def _span(w: Writer, x: Value) -> tuple[Value, Value, Value]:
    """What Range takes for the steps of x (n, time, ...)."""
    count = w.node("Squeeze", w.node("Shape", x, start=1, end=2))
    return w.constant(0), count, w.constant(1)


@TABLE.converts("rotary")
def _rotary(w: Writer, a: TracedCall) -> Value:
    """(x0 * cos - x1 * sin, x0 * sin + x1 * cos) of the halves of the last axis."""
    x, table = a.inputs
    axis, ndim = a.settings["axis"], a.ndim
    if _has_fused(w, a) and (axis, ndim) == (1, 4):
        return _fused_rotary(w, a)
    cos, sin = (_angles(w, table, index, ndim - 2 - axis) for index in (0, 1))
    half = a.shapes()[0][-1] // 2
    x0, x1 = w.multi_output_node("Split", 2, x, w.constant([half, half]), axis=-1)
    turned = [
        w.node("Sub", w.node("Mul", x0, cos), w.node("Mul", x1, sin)),
        w.node("Add", w.node("Mul", x0, sin), w.node("Mul", x1, cos)),
    ]
    return w.node("Concat", *turned, axis=-1)


def _fused_rotary(w: Writer, a: TracedCall) -> Value:
    """By one node, which takes heads side by side and the position of each step."""
    x, table = a.inputs
    _, _, heads, size = a.shapes()[0]
    extents = w.numbers(w.extents([shape[:2] for shape in a.shapes()]))
    positions = w.node("Expand", w.node("Range", *_span(w, x)), extents)
    side = w.node("Reshape", x, w.constant([0, 0, heads * size]))
    tables = [_angles(w, table, index, 0) for index in (0, 1)]
    turned = w.node("RotaryEmbedding", side, *tables, positions, num_heads=heads)
    return w.node("Reshape", turned, w.constant([0, 0, heads, size]))


def _angles(w: Writer, table: Value, index: int, behind: int) -> Value:
    """Cosines or sines (time, half), with axes of extent 1 between for what lies behind time."""
    part = w.node("Gather", table, w.constant(index), axis=0)
    return w.node("Unsqueeze", part, w.constant(range(1, behind + 1))) if behind else part
