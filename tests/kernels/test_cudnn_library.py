"""What of cuDNN's use needs no cuDNN: how it is looked for, and how tensors are told to it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from singa_lite.kernels.cuda_kernels import cudnn_library
from singa_lite.kernels.cuda_kernels.cudnn_convolution import strides_of
from singa_lite.kernels.cuda_kernels.cudnn_library import CudnnNotFoundError
from singa_lite.kernels.kernel_set import TensorSpec


def test_strides_of_axes_of_one_element_follow_the_order():
    size = 4
    cases: dict[tuple[Any, ...], Any] = {
        ((2, 3, 5, 7), (105, 1, 21, 3)): (105, 1, 21, 3),
        ((2, 3, 5, 7), (105, 35, 7, 1)): (105, 35, 7, 1),
        ((2, 3, 5, 7), (280, 1, 56, 8)): (280, 1, 56, 8),  # a piece of eight channels
        ((2, 3, 5, 7), (280, 35, 7, 1)): (280, 35, 7, 1),
        ((4, 3, 1, 1), (3, 1, 1, 1)): (3, 1, 3, 3),
        ((4, 3, 1, 1), (3, 1, 99, 99)): (3, 1, 3, 3),
        ((4, 1, 3, 2), (6, 6, 2, 1)): (6, 1, 2, 1),
        ((1, 3, 1, 7), (0, 7, 0, 1)): (21, 7, 7, 1),
        ((2, 3, 5, 7), (210, 2, 42, 6)): None,  # gaps between channels
        ((2, 3, 5, 7), (105, 1, 3, 15)): None,  # columns outside of rows
        ((2, 3, 5, 7), (1, 70, 14, 2)): None,
        ((2, 3, 5, 7), (0, 1, 21, 3)): None,
        ((2, 3, 5, 7), (-105, 1, 21, 3)): None,
    }
    for (shape, steps), wanted in cases.items():
        spec = TensorSpec(shape, np.dtype("float32"), tuple(step * size for step in steps))
        assert strides_of(spec) == wanted, (shape, steps)
    odd = TensorSpec((2, 3, 5, 7), np.dtype("float32"), (422, 4, 84, 12))
    assert strides_of(odd) is None


def raising(error: Exception) -> Any:
    def fail(*_: object) -> None:
        raise error

    return fail


def version_of(frontend: str, library: Any) -> Any:
    return lambda name: SimpleNamespace(__version__=frontend, backend_version=library)


@pytest.mark.parametrize(
    ("found", "culprit"),
    [
        (raising(ModuleNotFoundError("No module")), "No module"),
        (version_of("1.32.0", None), r"1\.32\.0"),
        (version_of("1.28.0", raising(RuntimeError("Unable to find symbol"))), "Unable to find symbol"),
        (version_of("1.28.0", lambda: 8907), "version 9"),
        (raising(OSError("libcudnn_graph.so.9: no such file")), "libcudnn_graph"),
        (raising(AssertionError("Found 2 libcudnn.so.x")), "Found 2"),
    ],
)
def test_what_is_missing_is_said(monkeypatch, found, culprit):
    monkeypatch.setattr(cudnn_library, "import_module", found)
    with pytest.raises(CudnnNotFoundError, match=culprit):
        cudnn_library.frontend.__wrapped__()


def test_a_library_that_does_not_begin_is_as_one_that_is_missing(monkeypatch):
    frontend = SimpleNamespace(create_handle=raising(RuntimeError("CUDNN_STATUS_SUBLIBRARY")))
    monkeypatch.setattr(cudnn_library, "frontend", lambda: frontend)
    with pytest.raises(CudnnNotFoundError, match="CUDNN_STATUS_SUBLIBRARY"):
        cudnn_library.Handle(1234)


def test_a_handle_runs_graphs_on_its_stream(monkeypatch):
    told: list[tuple[Any, ...]] = []
    frontend = SimpleNamespace(
        create_handle=lambda: "a handle",
        destroy_handle=lambda handle: told.append(("destroyed", handle)),
        set_stream=lambda *, handle, stream: told.append((handle, stream)),
    )
    graph = SimpleNamespace(execute=lambda addresses, workspace, *, handle: told.append((addresses, workspace, handle)))
    monkeypatch.setattr(cudnn_library, "frontend", lambda: frontend)
    handle = cudnn_library.Handle(1234)
    assert handle.target == {"handle": "a handle"}
    launch = handle.bind(graph, {1: 512, 4: 1024}, 2048)
    assert told == [("a handle", 1234)]
    launch()
    del handle
    launch()
    assert told[1:] == [({1: 512, 4: 1024}, 2048, "a handle")] * 2
    del launch
    assert told[3:] == [("destroyed", "a handle")]
