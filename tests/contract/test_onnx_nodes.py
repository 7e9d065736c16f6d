"""Each operator that `models.from_onnx` knows: the net gives what ONNX Runtime gives, at two batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from every_row import over_rows
from onnx_runs import run
from singa_lite import models
from singa_lite.layers.onnx.table import TENSORS
from skips import library

onnx = library("onnx")
RNG = np.random.default_rng(2)


class Row(NamedTuple):
    """A graph of one node or several with input x (n, *shape). arrays: what else they take, a, b, ..."""

    nodes: list[Any]
    arrays: Sequence[np.ndarray] = ()
    shape: tuple[int, ...] = (4, 6)
    opset: int = 21
    positive: bool = False


def node(kind: str, *inputs: str, to: Any = "y", **attributes: Any) -> Any:
    """A node, called as what it makes."""
    return onnx.helper.make_node(kind, list(inputs), [to] if isinstance(to, str) else to, f"node_{to}", **attributes)


def one(kind: str, *arrays: Any, **options: Any) -> Row:
    """One node of x and arrays; options of the row, and attributes."""
    row = {name: options.pop(name) for name in ("shape", "opset", "positive") if name in options}
    held = [np.asarray(array) for array in arrays]
    return Row([node(kind, "x", *"abcdefg"[: len(held)], **options)], held, **row)


def floats(*shape: int) -> np.ndarray:
    """Random numbers."""
    return RNG.normal(size=shape).astype("f4")


def chosen(kind: str, *inputs: str, arrays: Any = ()) -> Row:
    """What a comparison or another node of masks gives, as numbers."""
    return Row([node(kind, *inputs, to="m"), node("Where", "m", "x", "z")], [*arrays, np.float32(-2)])


def masks(kind: str) -> Row:
    """Of two masks."""
    both = [node("Less", "x", "a", to="less"), node("Greater", "x", "b", to="more"), node(kind, "less", "more", to="m")]
    return Row([*both, _cast("m")], [np.float32(0.4), np.float32(-0.3)])


def _cast(name: str) -> Any:
    """Its numbers, as y."""
    return onnx.helper.make_node("Cast", [name], ["y"], "Cast", to=1)


IMAGE = (4, 7, 6)
SHORT = (4, 9)
SIGNED = np.float32([-5, 5, 3, -3, 4.5, -2])
#: A number between 0.5 and 1 that depends on x, of no axes.
LARGEST = [node("ReduceMax", "x", to="largest", keepdims=0), node("Sigmoid", "largest", to="high")]
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
#: Activations, and numbers of one HardSigmoid or of two.
HARD, BEHIND = ["HardSigmoid", "Tanh"], ["Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Tanh", "Tanh"]
SIXTH, SIXTHS = ({"activation_alpha": [1 / 6] * n, "activation_beta": [0.5] * n} for n in (1, 2))


def recurrent(kind: str, directions: int = 1, **attributes: Any) -> Row:
    """x (n, time, features), whose time comes first on the way in and out."""
    rows = GATES[kind] * 3
    arrays = [floats(directions, rows, 6), floats(directions, rows, 3), floats(directions, 2 * rows)]
    inner = node(kind, "t", "a", "b", "c", to=["s", "h"], hidden_size=3, **attributes)
    before, behind = node("Transpose", "x", to="t", perm=[1, 0, 2]), node("Transpose", "s", to="u", perm=[2, 0, 1, 3])
    last = [node("Transpose", "h", to="v", perm=[1, 0, 2]), node("Flatten", "v", to="w")]
    return Row(
        [before, inner, behind, node("Flatten", "u", to="flat"), *last, node("Concat", "flat", "w", axis=1)], arrays
    )


ROWS: dict[str, Row] = {
    **{k: one(k) for k in ("Relu", "Sigmoid", "Tanh", "Softplus", "Exp", "Abs", "Identity", "Neg", "Dropout", "Erf")},
    **{k: one(k, positive=True) for k in ("Log", "Sqrt", "Reciprocal")},
    **{k: one(k, floats(4, 1) + 3) for k in ("Add", "Sub", "Mul", "Div", "Max", "Min")},
    "Sum": one("Sum", floats(4, 6), floats(6)),
    "Sub:from": Row([node("Sub", "a", "x")], [np.float32(1.5)]),
    "Pow": one("Pow", np.float32(3)),
    "Pow:root": one("Pow", np.float32([0.5]), positive=True),
    **{k: chosen(k, "x", "a", arrays=[floats(6)]) for k in ("Less", "LessOrEqual", "Greater", "GreaterOrEqual")},
    "Equal": chosen("Equal", "x", "x"),
    **{k: masks(k) for k in ("And", "Or")},
    "Not": Row([node("Less", "x", "a", to="l"), node("Not", "l", to="m"), _cast("m")], [np.float32(0)]),
    "Gelu": one("Gelu"),
    "Gelu:tanh": one("Gelu", approximate="tanh"),
    "LeakyRelu": one("LeakyRelu", alpha=0.3),
    "Elu": one("Elu", alpha=0.7),
    "PRelu": one("PRelu", floats(4, 1)),
    "HardSigmoid": one("HardSigmoid", alpha=0.3),
    "HardSwish": one("HardSwish"),
    "Clip": one("Clip", np.float32(-0.5), np.float32(0.25)),
    "Clip:attributes": one("Clip", min=-0.5, opset=7),
    "Clip:computed": Row([*LARGEST, node("Clip", "x", "a", "high")], [np.float32(-0.5)]),
    "Clip:from computed": Row(
        [*LARGEST, node("Clip", "a", "", "high", to="most"), node("Add", "x", "most")], [floats(4, 6)]
    ),
    "Softmax": one("Softmax", axis=1),
    "Softmax:of all axes": one("Softmax", opset=11),
    **{k: one(k, np.array([1]), keepdims=0, opset=18) for k in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")},
    "ReduceMean:attribute": one("ReduceMean", axes=[-1], opset=13),
    "Flatten": one("Flatten"),
    "Reshape": one("Reshape", np.array([0, -1, 3])),
    "Transpose": one("Transpose", perm=[0, 2, 1]),
    "Unsqueeze": one("Unsqueeze", np.array([1, -1])),
    "Squeeze": Row([node("Unsqueeze", "x", "a", to="u"), node("Squeeze", "u", "a")], [np.array([2])]),
    "Concat": Row([node("Concat", "x", "x", axis=-1)]),
    "Split": Row(
        [node("Split", "x", "a", to=["p", "q"], axis=2), node("Concat", "q", "p", axis=2)], [np.array([2, 4])]
    ),
    "Slice": one("Slice", np.array([-1, 1]), np.array([-100, 5]), np.array([1, 2]), np.array([-1, 2])),
    "Gather": one("Gather", np.array([[2, -1], [0, 0]]), axis=1),
    "Gather:one": one("Gather", np.array(-2), axis=2),
    "Expand": one("Expand", np.array([1, 4, 1]), shape=(1, 6)),
    "Pad": one("Pad", np.array([0, 1, 0, 0, 0, 2])),
    "MatMul": one("MatMul", floats(6, 5)),
    "Gemm": Row(
        [node("Flatten", "x", to="flat"), node("Gemm", "flat", "a", "b", alpha=0.5, beta=2.0)],
        [floats(24, 5), floats(5)],
    ),
    "Conv": one("Conv", floats(6, 2, 3, 2), floats(6), shape=IMAGE, group=2, pads=[1, 0, 2, 1], strides=[2, 1]),
    "Conv:row": one("Conv", floats(5, 4, 3), shape=SHORT, dilations=[2], pads=[2, 1]),
    "Conv:same": one("Conv", floats(5, 4, 4, 3), shape=IMAGE, auto_pad="SAME_LOWER", strides=[2, 1]),
    "ConvTranspose": one("ConvTranspose", floats(4, 5, 3, 2), shape=IMAGE, strides=[2, 2], output_padding=[1, 0]),
    "MaxPool": one("MaxPool", shape=IMAGE, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1),
    "AveragePool": one("AveragePool", shape=IMAGE, kernel_shape=[3, 2], pads=[1, 0, 1, 1]),
    "AveragePool:row": one("AveragePool", shape=SHORT, kernel_shape=[3], strides=[2], pads=[1, 1], count_include_pad=1),
    "GlobalAveragePool": one("GlobalAveragePool", shape=IMAGE),
    "GlobalMaxPool": one("GlobalMaxPool", shape=SHORT),
    "MaxPool:unused places": one("MaxPool", shape=IMAGE, kernel_shape=[3, 2], to=["y", "places"]),
    "Resize": Row([node("Resize", "x", "", "a")], [np.float32([1, 1, 2, 3])], IMAGE),
    "Upsample": one("Upsample", np.float32([1, 1, 2, 3]), shape=IMAGE, opset=9),
    "Upsample:attribute": one("Upsample", shape=IMAGE, opset=7, scales=[1.0, 1.0, 3.0, 2.0]),
    "BatchNormalization": one("BatchNormalization", *(abs(floats(4)) for _ in range(4)), epsilon=1e-3, shape=IMAGE),
    "LayerNormalization": one("LayerNormalization", floats(6), floats(6), epsilon=1e-3),
    "LayerNormalization:unused mean": one("LayerNormalization", floats(6), to=["y", "mean", "deviation"]),
    "Dropout:unused mask": one("Dropout", to=["y", "mask"]),
    "Split:unused part": one("Split", axis=2, num_outputs=3, to=["y", "second", "third"]),
    "LRN": one("LRN", shape=IMAGE, size=3, alpha=0.1),
    **{f"{k}:opset 7": one(k, axes=[1], keepdims=0, opset=7) for k in ("ReduceSum", "ReduceMax")},
    "Slice:opset 7": one("Slice", starts=[-3, 1], ends=[100, -1], axes=[1, 2], opset=7),
    "Pad:opset 7": one("Pad", pads=[0, 1, 0, 0, 0, 2], opset=7),
    "Unsqueeze:opset 7": one("Unsqueeze", axes=[1, 3], opset=7),
    "Squeeze:opset 7": one("Squeeze", axes=[1], shape=(1, 6), opset=7),
    "Split:opset 7": Row(
        [node("Split", "x", to=["p", "q"], axis=2, split=[2, 4]), node("Concat", "q", "p", axis=2)], opset=7
    ),
    "Resize:opset 10": one("Resize", np.float32([1, 1, 2, 3]), shape=IMAGE, opset=10),
    "BatchNormalization:opset 7": one("BatchNormalization", *(abs(floats(4)) for _ in range(4)), opset=7),
    "Dropout:opset 7": one("Dropout", ratio=0.3, opset=7),
    "Mod:fmod": Row([node("Mod", "a", "b", to="m", fmod=1), node("Add", "x", "m")], [SIGNED, SIGNED[::-1]]),
    "LSTM": recurrent("LSTM", 2, direction="bidirectional"),
    "LSTM:hard": recurrent("LSTM", 2, direction="bidirectional", activations=[*HARD, "Tanh"] * 2, **SIXTHS),
    "LSTM:hard behind": recurrent("LSTM", 2, direction="bidirectional", activations=BEHIND, **SIXTH),
    "GRU": recurrent("GRU", direction="reverse"),
    "GRU:hard": recurrent("GRU", direction="forward", activations=HARD, **SIXTH),
    "GRU:reset after": recurrent("GRU", direction="forward", linear_before_reset=1),
    "RNN": recurrent("RNN", direction="forward", activations=["Relu"]),
    "Shape": Row(
        [
            *(node("Shape", "x", to="s"), node("Gather", "s", "a", to="n"), node("Concat", "n", "b", to="t", axis=0)),
            node("Reshape", "x", "t"),
        ],
        [np.array([0]), np.array([8, 3])],
    ),
    "Size": Row(
        [
            node("Size", "x", to="s"),
            node("Div", "s", "a", to="n"),
            node("Concat", "n", "b", to="t", axis=0),
            node("Reshape", "x", "t"),
        ],
        [np.array([24]), np.array([-1])],
    ),
}


def test_each_operator_of_tensors(tmp_path: Path) -> None:
    assert {one.op_type for row in ROWS.values() for one in row.nodes} >= TENSORS.keys()
    over_rows(gives_what_the_runtime_gives, ((name, (row, tmp_path)) for name, row in ROWS.items()))


def gives_what_the_runtime_gives(row: Row, tmp_path: Path) -> None:
    """The row's graph, to 1e-5 of the largest value."""
    path = tmp_path / "net.onnx"
    names = [name for name in "abcdefgz" if any(name in one.input for one in row.nodes)]
    arrays = [onnx.numpy_helper.from_array(array, name) for array, name in zip(row.arrays, names, strict=True)]
    ends = [
        onnx.helper.make_tensor_value_info("x", 1, ["n", *row.shape]),
        onnx.helper.make_empty_tensor_value_info("y"),
    ]
    graph = onnx.helper.make_graph(row.nodes, "net", ends[:1], ends[1:], arrays)
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", row.opset)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(made), path)
    net = models.from_onnx(path)
    for batch in (1, 3):
        x = floats(batch, *row.shape)
        x = abs(x) + 0.1 if row.positive else x
        (right,) = run(path, {"x": x})
        np.testing.assert_allclose(net.predict(x), right, rtol=0, atol=1e-5 * np.abs(right).max())
