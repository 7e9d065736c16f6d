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


@pytest.mark.parametrize(
    ("missing", "error", "word", "served"),
    [
        ("Lt", CublasLtNotFoundError("no libcublasLt.so.13"), "products", ["conv2d"]),
        ("Lt", CublasLtError("Create", 1, "CUBLAS_STATUS_NOT_INITIALIZED"), "products", ["conv2d"]),
        ("Handle", CudnnNotFoundError("no libcudnn.so.9"), "convolutions", ["matmul", "conv2d"]),
    ],
)
def test_without_a_library_a_warning_says_once_what_is_slower_and_the_rest_is_there(
    stand_ins, missing, error, word, served
):
    stand_ins.setattr(cuda_libraries, missing, refusing(error))
    with pytest.warns(UserWarning, match=word) as warned:
        made = list(libraries(7, Options()))
    assert str(error) in str(warned[0].message)
    assert [name in one.builders for name, one in zip(served, made, strict=True)] == [True] * len(made)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(libraries(7, Options()))) == len(made)


def test_what_is_found_says_what_is_missing(monkeypatch):
    cupy = skips.library("cupy")
    monkeypatch.setattr(cuda_libraries.cublaslt, "load", refusing(CublasLtNotFoundError("no file")))
    monkeypatch.setattr(cuda_libraries.cudnn_library, "version", refusing(CudnnNotFoundError("no frontend")))
    monkeypatch.setattr(cupy.cuda.nvrtc, "getVersion", refusing(RuntimeError("libnvrtc.so.13 not found")))
    told = dict(found())
    for name, why in (("cuBLASLt", "no file"), ("cuDNN", "no frontend"), ("NVRTC", "libnvrtc.so.13 not found")):
        assert told[name].startswith("none") and why in told[name]
    monkeypatch.setitem(sys.modules, "cupy", None)
    ((name, text),) = found()
    assert name == "CuPy" and "pip install" in text


def test_bad_options_are_refused_before_anything_is_made():
    from singa_lite import device

    with pytest.raises((ValueError, TypeError), match="workspace_limit"):
        device.new_cuda(0, workspace_limit=-1)
    with pytest.raises(DeviceError, match=r"cuda\(99\)"):
        device.new_cuda(99)
