"""Converters of recurrent layers: LSTM, GRU and RNN nodes, or a Scan where a mask holds states back."""

from __future__ import annotations

from typing import Any

import numpy as np

from singa_lite.snapshots.onnx.calls import Table, TracedCall
from singa_lite.snapshots.onnx.writer import Value, Writer
from singa_lite.tensor import Shape

TABLE = Table()

#: {kernel: (operator, how its gates stand by the places of ours, states that go on)}
_KINDS = {
    "lstm": ("LSTM", (0, 3, 1, 2), ("hidden", "cell")),
    "gru": ("GRU", (1, 0, 2), ("hidden",)),
    "simple_rnn": ("RNN", (0,), ("hidden",)),
}


@TABLE.converts("lstm", "gru", "simple_rnn")
def _recurrent(w: Writer, a: TracedCall) -> list[Value]:
    """[y, the last states]."""
    kernel = a.op.kernel
    gates, weight, *others = a.inputs
    others += [""] * (5 - len(a.inputs))
    bias = others.pop(0) if kernel == "gru" else ""
    kinds = _KINDS[kernel][2]
    states, mask = others[: len(kinds)], others[len(kinds)]
    before, found, behind = a.tensor(1).name.partition("weight_hh")
    names = [before + kind + behind for kind in kinds if found]
    kept = [name for name in names if name in w.owned]  # of a stateful layer
    if kept:
        states = [w.states[name][0] if name in w.states else w.input(name, a.dtype, _extents(a)) for name in kept]
    made = _scan(w, a, gates, weight, bias, states, mask) if mask else _node(w, a, gates, weight, bias, states)
    w.states |= {name: (final, a.dtype, _extents(a)) for name, final in zip(kept, made[1:], strict=False)}
    return made


def _extents(a: TracedCall) -> list[Shape]:
    """The shape of a state in each trace."""
    (units, *_), *_ = a.shapes(1)
    return [(gates[1], units) for gates in a.shapes()]


def _node(w: Writer, a: TracedCall, gates: Value, weight: Value, bias: Value, states: list[Value]) -> list[Value]:
    kind, order, kinds = _KINDS[a.op.kernel]
    units = a.shapes(1)[0][0]
    x, into, added = _product_before(w, a, gates)
    if not x:  # gates that no product of all steps made
        x, into, added = gates, w.constant(np.eye(len(order) * units), w.dtype_of(a.dtype)), ""
    matrices = [_ordered(w, matrix, order) for matrix in (into, weight)]
    biases = _biases(w, a, added, bias, order, units)
    starts = ["" if not state else w.node("Unsqueeze", state, w.constant([0])) for state in states]
    attributes = {"hidden_size": units, "direction": "reverse" if a.op.reverse else "forward", **_activations(a)}
    if kind == "GRU":
        attributes["linear_before_reset"] = int(a.settings["reset_after"])
    y, *last = w.multi_output_node(kind, 1 + len(kinds), x, *matrices, biases, "", *starts, **attributes)
    final = [w.node("Squeeze", state, w.constant([0])) for state in last]
    return [final[0] if a.op.last else w.node("Squeeze", y, w.constant([1])), *final]


def _product_before(w: Writer, a: TracedCall, gates: Value) -> tuple[Value, Value, Value]:
    """What the product of all steps took, which made the gates: x (time, n, features), weight and bias."""
    added = w.maker(gates, "Add")
    product = w.maker(added.input[0] if added else gates, "MatMul")
    bias = added.input[1] if added else ""
    is_bias = bias in w.weights and len(w.weights[bias].shape) == 1
    if not product or (bias and not is_bias):
        return "", "", ""
    return product.input[0], product.input[1], bias


def _ordered(w: Writer, matrix: Value, order: tuple[int, ...]) -> Value:
    """(rows, gates * h) as (1, gates * h, rows), the gates in ONNX's order."""
    return w.node("Unsqueeze", w.node("Transpose", _gates(w, matrix, order, 1), perm=[1, 0]), w.constant([0]))


def _gates(w: Writer, value: Value, order: tuple[int, ...], axis: int) -> Value:
    if len(order) == 1:
        return value
    options = {"num_outputs": len(order)} if w.opset >= 18 else {}
    pieces = w.multi_output_node("Split", len(order), value, axis=axis, **options)
    return w.node("Concat", *(pieces[place] for place in order), axis=axis)


def _biases(w: Writer, a: TracedCall, added: Value, bias: Value, order: tuple[int, ...], units: int) -> Value:
    """(1, 2 * gates * h): of the product of all steps, then of the product with the state."""
    if not added and not bias:
        return ""
    zeros = w.constant(np.zeros(len(order) * units), w.dtype_of(a.dtype))
    both = [_gates(w, one, order, 0) if one else zeros for one in (added, bias)]
    return w.node("Unsqueeze", w.node("Concat", *both, axis=0), w.constant([0]))


