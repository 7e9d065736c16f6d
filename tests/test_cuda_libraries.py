"""NVIDIA's libraries: what is said of those that are missing, what serves then, and how cuDNN is told of tensors."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import skips
from singa_lite import device
from singa_lite.device import cuda_libraries
from singa_lite.device.cuda_libraries import Options, libraries, library_rows
from singa_lite.errors import DeviceError
from singa_lite.kernels.cuda_kernels.libraries import cudnn_library
from singa_lite.kernels.cuda_kernels.libraries.cublaslt import CublasLtError, CublasLtNotFoundError
from singa_lite.kernels.cuda_kernels.libraries.cudnn_convolution import strides_of
from singa_lite.kernels.cuda_kernels.libraries.cudnn_library import CudnnNotFoundError
from singa_lite.kernels.kernel_set import TensorSpec


def raising(error: Exception) -> Any:
    """A function that raises it."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Both libraries without a GPU; the fixture is to take them away."""
    monkeypatch.setattr(cuda_libraries, "Lt", lambda stream, limit: SimpleNamespace(stream=stream, limit=limit))
    monkeypatch.setattr(cuda_libraries, "Handle", lambda stream: SimpleNamespace(target={}, stream=stream))
    cuda_libraries._warn.cache_clear()
    return monkeypatch


def test_both_bring_their_kernels_and_are_told_the_options(stand_ins):
    options = Options(allow_tf32=True, workspace_limit=123, deterministic=False)
    products, pixels, convolutions, attention = libraries(7, options)
    assert {"linear", "linear_gradient", "matmul", "matmul_add"} == set(products.builders)
    assert {"conv2d", "conv2d_derivative", "conv2d_gradient"} == set(convolutions.builders)
    assert {"attention", "attention_derivative"} == set(attention.builders)
    assert set(pixels.builders) == set(convolutions.builders)
    product, convolution = products.builders["matmul"].__self__, convolutions.builders["conv2d"].__self__
    assert (product.tf32, product.multiplier.limit, product.multiplier.stream) == (True, 123, 7)
    assert convolution.planner.knobs == (123, True, False)
    assert convolution.planner.executor.stream == 7
    attending = attention.builders["attention"].__self__
    assert (attending.planner, attending.deterministic) == (convolution.planner, False)


@pytest.mark.parametrize(
    ("missing", "error", "word", "served"),
    [
        ("Lt", CublasLtNotFoundError("no libcublasLt.so.13"), "products", ["conv2d", "attention"]),
        ("Lt", CublasLtError("Create", 1, "CUBLAS_STATUS_NOT_INITIALIZED"), "products", ["conv2d", "attention"]),
        ("Handle", CudnnNotFoundError("no libcudnn.so.9"), "convolutions", ["matmul", "conv2d"]),
    ],
)
def test_without_a_library_a_warning_says_once_what_is_slower_and_the_rest_is_there(
    stand_ins, missing, error, word, served
):
    stand_ins.setattr(cuda_libraries, missing, raising(error))
    with pytest.warns(UserWarning, match=word) as warned:
        made = list(libraries(7, Options()))
    assert str(error) in str(warned[0].message)
    assert [name in one.builders for name, one in zip(served, made, strict=True)] == [True] * len(made)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(libraries(7, Options()))) == len(made)


def test_what_is_found_says_what_is_missing(monkeypatch):
    cupy = skips.library("cupy")
    monkeypatch.setattr(cuda_libraries.cublaslt, "load", raising(CublasLtNotFoundError("no file")))
    monkeypatch.setattr(cuda_libraries.cudnn_library, "version", raising(CudnnNotFoundError("no frontend")))
    monkeypatch.setattr(cupy.cuda.nvrtc, "getVersion", raising(RuntimeError("libnvrtc.so.13 not found")))
    told = dict(library_rows())
    for name, why in (("cuBLASLt", "no file"), ("cuDNN", "no frontend"), ("NVRTC", "libnvrtc.so.13 not found")):
        assert told[name].startswith("none") and why in told[name]
    monkeypatch.setitem(sys.modules, "cupy", None)
    ((name, text),) = library_rows()
    assert name == "CuPy" and "pip install" in text
    with pytest.raises(DeviceError, match="CuPy"):
        device.new_cuda(5)


def test_bad_options_are_refused_before_anything_is_made():
    with pytest.raises((ValueError, TypeError), match="workspace_limit"):
        device.new_cuda(0, workspace_limit=-1)
    with pytest.raises(DeviceError, match=r"cuda\(99\)"):
        device.new_cuda(99)


# --- cuDNN


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
def test_what_of_cudnn_is_missing_is_said(monkeypatch, found, culprit):
    monkeypatch.setattr(cudnn_library, "import_module", found)
    with pytest.raises(CudnnNotFoundError, match=culprit):
        cudnn_library.frontend.__wrapped__()


def test_a_cudnn_that_does_not_begin_is_as_one_that_is_missing(monkeypatch):
    frontend = SimpleNamespace(create_handle=raising(RuntimeError("CUDNN_STATUS_SUBLIBRARY")))
    monkeypatch.setattr(cudnn_library, "frontend", lambda: frontend)
    with pytest.raises(CudnnNotFoundError, match="CUDNN_STATUS_SUBLIBRARY"):
        cudnn_library.Handle(1234)


def test_a_handle_runs_graphs_on_its_stream_and_lives_as_long_as_their_launches(monkeypatch):
    told: list[tuple[Any, ...]] = []
    frontend = SimpleNamespace(
        create_handle=lambda: "a handle",
        destroy_handle=lambda handle: told.append(("destroyed", handle)),
        set_stream=lambda *, handle, stream: told.append((handle, stream)),
    )
    graph = SimpleNamespace(execute=lambda addresses, workspace, *, handle: told.append((addresses, workspace, handle)))
    monkeypatch.setattr(cudnn_library, "frontend", lambda: frontend)
    handle = cudnn_library.Handle(1234)
    launch = handle.bind(graph, {1: 512, 4: 1024}, 2048)
    del handle
    launch()
    del launch
    assert told == [("a handle", 1234), ({1: 512, 4: 1024}, 2048, "a handle"), ("destroyed", "a handle")]


#: {(shape, strides in elements): what cuDNN is told; None: it is not asked}.
STRIDES: dict[tuple[Any, ...], Any] = {
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
    ((2, 3, 5, 7), (105.5, 1, 21, 3)): None,
}


def test_strides_of_axes_of_one_element_follow_the_order():
    for (shape, steps), wanted in STRIDES.items():
        spec = TensorSpec(shape, np.dtype("float32"), tuple(int(step * 4) for step in steps))
        assert strides_of(spec) == wanted, (shape, steps)
