"""NVIDIA's libraries: what is said of those that are missing, and what serves then."""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace

import pytest

import skips
from singa_lite.device import cuda_libraries
from singa_lite.device.cuda_libraries import Options, found, libraries
from singa_lite.errors import DeviceError
from singa_lite.kernels.cuda_kernels.cublaslt import CublasLtError, CublasLtNotFoundError
from singa_lite.kernels.cuda_kernels.cudnn_library import CudnnNotFoundError


def refusing(error: Exception):
    """A function that raises it."""

    def refuse(*_: object, **__: object) -> None:
        raise error

    return refuse


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Both libraries without a GPU; the fixture is to take them away."""
    monkeypatch.setattr(cuda_libraries, "Lt", lambda stream, limit: SimpleNamespace(stream=stream, limit=limit))
    monkeypatch.setattr(cuda_libraries, "Handle", lambda stream: SimpleNamespace(target={}, stream=stream))
    cuda_libraries._warn.cache_clear()
    return monkeypatch


def test_both_bring_their_kernels(stand_ins):
    products, pixels, convolutions = libraries(7, Options())
    assert set(pixels.builders) == set(convolutions.builders)
    assert {"linear", "linear_activation", "linear_gradient", "matmul", "matmul_add"} == set(products.builders)
    assert {"conv2d", "conv2d_activation", "conv2d_derivative", "conv2d_gradient"} == set(convolutions.builders)
    assert ("linear", "relu") in products.fusions
    assert ("conv2d", "relu") in convolutions.fusions


def test_the_options_reach_the_libraries(stand_ins):
    products, _, convolutions = libraries(7, Options(allow_tf32=True, workspace_limit=123, deterministic=False))
    product, convolution = products.builders["matmul"].__self__, convolutions.builders["conv2d"].__self__
    assert (product.tf32, product.multiplier.limit, product.multiplier.stream) == (True, 123, 7)
    assert convolution.planner.knobs == (123, True, False)
    assert convolution.planner.executor.stream == 7


def test_without_cublaslt_a_warning_names_the_cost_once_and_the_rest_is_there(stand_ins):
    stand_ins.setattr(cuda_libraries, "Lt", refusing(CublasLtNotFoundError("no libcublasLt.so.13")))
    with pytest.warns(
        UserWarning, match=r"no libcublasLt.so.13; without it: products by plain kernels of ours, slower"
    ):
        (convolutions,) = libraries(7, Options())
    assert "conv2d" in convolutions.builders
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(libraries(7, Options()))) == 1


def test_a_cublaslt_that_does_not_begin_is_as_one_that_is_missing(stand_ins):
    stand_ins.setattr(cuda_libraries, "Lt", refusing(CublasLtError("Create", 1, "CUBLAS_STATUS_NOT_INITIALIZED")))
    with pytest.warns(UserWarning, match=r"NOT_INITIALIZED.*without it: products by plain kernels of ours"):
        (convolutions,) = libraries(7, Options())
    assert "conv2d" in convolutions.builders


def test_without_cudnn(stand_ins):
    stand_ins.setattr(cuda_libraries, "Handle", refusing(CudnnNotFoundError("no libcudnn.so.9")))
    with pytest.warns(UserWarning, match=r"no libcudnn.so.9; without it: convolutions by plain kernels of ours"):
        products, _ = libraries(7, Options())
    assert "matmul" in products.builders


def test_info_without_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    ((name, text),) = found()
    assert name == "CuPy"
    assert "without it: no GPU, pip install 'singa-lite[cuda13,cudnn13]'" in text


def test_info_without_the_libraries(monkeypatch):
    skips.library("cupy")
    monkeypatch.setattr(cuda_libraries.cublaslt, "load", refusing(CublasLtNotFoundError("no file")))
    monkeypatch.setattr(cuda_libraries.cudnn_library, "version", refusing(CudnnNotFoundError("no frontend")))
    told = dict(found())
    assert told["cuBLASLt"] == "none: no file; without it: products by plain kernels of ours, slower"
    assert told["cuDNN"] == "none: no frontend; without it: convolutions by plain kernels of ours, slower"


def test_info_without_nvrtc(monkeypatch):
    cupy = skips.library("cupy")
    monkeypatch.setattr(cupy.cuda.nvrtc, "getVersion", refusing(RuntimeError("libnvrtc.so.13 not found")))
    assert dict(found())["NVRTC"].startswith("none: libnvrtc.so.13 not found; without it: no kernel can be compiled")


def test_bad_options_are_refused_before_anything_is_made():
    from singa_lite import device

    with pytest.raises((ValueError, TypeError), match="workspace_limit"):
        device.new_cuda(0, workspace_limit=-1)
    with pytest.raises(DeviceError, match=r"cuda\(99\)"):
        device.new_cuda(99)
