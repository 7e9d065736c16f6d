"""Every call of CuPy, NCCL and cuDNN's frontend, held against the signatures of the installed packages."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import pytest

import called
import skips
from benchmark_modules import FOLDER
from called import calls_in, complaint
from every_row import over_rows
from singa_lite.runtime import cupy_types

#: How the sources name a library and what they take from it, and the modules that do.
CUPY = {"cupy": "cupy", "runtime.cupy": "cupy", "self._cupy": "cupy", "self._module": "module", "module": "module"}
#: graph: a `pygraph`; result: a tensor that an operation of a graph gives.
CUDNN = {"cudnn": "cudnn", "self._cudnn": "cudnn", "frontend()": "cudnn", "graph": "graph", "result": "tensor"}
NCCL = {"self._nccl": "nccl", "self._comm": "comm"}
MODULES = {
    "cupy": [
        *(f"runtime/{name}.py" for name in ("cuda", "cuda_pool", "staging", "pinned", "adopted", "beside")),
        "parallel/gpus.py",
        "device/cuda.py",
        "device/cuda_libraries.py",
        "kernels/cuda_kernels/loader.py",
    ],
    "cudnn": [f"kernels/cuda_kernels/cudnn_{name}.py" for name in ("library", "plan", "call", "convolution")],
    "nccl": ["parallel/nccl.py"],
}
ROOTS = {"cupy": CUPY, "cudnn": CUDNN, "nccl": NCCL}
#: Some that must be among the calls.
KNOWN = {
    "cupy": {"cupy.cuda.Event", "cupy.cuda.runtime.memcpyAsync", "cupy.cuda.PinnedMemory", "cupy.RawModule"},
    "cudnn": {"cudnn.pygraph", "graph.execute", "graph.conv_wgrad", "tensor.set_uid", "cudnn.set_stream"},
    "nccl": {"comm.allReduce", "comm.reduceScatter", "comm.broadcast", "nccl.groupEnd", "comm.abort"},
}
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


def library(name: str) -> dict[str, Any]:
    """{what chains begin with: module or class}; the test is skipped where the package is missing."""
    if name == "cudnn":
        cudnn: Any = pytest.importorskip("cudnn", reason="wants cuDNN's frontend, pip install nvidia-cudnn-frontend")
        return {"cudnn": cudnn, "graph": cudnn.pygraph, "tensor": import_module("cudnn.graph_types").Tensor}
    cupy = skips.library("cupy")
    if name == "cupy":
        return {"cupy": cupy, "module": cupy.RawModule}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the library is not found
        nccl = import_module("cupy.cuda.nccl")
    if not nccl.available:
        pytest.skip("wants NCCL, pip install nvidia-nccl-cu13")
    return {"nccl": nccl, "comm": nccl.NcclCommunicator}


@pytest.mark.parametrize("name", MODULES)
def test_every_call_is_one_that_the_library_has(name):
    having = library(name)
    paths = [called.PACKAGE / module for module in MODULES[name]]
    if name == "cupy" and FOLDER.is_dir():  # a wheel has no benchmarks
        paths.append(FOLDER / "first_run" / "machine.py")
    found = [call for path in paths for call in called.calls(path, ROOTS[name])]
    assert {call.chain for call in found} >= KNOWN[name]

    def fits(call: called.Call) -> None:
        assert complaint(call, having) == ""

    over_rows(fits, ((str(call), (call,)) for call in found if call.chain not in OF_INSTANCES))


def test_objects_of_cupy_have_what_their_protocols_say():
    cupy = library("cupy")["cupy"]
    import_module("cupy.cuda.graph")
    for protocol, path in CLASSES.items():
        real = cupy
        for name in path.split("."):
            real = getattr(real, name)
        example = cupy.cuda.Stream.null if protocol == "Stream" else None
        assert called.of_protocol(getattr(cupy_types, protocol), real, example) == []
    assert hasattr(cupy.RawKernel, "kernel")
    assert hasattr(import_module("cupy.cuda.function").Function, "ptr")


WRONG = """
def work(self, cupy):
    runtime, main = self._cupy.cuda.runtime, self.stream
    {call}
"""


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("cupy", "runtime.memcpyAsync(1, 2, 3, 4, 5, 6)"),
        ("cupy", "runtime.memcpyAsinc(1, 2, 3, 4, 5)"),
        ("cupy", "x = runtime.memcpyHostToDevise"),
        ("cupy", "cupy.cuda.Event(disable_timings=True)"),
        ("cupy", "cupy.RawModule('text', ('-g',))"),
        ("cudnn", "graph.execute(workspace=3)"),
        ("cudnn", "graph.get_plan_count()"),
        ("cudnn", "frontend().set_stream(stream=3)"),
    ],
)
def test_a_wrong_call_is_told(name, call):
    having = library(name)
    wrong = [complaint(one, having) for one in calls_in(WRONG.format(call=call), "wrong.py", ROOTS[name])]
    assert sum(map(bool, wrong)) == 1


def test_a_protocol_that_promises_more_than_the_class_is_told():
    class Wrong:
        @property
        def handle(self) -> int: ...

        def record(self, stream: object, flags: int) -> None: ...

    assert len(called.of_protocol(Wrong, library("cupy")["cupy"].cuda.Event)) == 2
