"""A net's predictions as a file of ONNX."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import DTypeLike
from onnx import helper

from singa_lite.common import checks
from singa_lite.common.array_types import DType
from singa_lite.common.checks import is_bfloat16, is_int
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.onnx import elements, products, recurrent, shapes
from singa_lite.snapshots.onnx.calls import TracedCall, label_of, name_of
from singa_lite.snapshots.onnx.file import check, write
from singa_lite.snapshots.onnx.trace import Call, Trace, traces
from singa_lite.snapshots.onnx.writer import Value, Writer
from singa_lite.tensor import checked_dtype
from singa_lite.training.trained_net import TrainedNet

#: The versions of ONNX's operators that can be written.
OPSETS = range(17, 24)
#: The version of the file's form: the one that came with opset 21, or 23.
IR_VERSIONS = {22: 10, 23: 11}
#: The operation and its setting that is of a batch's size: one by the number of elements.
_OF_MEANS = "reduce_sum", "alpha"
#: {name of an operation: what writes its nodes}
CONVERTERS = {**elements.TABLE, **products.TABLE, **recurrent.TABLE, **shapes.TABLE}


def export(net: TrainedNet, path: str | os.PathLike[str], opset: int = 21, dtype: DTypeLike | None = None) -> None:
    """Write the net's predictions, see `FeedForwardNet.export`."""
    if not is_int(opset) or opset not in OPSETS:
        raise ValueError(f"export opset: wanted one of {OPSETS.start} to {OPSETS[-1]}, received {opset!r:.100}")
    net.check_usable()
    name, found = checks.path("export", path), traces(net)
    owned = {**{t.name: t for t in net.constants()}, **net.frozen(), **net.states(), **net.parameters()}
    writer = Writer(found, opset, owned, None if dtype is None else _float("export dtype", dtype))
    _convert(writer, found)
    model = _model(writer)
    used = _used(model)
    model.graph.initializer.extend(constant for name, constant in writer.constants.items() if name in used)
    weights = {name: weight for name, weight in writer.weights.items() if name in used}
    try:
        check(model, weights)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise SnapshotError(
            f"export opset {opset}: wanted a graph that onnx.checker accepts, received: {error}"
        ) from error
    write(name, model, weights)


def _convert(writer: Writer, found: Sequence[Trace]) -> None:
    for name in found[0].inputs:
        tensors = [trace.inputs[name] for trace in found]
        writer.bind(tensors, writer.input(name, tensors[0].dtype, [one.shape for one in tensors]))
    for calls in zip(*(trace.calls for trace in found), strict=True):
        _convert_call(writer, calls)
    for name, tensor in found[0].outputs.items():
        tensors = [trace.outputs[name] for trace in found]
        writer.output(name, writer.value(tensors), tensor.dtype, [one.shape for one in tensors])
    for name, state in writer.states.items():
        writer.output(name, *state)


def _convert_call(writer: Writer, calls: tuple[Call, ...]) -> None:
    call = calls[0]
    _check_equal(calls)
    writer.layer = call.layer
    converter = CONVERTERS.get(name_of(call.of))
    if converter is None:
        raise SnapshotError(
            f"export: wanted operations that ONNX has, received {label_of(call.of)!r} in layer {call.layer!r}"
        )
    values = [
        writer.value(tensors) if tensors[0] is not None else ""
        for tensors in zip(*(c.inputs for c in calls), strict=True)
    ]
    values = _widened(writer, call, values)
    made = converter(writer, TracedCall(calls, values))
    results = zip(*(c.outputs for c in calls), strict=True)
    for tensors, value in zip(results, made if isinstance(made, list) else [made], strict=False):
        writer.bind(tensors, value)


def _check_equal(calls: Sequence[Call]) -> None:
    """SnapshotError for settings that depend on a batch's size: a file would have those of one size."""
    for call in calls[1:]:
        settings = {name: value for name, value in call.settings.items() if (name_of(call.of), name) != _OF_MEANS}
        pairs = {name: (value, calls[0].settings.get(name)) for name, value in settings.items()}
        # NaN is no other number than NaN.
        differing = [name for name, (one, other) in pairs.items() if one != other and (one == one or other == other)]
        if differing:
            raise SnapshotError(
                f"export: wanted numbers that do not depend on the size of a batch, received {differing[0]!r} of "
                f"{label_of(call.of)!r} in layer {call.layer!r}: {calls[0].settings[differing[0]]} and "
                f"{call.settings[differing[0]]}"
            )


def _widened(writer: Writer, call: Call, values: Sequence[Value]) -> list[Value]:
    """The inputs of an operation, those in bfloat16 beside float32 as float32."""
    dtypes = [None if tensor is None else tensor.dtype for tensor in call.inputs]
    if np.float32 not in dtypes or writer.dtype is not None:
        return list(values)
    return [
        writer.cast(value, np.dtype(np.float32)) if dtype is not None and is_bfloat16(dtype) else value
        for value, dtype in zip(values, dtypes, strict=True)
    ]


def _model(writer: Writer) -> onnx.ModelProto:
    """The graph without weights: nodes that the outputs need."""
    nodes = _live_nodes(writer.nodes, [info.name for info in writer.outputs])
    return helper.make_model(
        helper.make_graph(nodes, "net", writer.inputs, writer.outputs),
        opset_imports=[helper.make_opsetid("", writer.opset)],
        producer_name="singa_lite",
        ir_version=IR_VERSIONS.get(writer.opset, 10),
    )


def _live_nodes(nodes: list[onnx.NodeProto], outputs: list[str]) -> list[onnx.NodeProto]:
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


def _float(where: str, given: DTypeLike) -> DType:
    """A float dtype. TypeError for anything else."""
    found = checked_dtype(where, given)
    if found.kind != "f" and not is_bfloat16(found):
        raise TypeError(f"{where}: wanted a float dtype, received {given!r:.100}")
    return found
