"""The stand-in for a GPU: what of CUDA C++ works on the host, and what it refuses as a GPU would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import build_cache
import host_loader
from host_loader import HostLoader
from singa_lite.kernels.cuda_kernels.routine import Arguments

MISSING = host_loader.missing_to_run()

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"CUDA kernels cannot run on the host without {MISSING}")

SOURCE = """
extern "C" __global__ void leaves_early(int* y, int last) {
    if ((int)threadIdx.x >= last) return;
    __syncthreads();
    y[threadIdx.x] = 1;
}
extern "C" __global__ void divergent(int* y) {
    if (threadIdx.x == 40) __syncwarp();
    else __syncthreads();
}
"""


@pytest.fixture(scope="module")
def file() -> str:
    return str(build_cache.sources({"waits.cu": SOURCE}) / "waits.cu")


def launch(file: str, kernel: str, *arguments: Any, grid: Any = 1, block: Any = 64) -> None:
    """Run a kernel of the source; arrays are passed as their addresses."""
    values = [a.ctypes.data if isinstance(a, np.ndarray) and a.ndim else a for a in arguments]
    HostLoader().function(file, kernel, ()).bind(three(grid), three(block), 0, Arguments(values))()


def three(extents: Any) -> tuple[int, ...]:
    """Extents in x, y and z."""
    return (*(extents if isinstance(extents, tuple) else (extents,)), 1, 1)[:3]


def test_threads_that_ended_are_not_waited_for(file):
    y = np.zeros(64, np.int32)
    launch(file, "leaves_early", y, np.int32(33))
    assert np.array_equal(y, np.arange(64) < 33)


def test_a_barrier_that_some_never_reach_is_reported(file, capfd):
    with pytest.raises(RuntimeError, match="divergent"):
        launch(file, "divergent", np.zeros(64, np.int32))
    assert "wait at different barriers" in capfd.readouterr().err
    y = np.zeros(64, np.int32)
    launch(file, "leaves_early", y, np.int32(64))  # the next kernel runs
    assert np.all(y == 1)


@pytest.mark.parametrize(("grid", "block"), [(1, 1025), (1, (32, 33)), ((1, 65536), 1), ((1, 1, 65536), 1)])
def test_sizes_that_a_gpu_refuses(file, capfd, grid, block):
    with pytest.raises(RuntimeError, match="leaves_early"):
        launch(file, "leaves_early", np.zeros(1, np.int32), np.int32(0), grid=grid, block=block)
    assert "at most" in capfd.readouterr().err


def test_a_wrong_source_is_refused_with_its_line(tmp_path):
    (tmp_path / "wrong.cu").write_text('extern "C" __global__ void wrong(int* y) {\n    y[0] = unknown;\n}\n')
    with pytest.raises(RuntimeError, match=r"wrong\.cu:2:\d+: error: .unknown."):
        HostLoader().function(str(tmp_path / "wrong.cu"), "wrong", ())
