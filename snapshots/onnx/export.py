"""A net's predictions as a file of ONNX."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from singa_lite.common.array_types import Array
from singa_lite.common.atomic import replacing, write_all
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.onnx import elements, products, recurrent, shapes
from singa_lite.snapshots.onnx.calls import CONVERTERS, Applied, name_of
from singa_lite.snapshots.onnx.trace import Call, Trace, symbols_of, traces
from singa_lite.snapshots.onnx.writer import Writer, initializer, tensor_type
from singa_lite.tensor import Tensor, to_numpy
from singa_lite.training.trained_net import TrainedNet

#: The versions of ONNX's operators that can be written.
OPSETS = range(17, 24)
#: Bytes of initializers above which they go to a file of their own: a message of protobuf holds less than 2 GiB.
MOST_WITHIN = 1 << 30
assert elements and products and recurrent and shapes  # they enter their converters


def export(net: TrainedNet, path: str | os.PathLike[str], opset: int = 21, dtype: Any = None) -> None:
    """Write the net's predictions, see `FeedForwardNet.export`."""
    if opset not in OPSETS:
        raise ValueError(f"export opset: wanted one of {OPSETS.start} to {OPSETS[-1]}, received {opset!r}")
    found = traces(net)
    owned = {**{t.name: t for t in net.constants()}, **net.frozen(), **net.states(), **net.parameters()}
    writer = Writer(found, opset, owned, None if dtype is None else np.dtype(dtype))
    _convert(writer, found)
    model = _model(net, writer, found)
    _write(model, {name: held for name, held in writer.held.items() if name in _used(model)}, path, writer)


def _convert(writer: Writer, found: list[Trace]) -> None:
    for name, tensor in found[0].inputs.items():
        writer.bind(tensor, writer.unique(name))
    for calls in zip(*(trace.calls for trace in found), strict=True):
        _convert_call(writer, calls)
    for name in found[0].outputs:
        writer.layer = ""
        writer.nodes.append(helper.make_node("Identity", [writer.value([trace.outputs[name] for trace in found])], [_output(name, found[0])], f"{name}/output"))


def _output(name: str, trace: Trace) -> str:
    return f"{name}/output" if name in trace.inputs else name


def _convert_call(writer: Writer, calls: tuple[Call, ...]) -> None:
    call = calls[0]
    writer.layer = call.layer
    converter = CONVERTERS.get(name_of(call.of))
    if converter is None:
        raise SnapshotError(
            f"export: wanted operations that ONNX has, received {name_of(call.of)!r} in layer {call.layer!r}"
        )
    values = [writer.value(tensors) if tensors[0] is not None else None for tensors in zip(*(c.inputs for c in calls), strict=True)]
    made = converter(writer, Applied(calls, values))
    for tensor, value in zip(call.outputs, made if isinstance(made, list) else [made], strict=False):
        writer.bind(tensor, value)


def _model(net: TrainedNet, writer: Writer, found: list[Trace]) -> onnx.ModelProto:
    """The graph without weights: nodes that the outputs need."""
    trace, fed = found[0], net.input_shapes()
    inputs = [
        helper.make_tensor_value_info(
            name, tensor_type(writer.dtype_of(tensor.dtype)), symbols_of(name, fed, trace.sizes)
        )
        for name, tensor in trace.inputs.items()
    ]
    outputs = [
        helper.make_tensor_value_info(
            _output(name, trace), tensor_type(writer.dtype_of(tensor.dtype)), _shape(writer, [t.outputs[name] for t in found])
        )
        for name, tensor in trace.outputs.items()
    ]
    graph = helper.make_graph(_needed(writer.nodes, [info.name for info in outputs]), "net", inputs, outputs)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", writer.opset)], producer_name="singa_lite", ir_version=10
    )


def _shape(writer: Writer, tensors: list[Tensor]) -> list[int | str | None]:
    """The extents of an output: numbers, symbols, or None for what is computed of them."""
    found = writer.extents([tensor.shape for tensor in tensors])
    return [
        one.constant if one and not one.factor else one.symbols[0] if one and one[:2] == (0, 1) else None for one in found
    ]


def _needed(nodes: list[onnx.NodeProto], outputs: list[str]) -> list[onnx.NodeProto]:
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            kept.append(node)
            wanted.update(_read(node))
    return kept[::-1]


def _read(node: onnx.NodeProto) -> set[str]:
    """What a node reads, in the graphs within it too."""
    within = [inner for attribute in node.attribute if attribute.HasField("g") for inner in attribute.g.node]
    return set(node.input).union(*map(_read, within))


def _used(model: onnx.ModelProto) -> set[str]:
    return set[str]().union(*map(_read, model.graph.node))


def _write(model: onnx.ModelProto, held: Mapping[str, Tensor | Array | Callable[[], Array]], path: str | os.PathLike[str], writer: Writer) -> None:
    for name, value in held.items():
        array = to_numpy(value) if isinstance(value, Tensor) else value() if callable(value) else value
        model.graph.initializer.append(initializer(name, array.astype(writer.dtype_of(array.dtype), copy=False)))
    onnx.checker.check_model(model, full_check=True)
    with replacing(path) as file:
        write_all(file, model.SerializeToString())
