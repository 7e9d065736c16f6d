"""All CUDA kernels, compiled for the host, under the address sanitizer: nothing beside a tensor is read or written."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import build_cache
import host_loader
import sanitized
import sanitized_calls
from sanitized_calls import Call

pytestmark = pytest.mark.skipif(bool(sanitized.missing()), reason=f"wants {sanitized.missing()}")

#: The sanitizer is tried with kernels alone; the set's calls are bound to CuPy's arrays, in a process of their own.
of_the_set = pytest.mark.skipif(
    bool(host_loader.missing_to_run()), reason=f"the CUDA kernels on the host want {host_loader.missing_to_run()}"
)

SCRIPT = sanitized_calls.__file__
#: After so many wrong cases the others are left alone.
MOST_REPORTS = 8
#: Processes that do calls at the same time.
PROCESSES = 2


def compile_all(calls: list[Call]) -> None:
    """The libraries that the calls want, several at a time; processes that start then find them."""
    wanted = {(step.file, step.types) for call in calls for step in call.routine.steps}
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(host_loader.compiled, *one, host_loader.Build(sanitized=True)) for one in wanted]:
            done.result()


def reports(calls: list[Call]) -> dict[Call, str]:
    """{call: what the sanitizer said of it, "" for nothing}. A case ends at its first wrong call."""
    found: dict[Call, str] = {}
    left = {str(call): call for call in calls}
    while left and sum(map(bool, found.values())) < MOST_REPORTS:
        done = sanitized.python(SCRIPT, *left)
        for line in done.stdout.splitlines():
            if line.startswith("done "):
                found[left.pop(line.removeprefix("done "))] = ""
        if left:  # the process ended in the middle of the call that began last
            begun = [line.removeprefix("begins ") for line in done.stdout.splitlines() if line.startswith("begins ")]
            assert begun and begun[-1] in left, sanitized.report(done.stderr)
            wrong = left[begun[-1]]
            found[wrong] = sanitized.report(done.stderr)
            left = {name: call for name, call in left.items() if call.case != wrong.case}
    return found


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> dict[Call, str]:
    """The reports of all calls of the cases that were asked for."""
    here = [item for item in request.session.items if item.path == request.path]
    cases = [item.callspec.params["case"] for item in here if "found" in item.fixturenames]
    calls = [call for case in dict.fromkeys(cases) for call in sanitized_calls.calls_of(case)]
    compile_all(calls)
    parts = [calls[number::PROCESSES] for number in range(PROCESSES)]
    with ThreadPoolExecutor() as pool:
        return {call: said for part in pool.map(reports, parts) for call, said in part.items()}


@of_the_set
@pytest.mark.parametrize("case", sanitized_calls.cases())
def test_nothing_beside_a_tensor_is_touched(found, case):
    for call in sanitized_calls.calls_of(case):
        said = found.get(call, "was not done, as too many others were wrong")
        if said:
            pytest.fail(f"{call}: {said}", pytrace=False)


# ---- the sanitizer itself

PLANTED = """
extern "C" __global__ void inside(float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] += 1;
}
extern "C" __global__ void write_behind(float* y, int n) {
    if (threadIdx.x <= n) y[threadIdx.x] = 1; // behind
}
extern "C" __global__ void read_behind(float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] = y[threadIdx.x + 1]; // behind
}
extern "C" __global__ void read_before(float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] += y[(int)threadIdx.x - 1]; // before
}
extern "C" __global__ void vector_behind(float* y, int n) {
    float4* pack = reinterpret_cast<float4*>(y) + threadIdx.x;
    if (threadIdx.x * 4 < n) pack->w = 1; // behind
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
from exact_memory import exact_memory
from host_loader import Build, HostLoader
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

WRONG = ("write_behind", "read_behind", "read_before", "vector_behind", "shared_behind", "dynamic_behind")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of what was written while each kernel ran."""
    folder = tmp_path_factory.mktemp("planted")
    source = build_cache.sources({"planted.cu": PLANTED}) / "planted.cu"  # where it is compiled once
    done = sanitized.python("-c", LAUNCHES, str(source), str(folder), "inside", *WRONG)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("kernel", WRONG)
def test_a_wrong_kernel_is_reported_with_its_line(told, kernel, shifted):
    lines = PLANTED.splitlines()
    first = next(n for n, line in enumerate(lines) if f" {kernel}(" in line)
    wrong = next(n for n, line in enumerate(lines) if n > first and "//" in line)
    assert f"planted.cu:{wrong + 1}" in sanitized.report((told / f"{kernel}-{shifted}").read_text())


@pytest.mark.parametrize("shifted", [False, True])
def test_a_right_kernel_is_not_reported(told, shifted):
    assert (told / f"inside-{shifted}").read_text().endswith("the end")


CALLS = """
import ctypes, sys
from exact_memory import exact_memory
for name in sys.argv[1:]:
    print("begins", name, flush=True)
    with exact_memory() as memory:
        held = memory.nothing(40)
        if name.startswith("fill"):
            ctypes.CDLL(None).strlen(ctypes.c_void_p(held.ctypes.data))
    print("done", name, flush=True)
"""


def test_a_wrong_call_is_told_and_the_others_are_done(monkeypatch, tmp_path):
    """Of three calls the middle one reads beside a tensor."""
    (tmp_path / "calls.py").write_text(CALLS)
    monkeypatch.setattr(sys.modules[__name__], "SCRIPT", str(tmp_path / "calls.py"))
    calls = [Call("copy"), Call("fill"), Call("add")]
    told = reports(calls)
    assert [bool(told[call]) for call in calls] == [False, True, False]
    assert "AddressSanitizer: heap-buffer-overflow" in told[calls[1]]
