"""Reads an ONNX file into plain values: nodes, inputs, outputs, arrays. Lengths are checked before an array is made.

Floats of 16 and 64 bits become float32, in which the net computes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from singa_lite.common.array_types import Array
from singa_lite.common.checks import is_bfloat16
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.onnx.file import check


class GraphNode(NamedTuple):
    """One operator. inputs, outputs: names of values, "" for one that is left out."""

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


class GraphInput(NamedTuple):
    """What is fed. shape: numbers, or names of extents that may change."""

    dtype: Any
    shape: tuple[int | str, ...]


class Graph(NamedTuple):
    """A file. arrays: initializers by name."""

    nodes: list[GraphNode]
    inputs: dict[str, GraphInput]
    outputs: list[str]
    arrays: dict[str, Array]


#: The least version of the operators: before it arithmetic and PRelu broadcast by other rules.
LEAST_OPSET = 7
#: What Softmax has before opset 13.
_OLD_SOFTMAX = {"axis": 1, "flattens": 1}


def read(path: str | os.PathLike[str], known: Collection[str]) -> Graph:
    """The graph of a file. known: operators that can be read. SnapshotError for all else, and for a damaged file."""
    try:
        return _graph(path, _model(path), known)
    except (AttributeError, LookupError, TypeError, ValueError, onnx.checker.ValidationError) as error:
        raise _error(path, "a valid graph", error) from None


def _graph(path: str | os.PathLike[str], model: onnx.ModelProto, known: Collection[str]) -> Graph:
    graph = model.graph
    if _version(model) < LEAST_OPSET:
        raise _error(path, f"operators of opset {LEAST_OPSET} or newer", f"opset {_version(model)}")
    _check_operators(path, model, known)
    if graph.sparse_initializer or model.functions:
        raise _error(path, "no sparse initializers and no functions", "some")
    folder = Path(path).parent
    arrays = {one.name: _array(path, one, folder) for one in graph.initializer}
    graph.ClearField("initializer")
    check(model, arrays, full=False)
    inputs = {one.name: _input(path, one) for one in graph.input if one.name not in arrays}
    nodes = [_node(path, one, folder) for one in graph.node]
    if _version(model) < 13:  # whose softmax is over all axes from one on
        for one in nodes:
            one.attributes.update(_OLD_SOFTMAX | one.attributes if one.operator == "Softmax" else {})
    return Graph(nodes, inputs, [one.name for one in graph.output], arrays)


def _version(model: onnx.ModelProto) -> int:
    """Of the operators."""
    return max((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), default=0)


def _error(path: object, wanted: str, received: object) -> SnapshotError:
    return SnapshotError(f"from_onnx {os.fspath(path)}: wanted {wanted}, received {received}")  # type: ignore[call-overload]


def _model(path: str | os.PathLike[str]) -> onnx.ModelProto:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load(path, load_external_data=False)
    except DecodeError as error:
        raise _error(path, "a whole ONNX file", f"bytes that are none: {error}") from None
    except OSError as error:
        raise _error(path, "a file that can be read", error) from None
    if not model.graph.node:
        raise _error(path, "a graph with nodes", "none")
    return model


def _check_operators(path: object, model: onnx.ModelProto, known: Collection[str]) -> None:
    """SnapshotError with all operators that are not known, and how many there are."""
    names = (f"{one.domain}::{one.op_type}" if one.domain else one.op_type for one in model.graph.node)
    unknown = Counter(name.removeprefix("ai.onnx::") for name in names)
    for name in known:
        del unknown[name]
    if unknown:
        shown = ", ".join(f"{name} ({count})" for name, count in unknown.most_common())
        raise _error(path, "operators that docs/onnx.md lists", shown)


def _input(path: object, value: onnx.ValueInfoProto) -> GraphInput:
    if not value.type.HasField("tensor_type"):
        raise _error(path, f"an input {value.name!r} that is a tensor", value.type.WhichOneof("value"))
    kind = value.type.tensor_type
    shape = tuple(one.dim_value if one.HasField("dim_value") else one.dim_param for one in kind.shape.dim)
    dtype = _dtype(path, value.name, kind.elem_type)
    return GraphInput(dtype if dtype.kind in "iub" else np.dtype(np.float32), shape)


def _node(path: object, node: onnx.NodeProto, folder: Path) -> GraphNode:
    attributes = {one.name: _attribute(path, one, folder) for one in node.attribute}
    "".join([node.name, *node.input, *node.output, *attributes])  # TypeError for bytes that are no text
    return GraphNode(node.name, node.op_type, tuple(node.input), tuple(node.output), attributes)


def _attribute(path: object, attribute: onnx.AttributeProto, folder: Path) -> Any:
    if attribute.type == AttributeProto.TENSOR:
        return _array(path, attribute.t, folder)
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, int | float):
        return value
    return [one.decode() if isinstance(one, bytes) else one for one in value]


def _dtype(path: object, name: str, number: int) -> Any:
    """NumPy's dtype in the file: floats, bfloat16 too, integers, bool."""
    try:
        dtype = helper.tensor_dtype_to_np_dtype(number)
    except KeyError:
        dtype = np.dtype(object)
    if dtype.kind not in "fiub" and not is_bfloat16(dtype):
        raise _error(path, f"numbers or booleans as {name!r}", f"data type {number}")
    return dtype


def _array(path: object, tensor: TensorProto, folder: Path) -> Array:
    """The numbers; all floats as float32."""
    found = _stored(path, tensor, folder)
    with np.errstate(over="ignore"):
        return found if found.dtype.kind in "iub" else found.astype(np.float32, copy=False)


def _stored(path: object, tensor: TensorProto, folder: Path) -> Array:
    """The numbers as in the file, of as many bytes as the shape says."""
    dtype, shape = _dtype(path, tensor.name, tensor.data_type), tuple(tensor.dims)
    count = prod(shape)
    if min(shape, default=0) < 0:
        raise _error(path, f"extents of at least 0 of {tensor.name!r}", shape)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(path, tensor, folder, dtype, shape)
    if tensor.HasField("raw_data"):
        held, wanted = len(tensor.raw_data), count * dtype.itemsize
    else:
        held, wanted = len(getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type))), count
    if held != wanted:
        raise _error(path, f"{wanted} bytes or numbers for {tensor.name!r} of shape {shape}", held)
    array: Array = numpy_helper.to_array(tensor)
    return array


def _external(path: object, tensor: TensorProto, folder: Path, dtype: Any, shape: tuple[int, ...]) -> Array:
    """The numbers in a file beside, which lies in the folder of the model."""
    entries = {one.key: one.value for one in tensor.external_data}
    file = (folder / entries.get("location", "")).resolve()
    if not file.is_relative_to(folder.resolve()) or (folder / entries.get("location", "")).is_symlink():
        raise _error(path, f"data of {tensor.name!r} in the model's folder", entries.get("location", ""))
    wanted = prod(shape) * dtype.itemsize
    try:
        start, length = (int(entries.get(key, default)) for key, default in (("offset", 0), ("length", wanted)))
        size = file.stat().st_size
    except (OSError, ValueError) as error:
        raise _error(path, f"a file with the data of {tensor.name!r}", error) from None
    if start < 0 or length != wanted or start + wanted > size or not file.is_file():
        raise _error(path, f"{wanted} bytes for {tensor.name!r} of shape {shape}", f"{length} at {start} of {size}")
    return np.fromfile(file, dtype, prod(shape), offset=start).reshape(shape)
