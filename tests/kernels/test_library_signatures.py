"""Every call of CuPy and of cuDNN's frontend, held against the signatures of the installed packages."""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

import called
from called import Call, calls_in, complaint
from singa_lite.runtime import cupy_types

needs_cupy = pytest.mark.skipif(find_spec("cupy") is None, reason="wants CuPy, pip install cupy-cuda13x")
needs_cudnn = pytest.mark.skipif(
    find_spec("cudnn") is None, reason="wants cuDNN's frontend, pip install nvidia-cudnn-frontend"
)

#: How the sources name CuPy and what they take from it.
CUPY = {"cupy": "cupy", "runtime.cupy": "cupy", "self._cupy": "cupy", "self._module": "module", "module": "module"}
CUPY_MODULES = [
    *(f"runtime/{name}.py" for name in ("cuda", "cuda_pool", "staging", "pinned", "adopted", "beside")),
    *(f"parallel/{name}.py" for name in ("gpus",)),
    "device/cuda.py",
    "device/cuda_libraries.py",
    "kernels/cuda_kernels/loader.py",
]
#: The same of the frontend. graph: a `pygraph`; result: a tensor that an operation of a graph gives.
CUDNN = {
    "cudnn": "cudnn",
    "self._cudnn": "cudnn",
    "frontend()": "cudnn",
    "graph": "graph",
    "result": "tensor",
}
CUDNN_MODULES = [f"kernels/cuda_kernels/cudnn_{name}.py" for name in ("library", "plan", "call", "convolution")]
#: The same of NCCL, by CuPy.
NCCL = {"self._nccl": "nccl", "self._comm": "comm"}
NCCL_MODULES = ["parallel/nccl.py"]
#: What a graph has once it is made. Tests of plans make graphs and use it.
OF_INSTANCES = ("graph.context.io_data_type", "graph._cpp_tensors")
#: The protocols that calls of objects of CuPy are checked by, and their classes.
CLASSES = {
    "Stream": "cuda.Stream",
    "CapturingStream": "cuda.Stream",
    "Event": "cuda.Event",
    "CupyPool": "cuda.MemoryPool",
    "CapturedGraph": "cuda.graph.Graph",
    "Pointer": "cuda.MemoryPointer",
    "CupyArray": "ndarray",
}


def cupy_library() -> dict[str, Any]:
    cupy = import_module("cupy")
    return {"cupy": cupy, "module": cupy.RawModule}


def nccl_library() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the library is not found
        nccl = import_module("cupy.cuda.nccl")
    if not nccl.available:
        pytest.skip("wants NCCL, pip install nvidia-nccl-cu13")
    return {"nccl": nccl, "comm": nccl.NcclCommunicator}


def cudnn_library() -> dict[str, Any]:
    cudnn = import_module("cudnn")
    return {"cudnn": cudnn, "graph": cudnn.pygraph, "tensor": import_module("cudnn.graph_types").Tensor}


def found(modules: list[str], roots: called.Roots) -> list[Call]:
    calls = [call for name in modules for call in called.calls(called.PACKAGE / name, roots)]
    return [call for call in calls if call.chain not in OF_INSTANCES]


@needs_cupy
@pytest.mark.parametrize("call", found(CUPY_MODULES, CUPY), ids=str)
def test_a_call_of_cupy_is_one_that_it_has(call):
    assert complaint(call, cupy_library()) == ""


@needs_cupy
@pytest.mark.parametrize("call", found(NCCL_MODULES, NCCL), ids=str)
def test_a_call_of_nccl_is_one_that_it_has(call):
    assert complaint(call, nccl_library()) == ""


@needs_cudnn
@pytest.mark.parametrize("call", found(CUDNN_MODULES, CUDNN), ids=str)
def test_a_call_of_the_frontend_is_one_that_it_has(call):
    assert complaint(call, cudnn_library()) == ""


