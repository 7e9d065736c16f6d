"""The bytes of an ONNX file, written one weight at a time: weights follow the graph, or lie in a file beside it.

A model is a message of protocol buffers, whose fields have a number, a length and bytes. So a graph's weights can be
written behind its other fields where all lengths are known before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from io import FileIO

import numpy as np
import onnx
from onnx import TensorProto, helper

from singa_lite.common.array_types import Array
from singa_lite.common.atomic import replacing, write_all
from singa_lite.snapshots.onnx.types import tensor_type
from singa_lite.snapshots.tree import LazyArray

#: Bytes of weights above which they go to a file of their own: a message has less than 2 GiB.
MOST_WITHIN = 1 << 30
#: Where a weight begins in that file.
ALIGNMENT = 4096
#: Field numbers of ModelProto.graph, GraphProto.initializer and TensorProto.raw_data.
GRAPH, INITIALIZER, RAW_DATA = 7, 5, 9


def _data(weight: LazyArray) -> memoryview:
    """The bytes of the numbers in the file's dtype, in C order."""
    array = np.asarray(weight.fetch().astype(weight.dtype, copy=False), order="C")
    return array.reshape(-1).view(np.uint8).data


def check(model: onnx.ModelProto, weights: Mapping[str, LazyArray | Array], full: bool = True) -> None:
    """onnx.checker's errors of the model, if full with inference of shapes. The weights stand as inputs there."""
    checked = onnx.ModelProto()
    checked.CopyFrom(model)
    fed = {one.name for one in model.graph.input}
    checked.graph.input.extend(
        helper.make_tensor_value_info(name, tensor_type(weight.dtype), weight.shape)
        for name, weight in weights.items()
        if name not in fed
    )
    onnx.checker.check_model(checked, full_check=full)


def write(path: str | os.PathLike[str], model: onnx.ModelProto, weights: Mapping[str, LazyArray]) -> None:
    """Writes the model, and the weights into it or beside it to "net.onnx.data". If it fails, the old files stay."""
    if sum(weight.nbytes for weight in weights.values()) > MOST_WITHIN:
        with replacing(f"{os.fspath(path)}.data") as data:
            _write_data(data, f"{os.path.basename(path)}.data", model, weights)
            _write_model(path, model, {})
    else:
        _write_model(path, model, weights)


def _write_model(path: str | os.PathLike[str], model: onnx.ModelProto, weights: Mapping[str, LazyArray]) -> None:
    """Writes the model's file, with these weights in it."""
    headers = {name: _header(name, weight) for name, weight in weights.items()}
    sizes = [len(_field(RAW_DATA, w.nbytes)) + w.nbytes + len(headers[name]) for name, w in weights.items()]
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    whole = len(graph) + sum(len(_field(INITIALIZER, size)) + size for size in sizes)
    with replacing(path) as file:
        write_all(file, model.SerializeToString() + _field(GRAPH, whole) + graph)
        for (name, weight), size in zip(weights.items(), sizes, strict=True):
            write_all(file, _field(INITIALIZER, size) + headers[name] + _field(RAW_DATA, weight.nbytes))
            write_all(file, _data(weight))


def _header(name: str, weight: LazyArray) -> bytes:
    """A tensor's message without its numbers."""
    return bytes(TensorProto(name=name, data_type=tensor_type(weight.dtype), dims=weight.shape).SerializeToString())


def _field(number: int, length: int) -> bytes:
    """What stands before a field of that many bytes."""
    made = bytearray([number << 3 | 2])
    while length > 127:
        made.append(length & 127 | 128)
        length >>= 7
    return bytes([*made, length])


def _write_data(file: FileIO, location: str, model: onnx.ModelProto, weights: Mapping[str, LazyArray]) -> None:
    """Writes the weights to a file of their own, and to the model where they lie in it."""
    for name, weight in weights.items():
        start = _aligned(file)
        write_all(file, _data(weight))
        tensor = model.graph.initializer.add(name=name, data_type=tensor_type(weight.dtype), dims=weight.shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, "offset": start, "length": weight.nbytes}.items():
            tensor.external_data.add(key=key, value=str(value))
    os.fsync(file.fileno())  # the model's file takes its place in a moment; this one then follows at once


def _aligned(file: FileIO) -> int:
    write_all(file, bytes(-file.tell() % ALIGNMENT))
    return file.tell()
