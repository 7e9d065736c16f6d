"""All CUDA kernels, compiled for the host, under the address sanitizer: nothing beside a tensor is read or written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import build_cache
import host_loader
import sanitized_calls
from singa_lite.kernels.cuda_kernels import source


@cache
def runtime() -> str:
    """The sanitizer's library; "" where g++ has none."""
    if shutil.which("g++") is None:
        return ""
    done = subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    path = Path(done.stdout.strip())
    return str(path) if path.is_absolute() and path.exists() else ""


@cache
def missing() -> str:
    """What is wanted and not found; "" if all is there."""
    return host_loader.missing() or ("" if runtime() else "libasan.so, apt install g++")


def python(*command: str) -> subprocess.CompletedProcess[str]:
    """Run this Python with the sanitizer loaded; it sees the modules that this process sees."""
    environment = {
        **os.environ,
        "LD_PRELOAD": runtime(),
        # Python gives nothing back in the end; fibers have stacks of their own.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONMALLOC": "malloc",
    }
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, check=False)


pytestmark = pytest.mark.skipif(bool(missing()), reason=f"wants {missing()}")

#: The set's calls are bound to CuPy's arrays; the sanitizer is tried with kernels alone.
of_the_set = pytest.mark.skipif(
    bool(host_loader.missing_to_run()), reason=f"the CUDA kernels on the host want {host_loader.missing_to_run()}"
)


@pytest.mark.nightly
@of_the_set
@pytest.mark.parametrize("case", sanitized_calls.cases())
def test_nothing_beside_a_tensor_is_touched(case):
    calls = [str(call) for call in sanitized_calls.calls_of(case)]
    done = python(sanitized_calls.__file__, *calls) if calls else None
    if done and done.stdout.split("\n")[-2:] != [f"done {calls[-1]}", ""]:
        pytest.fail(f"{done.stdout.splitlines()[-1:]}: {done.stderr[-4000:]}", pytrace=False)


# ---- the sanitizer itself

PLANTED = """
extern "C" __global__ void inside(float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] += 1;
}
extern "C" __global__ void write_behind(float* y, int n) {
    if (threadIdx.x <= n) y[threadIdx.x] = 1; // behind
}
extern "C" __global__ void read_before(float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] += y[(int)threadIdx.x - 1]; // before
}
extern "C" __global__ void shared_behind(float* y, int n) {
    __shared__ float held[64];
    held[threadIdx.x + 1] = y[0]; // behind
    __syncthreads();
    if (threadIdx.x < n) y[threadIdx.x] = held[threadIdx.x];
}
extern "C" __global__ void dynamic_behind(float* y, int n) {
    DYNAMIC_SHARED(float, held);
    held[threadIdx.x + 1] = y[0]; // behind
    __syncthreads();
    if (threadIdx.x < n) y[threadIdx.x] = held[threadIdx.x];
}
"""

#: Launches each kernel in a process forked off, whose report goes to a file of its own.
LAUNCHES = """
import os, sys
import numpy as np
from host_loader import Build, HostLoader
from sanitized_calls import exact_memory
from singa_lite.kernels.cuda_kernels.routine import Arguments
file, folder, *kernels = sys.argv[1:]
functions = {name: HostLoader(Build(sanitized=True)).function(file, name, ()) for name in kernels}
for name, shifted in [(name, shifted) for name in kernels for shifted in (False, True)]:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        continue
    os.dup2(os.open(f"{folder}/{name}-{shifted}", os.O_WRONLY | os.O_CREAT), 2)
    with exact_memory() as memory:
        y = memory.array((37,), np.dtype("float32"), (4,), shifted)
        y[...] = 0
        functions[name].bind((1, 1, 1), (64, 1, 1), 64 * 4, Arguments([y.ctypes.data, np.int32(37)]))()
        os.write(2, b"the end")
        os._exit(0)
"""


@pytest.mark.nightly
def test_planted_accesses_are_reported_with_their_lines_and_a_right_kernel_is_not(tmp_path):
    file, lines = build_cache.sources({"planted.cu": PLANTED}) / "planted.cu", PLANTED.splitlines()
    kernels = source.kernels(str(file))
    done = python("-c", LAUNCHES, str(file), str(tmp_path), *kernels)
    assert done.returncode == 0, done.stderr
    for kernel, odd in [(kernel, odd) for kernel in kernels for odd in (False, True)]:
        text = (tmp_path / f"{kernel}-{odd}").read_text()
        if kernel == "inside":
            assert text.endswith("the end")
            continue
        first = next(n for n, line in enumerate(lines) if f" {kernel}(" in line)
        wrong = next(n for n, line in enumerate(lines) if n > first and "//" in line)
        assert f"planted.cu:{wrong + 1}" in text, kernel