def _activations(a: TracedCall) -> dict[str, Any]:
    if a.op.kernel == "simple_rnn":
        return {"activations": [{"tanh": "Tanh", "relu": "Relu"}[a.settings["activation"]]]}
    if a.settings["recurrent_activation"] == "sigmoid":
        return {}
    tanhs = ["Tanh"] * (2 if a.op.kernel == "lstm" else 1)
    return {"activations": ["HardSigmoid", *tanhs], "activation_alpha": [1 / 6], "activation_beta": [0.5]}


def _scan(
    w: Writer,
    a: TracedCall,
    gates: Value,
    weight: Value,
    bias: Value,
    states: list[Value],
    mask: Value,
) -> list[Value]:
    """A step of the layer for each step of time; a step whose mask is 0 leaves the states."""
    starts = [state or w.node("Expand", w.float(0.0, a.dtype), w.numbers(w.extents(_extents(a)))) for state in states]
    steps = w.node("Unsqueeze", w.node("Transpose", w.node("Cast", mask, to=9), perm=[1, 0]), w.constant([2]))  # bool

    def body(*given: Value) -> list[Value]:
        *before, gate, counts = given
        after = _CELLS[a.op.kernel](w, a, gate, weight, bias, before)
        moved = [w.node("Where", counts, new, old) for new, old in zip(after, before, strict=True)]
        return [*moved, w.node("Identity", moved[0])]

    direction = {"scan_input_directions": [1, 1], "scan_output_directions": [1]} if a.op.reverse else {}
    *final, y = w.scan(body, starts, [gates, steps], **direction)
    return [final[0] if a.op.last else y, *final]


def _gate(w: Writer, a: TracedCall, value: Value) -> Value:
    """The activation of a gate."""
    if a.settings["recurrent_activation"] == "sigmoid":
        return w.node("Sigmoid", value)
    return w.node("HardSigmoid", value, alpha=1 / 6, beta=0.5)


def _pieces(w: Writer, value: Value, count: int) -> list[Value]:
    options = {"num_outputs": count} if w.opset >= 18 else {}
    return w.multi_output_node("Split", count, value, axis=1, **options)


def _lstm_cell(w: Writer, a: TracedCall, gate: Value, weight: Value, bias: Value, before: list[Value]) -> list[Value]:
    """c' = f * c + i * g; h' = o * tanh(c')."""
    hidden, cell = before
    i, f, g, o = _pieces(w, w.node("Add", gate, w.node("MatMul", hidden, weight)), 4)
    kept = w.node("Mul", _gate(w, a, f), cell)
    cell = w.node("Add", kept, w.node("Mul", _gate(w, a, i), w.node("Tanh", g)))
    return [w.node("Mul", _gate(w, a, o), w.node("Tanh", cell)), cell]


def _gru_cell(w: Writer, a: TracedCall, gate: Value, weight: Value, bias: Value, before: list[Value]) -> list[Value]:
    """h' = n + z * (h - n)."""
    (hidden,) = before
    given, units = _pieces(w, gate, 3), a.shapes(1)[0][0]
    if a.settings["reset_after"]:
        product = w.node("MatMul", hidden, weight)
        r, z, n = _pieces(w, product if not bias else w.node("Add", product, bias), 3)
        reset, update = (_gate(w, a, w.node("Add", x, y)) for x, y in zip(given, (r, z), strict=False))
        new = w.node("Tanh", w.node("Add", given[2], w.node("Mul", reset, n)))
    else:
        sizes = w.constant([2 * units, units])
        both, last = w.multi_output_node("Split", 2, weight, sizes, axis=1)
        product = w.node("MatMul", hidden, both)
        added = ["", ""] if not bias else w.multi_output_node("Split", 2, bias, sizes, axis=0)
        r, z = _pieces(w, product if not added[0] else w.node("Add", product, added[0]), 2)
        reset, update = (_gate(w, a, w.node("Add", x, y)) for x, y in zip(given, (r, z), strict=False))
        product = w.node("MatMul", w.node("Mul", reset, hidden), last)
        product = product if not added[1] else w.node("Add", product, added[1])
        new = w.node("Tanh", w.node("Add", given[2], product))
    return [w.node("Add", new, w.node("Mul", update, w.node("Sub", hidden, new)))]


def _rnn_cell(w: Writer, a: TracedCall, gate: Value, weight: Value, bias: Value, before: list[Value]) -> list[Value]:
    """h' = activation(gates + h @ weight)."""
    kind = {"tanh": "Tanh", "relu": "Relu"}[a.settings["activation"]]
    return [w.node(kind, w.node("Add", gate, w.node("MatMul", before[0], weight)))]


_CELLS = {"lstm": _lstm_cell, "gru": _gru_cell, "simple_rnn": _rnn_cell}