@needs_cupy
@pytest.mark.parametrize("protocol", CLASSES)
def test_an_object_of_cupy_has_what_its_protocol_says(protocol):
    cupy: Any = import_module("cupy")
    import_module("cupy.cuda.graph")
    example, real = cupy.cuda.Stream.null if protocol == "Stream" else None, cupy
    for name in CLASSES[protocol].split("."):
        real = getattr(real, name)
    assert called.of_protocol(getattr(cupy_types, protocol), real, example) == []


@needs_cupy
def test_a_kernel_of_a_module_has_a_handle():
    cupy = import_module("cupy")
    assert hasattr(cupy.RawKernel, "kernel")
    assert hasattr(import_module("cupy.cuda.function").Function, "ptr")


def test_calls_are_found_with_their_arguments():
    chains = {call.chain for call in found(CUPY_MODULES, CUPY)}
    assert {"cupy.cuda.Event", "cupy.cuda.runtime.memcpyAsync", "cupy.cuda.PinnedMemory", "cupy.RawModule"} <= chains
    chains = {call.chain for call in found(NCCL_MODULES, NCCL)}
    assert {"comm.allReduce", "comm.reduceScatter", "comm.broadcast", "nccl.groupEnd", "comm.abort"} <= chains
    chains = {call.chain for call in found(CUDNN_MODULES, CUDNN)}
    assert {"cudnn.pygraph", "graph.execute", "graph.conv_wgrad", "tensor.set_uid", "cudnn.set_stream"} <= chains


WRONG = """
def work(self, cupy):
    runtime, main = self._cupy.cuda.runtime, self.stream
    {call}
"""


@needs_cupy
@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("runtime.memcpyAsync(1, 2, 3, runtime.memcpyHostToDevice)", "memcpyAsync"),
        ("runtime.memcpyAsync(1, 2, 3, 4, 5, 6)", "memcpyAsync"),
        ("runtime.memcpyAsinc(1, 2, 3, 4, 5)", "there is no 'memcpyAsinc'"),
        ("x = runtime.memcpyHostToDevise", "there is no 'memcpyHostToDevise'"),
        ("cupy.cuda.Event(disable_timings=True)", "disable_timings"),
        ("self._cupy.cuda.Streams(non_blocking=True)", "there is no 'Streams'"),
        ("cupy.RawModule('text', ('-g',))", "RawModule"),
        ("cupy.from_dlpack()", "from_dlpack"),
    ],
)
def test_a_wrong_call_of_cupy_is_named(call, says):
    wrong = [complaint(one, cupy_library()) for one in calls_in(WRONG.format(call=call), "wrong.py", CUPY)]
    assert [says in text and "wrong.py:4" in text for text in wrong if text] == [True]


@needs_cudnn
@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("graph.execute(workspace=3)", "execute"),
        ("graph.build_plan_at_index()", "build_plan_at_index"),
        ("graph.get_plan_count()", "there is no 'get_plan_count'"),
        ("frontend().set_stream(stream=3)", "set_stream"),
        ("result.set_uid()", "set_uid"),
    ],
)
def test_a_wrong_call_of_the_frontend_is_named(call, says):
    wrong = [complaint(one, cudnn_library()) for one in calls_in(WRONG.format(call=call), "wrong.py", CUDNN)]
    assert [says in text for text in wrong if text] == [True]


@needs_cupy
def test_a_protocol_that_promises_more_than_the_class_is_named():
    class Wrong:
        @property
        def handle(self) -> int: ...

        def record(self, stream: object, flags: int) -> None: ...

    assert len(called.of_protocol(Wrong, import_module("cupy").cuda.Event)) == 2


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("intptr_t dst, size_t size, int kind=1", ["dst", "size", "kind"]),
        ("self, *, stream=None, tuple max_version=None", ["self", "stream", "max_version"]),
        ("arg0: int, arg1: Dict[int, str] = {}", ["arg0", "arg1"]),
        ("", []),
    ],
)
def test_signatures_in_docstrings_are_read(text, names):
    assert list(called.parsed(text).parameters) == names
