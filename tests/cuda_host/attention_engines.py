"""What cuDNN plans for attention on a described H100, with a driver of CUDA that answers and does nothing.

The library compiles engines of attention when it plans, and has the driver load them: that is all it wants of it. This
is a program of its own, as a driver that is once loaded would be there for all others of the process: the path of the
driver and a JSON list of rows behind its name, a JSON list of answers on its standard output.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

#: The driver's functions that the library looks up. Those of kernels succeed, all others say that there is no GPU.
LOADS = "LibraryLoadData LibraryLoadFromFile LibraryGetKernel ModuleLoadData ModuleLoadDataEx ModuleGetFunction"
OTHERS = """
    CtxGetCurrent CtxGetDevice CtxGetLimit CtxPopCurrent CtxPushCurrent DeviceGet DeviceGetAttribute DeviceGetCount
    DevicePrimaryCtxRelease DevicePrimaryCtxReset DevicePrimaryCtxRetain DriverGetVersion FuncGetAttribute
    FuncSetAttribute GetErrorName GetErrorString Init KernelGetAttribute KernelSetAttribute LaunchCooperativeKernel
    LaunchKernel LaunchKernelEx LibraryUnload LinkAddData LinkAddData_v2 LinkAddFile_v2 LinkComplete LinkCreate
    LinkCreate_v2 LinkDestroy MemcpyDtoH_v2 ModuleGetGlobal_v2 ModuleLoadFatBinary ModuleUnload
    OccupancyMaxActiveBlocksPerMultiprocessor OccupancyMaxPotentialClusterSize StreamGetCtx StreamSynchronize
    TensorMapEncodeTiled
"""
NO_DEVICE = 100


class Row(NamedTuple):
    """A call. sizes: (n, t, s, heads, kv_heads, size); dtype: the library's name of it."""

    kernel: str
    sizes: tuple[int, int, int, int, int, int]
    dtype: str
    causal: bool
    deterministic: bool


class Answer(NamedTuple):
    """engine: the library's name of it, "" where the call is not served; workspace: bytes that it wants."""

    engine: str
    workspace: int


def answers(rows: list[Row], folder: Path) -> list[Answer]:
    """The library's, from a process of its own. folder: for the driver."""
    source, driver = folder / "driver.c", folder / "libcuda.so.1"
    source.write_text("".join(_functions()))
    subprocess.run(["gcc", "-shared", "-fPIC", f"-Wl,-soname,{driver.name}", "-o", driver, source], check=True)
    command = [sys.executable, __file__, str(driver), json.dumps(rows), json.dumps(sys.path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [Answer(*one) for one in json.loads(said.splitlines()[-1])]


def _functions() -> Iterator[str]:
    for name in LOADS.split():
        yield f"int cu{name}(void **made) {{ *made = (void *)1; return 0; }}\n"
    for name in OTHERS.split():
        result = 0 if name.startswith(("Library", "Kernel", "Module", "Func")) else NO_DEVICE
        yield f"int cu{name}(void) {{ return {result}; }}\n"


def _answer(row: Row) -> Answer:
    from host_libraries import PROPERTIES, HostExecutor
    from singa_lite.kernels.built import of_specs
    from singa_lite.kernels.cuda_kernels.libraries.cudnn_attention import Attention
    from singa_lite.kernels.cuda_kernels.libraries.cudnn_library import described
    from singa_lite.kernels.cuda_kernels.libraries.cudnn_plan import Knobs, Planner

    planner = Planner(described(PROPERTIES.read_text()), HostExecutor(), Knobs(deterministic=row.deterministic))
    build = of_specs(row.kernel, Attention(planner, row.deterministic).builders[row.kernel])
    routine = build(*_specs(row), causal=row.causal, scale=0.125)
    if routine is None:
        return Answer("", 0)
    (step,) = routine.steps
    return Answer(step.direct.call.plan.engine, step.scratch_bytes)


def _specs(row: Row) -> list[Any]:
    from host_libraries import TYPES
    from singa_lite.kernels.cuda_kernels.walk import dense

    n, t, s, heads, kv_heads, size = row.sizes
    halves = np.dtype(TYPES[row.dtype])
    q, k, v, dq, dk, dv, y, dy = (
        dense((n, s, kv_heads, size) if name[-1] in "kv" else (n, t, heads, size), halves)
        for name in ("q", "k", "v", "dq", "dk", "dv", "y", "dy")
    )
    lse = dense((n, heads, t), np.dtype(np.float32))
    if row.kernel == "attention":
        return [q, k, v, None, None, None, y, lse]
    return [dy, q, k, v, None, None, None, y, lse, dq, dk, dv]


def main() -> None:
    """Answer."""
    _, driver, rows, path = sys.argv
    ctypes.CDLL(driver)
    sys.path[:] = json.loads(path)
    print(json.dumps([_answer(Row(*row)) for row in json.loads(rows)]))


if __name__ == "__main__":
    main()
