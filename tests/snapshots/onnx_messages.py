"""Messages of ONNX files that tests write by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_lite import models
from singa_lite.errors import SnapshotError
from skips import library

onnx = library("onnx")


def model(
    nodes: list[Any],
    arrays: list[Any] = [],  # noqa: B006
    shape: tuple[Any, ...] = ("n", 4),
    opset: int = 21,
) -> Any:
    """A file's message with input x and output y."""
    values = [
        onnx.helper.make_tensor_value_info(name, 1, extents) for name, extents in (("x", shape), ("y", ("n", "m")))
    ]
    graph = onnx.helper.make_graph(nodes, "net", values[:1], values[1:], arrays)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])


def node(kind: str, *inputs: str, to: str = "y", **attributes: Any) -> Any:
    """A node called as its operator."""
    return onnx.helper.make_node(kind, list(inputs), [to], kind.lower(), **attributes)


def refused(message: Any, tmp_path: Path, match: str, **options: Any) -> None:
    """The file of a message is an error."""
    (tmp_path / "bad.onnx").write_bytes(message if isinstance(message, bytes) else message.SerializeToString())
    with pytest.raises(SnapshotError, match=match):
        models.from_onnx(tmp_path / "bad.onnx", **options)


def array(name: str, values: np.ndarray) -> Any:
    """An initializer."""
    return onnx.numpy_helper.from_array(values, name)
