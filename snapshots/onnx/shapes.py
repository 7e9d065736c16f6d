"""Converters of operations that move elements: shapes, parts, margins, rows by ids."""

from __future__ import annotations

from typing import Any

from onnx import NodeProto

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.onnx.calls import Table, TracedCall
from singa_lite.snapshots.onnx.writer import TO_END, Value, Writer

TABLE = Table()


@TABLE.converts("Reshape")
def _reshape(w: Writer, a: TracedCall) -> Value:
    """A product of the rows of a tensor, in the tensor's shape again, is one product of the tensor."""
    product = w.maker(a.inputs[0], "Gemm")
    rows = product and w.maker(product.input[0], "Reshape")
    if product and rows and [shape[:-1] for shape in w.shapes[rows.output[0]]] == [shape[:-1] for shape in a.results()]:
        return _product(w, rows.input[0], product)
    y = w.reshaped(a.inputs[0], a.results(), a.shapes())
    w.shapes[y] = a.shapes()
    return y


def _product(w: Writer, x: Value, gemm: NodeProto) -> Value:
    """x @ weight + bias of a node for rows."""
    _, weight, *bias = gemm.input
    if any(attribute.name == "transB" and attribute.i for attribute in gemm.attribute):
        weight = w.node("Transpose", weight, perm=[1, 0])
    y = w.node("MatMul", x, weight)
    return w.node("Add", y, *bias) if bias else y


@TABLE.converts("Transpose")
def _transpose(w: Writer, a: TracedCall) -> Value:
    return w.node("Transpose", a.inputs[0], perm=list(a.op.axes))


@TABLE.converts("Identity")
def _identity(w: Writer, a: TracedCall) -> Value:
    return a.inputs[0]


@TABLE.converts("Split")
def _split(w: Writer, a: TracedCall) -> list[Value]:
    axis = a.op.axis
    lengths = [[t.shape[axis] for t in call.outputs] for call in a.calls]
    if len(lengths[0]) == 1:
        return [a.inputs[0]]
    return w.multi_output_node("Split", len(lengths[0]), a.inputs[0], w.numbers(w.extents(lengths)), axis=axis)


@TABLE.converts("Concat")
def _concat(w: Writer, a: TracedCall) -> Value:
    return w.node("Concat", *a.inputs, axis=a.op.axis)


@TABLE.converts("Slice")
def _slice(w: Writer, a: TracedCall) -> Value:
    traced = [(op.spans, whole) for op, whole in zip(a.ops, a.shapes(), strict=True)]
    axes = [axis for axis in range(a.ndim) if any(tuple(spans[axis]) != (0, whole[axis], 1) for spans, whole in traced)]
    if not axes:
        return a.inputs[0]
    starts = w.extents(a.traced_numbers(lambda op: [op.spans[axis].start for axis in axes]))
    stops = w.extents(a.traced_numbers(lambda op: [_stop(op.spans[axis]) for axis in axes]))
    steps = w.extents(a.traced_numbers(lambda op: [op.spans[axis].step for axis in axes]))
    return w.sliced(a.inputs[0], axes, *map(w.numbers, (starts, stops, steps)))


def _stop(span: tuple[int, int, int]) -> int:
    start, extent, step = span
    return start + (extent - 1) * step + 1 if extent else start


@TABLE.converts("flip")
def _flip(w: Writer, a: TracedCall) -> Value:
    axes = list(a.settings["axes"])
    backwards, ends = w.constant([-1] * len(axes)), w.constant([-TO_END] * len(axes))
    return w.sliced(a.inputs[0], axes, backwards, ends, backwards)


@TABLE.converts("Pad")
def _pad(w: Writer, a: TracedCall) -> Value:
    margins = a.op.margins
    pads = [before for before, _ in margins] + [behind for _, behind in margins]
    return w.node("Pad", a.inputs[0], w.constant(pads))


@TABLE.converts("copy")
def _copy(w: Writer, a: TracedCall) -> Value:
    """The same elements, broadcast."""
    if a.shapes() == a.results():
        return a.inputs[0]
    return w.node("Expand", a.inputs[0], w.numbers(w.extents(a.results())))


@TABLE.converts("_FunctionCall")
def _own_function(w: Writer, a: TracedCall) -> list[Value]:
    """By the class of the user's, where it says how."""

    def node(kind: str, *inputs: Value, outputs: int = 1, **attributes: Any) -> Value | list[Value]:
        made = w.multi_output_node(kind, outputs, *inputs, **attributes)
        return made[0] if outputs == 1 else made

    try:
        made = a.op.function.onnx(node, *a.inputs)
    except NotImplementedError:
        raise SnapshotError(
            f"export: wanted an autograd.Function with a method onnx, received {a.op.label!r} without one in layer "
            f"{w.layer!r}"
        ) from None
    return [made] if isinstance(made, str) else list(made)


@TABLE.converts("Embedding")
def _embedding(w: Writer, a: TracedCall) -> Value:
    ids, weight = a.inputs
    rows = w.node("Gather", weight, ids)
    return rows if a.tensor(1).dtype == a.dtype else w.cast(rows, a.dtype)
