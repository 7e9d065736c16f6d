"""Every CUDA source compiles to machine code of all supported architectures, and its kernels fit a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

import launches
import nvrtc_compiler
from nvrtc_compiler import Usage, compiled
from singa_lite.kernels.cuda_kernels import source

pytestmark = pytest.mark.skipif(bool(nvrtc_compiler.missing()), reason=f"wants {nvrtc_compiler.missing()}")

#: Ampere, Hopper, and Blackwell in its two lines.
ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
#: The one that types other than the commonest are compiled for: what is wrong in one is wrong in all.
USUAL = "sm_90"

#: Bytes that a thread may spill, by kernel; 0 for all that are not named, with the reason for those that are.
SPILLED: dict[str, int] = {}
#: Bytes of a thread's arrays that lie in memory as they are indexed by what only the run knows, by kernel, as above.
STACK: dict[str, int] = {}
#: Most registers of a thread: two blocks of 256 threads then share a multiprocessor.
REGISTERS = 128
#: Registers of a multiprocessor, and how many of a thread's are given out at a time. A launch that wants more fails.
ALL_REGISTERS, UNIT = 65536, 8


class Job(NamedTuple):
    """One compilation. dtype: of T; another: which of the further types that the contract's calls ask for."""

    file: str
    dtype: str
    architecture: str
    another: int = 0

    def __str__(self) -> str:
        return "-".join(map(str, self[: 4 if self.another else 3]))

    @property
    def types(self) -> dict[str, str]:
        """Those of the contract's calls in float32, or float64, with T of this dtype."""
        given = launches.types_of(self.file, "float64" if self.dtype == "float64" else "float32")
        return {**(given[self.another] if given else {}), "T": self.dtype}


def jobs() -> Iterator[Job]:
    """The commonest types for all architectures, then for all floats, then all other types."""
    for file in source.files():
        yield from (Job(file, "float32", architecture) for architecture in ARCHITECTURES)
        yield from (Job(file, dtype, USUAL) for dtype in source.FLOATS if dtype != "float32")
        yield from (Job(file, "float32", USUAL, n) for n in range(1, len(launches.types_of(file))))


#: The usual run compiles one form of each source.
JOBS = [
    pytest.param(job, id=str(job), marks=() if job[1:] == ("float32", USUAL, 0) else pytest.mark.nightly)
    for job in ([] if nvrtc_compiler.missing() else jobs())
]


def compile_job(job: Job) -> list[Usage]:
    """The job's kernels."""
    return compiled(source.program(job.file, job.types), job.file, job.architecture)


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> Iterator[dict[Job, Future[Any]]]:
    """The compilations of all tests that were asked for, several at a time."""
    here = [item for item in request.session.items if item.path == request.path]
    wanted = [item.callspec.params["job"] for item in here if "job" in item.fixturenames]
    with ThreadPoolExecutor() as pool:
        yield {job: pool.submit(compile_job, job) for job in wanted}
        pool.shutdown(cancel_futures=True)


def complaints(usages: list[Usage], threads: dict[str, int]) -> list[str]:
    """What is wrong with kernels of a source. threads: of the largest block that each is launched with."""
    found = []
    for usage in usages:
        allowed = SPILLED.get(usage.kernel, 0)
        if usage.spilled > allowed:
            found.append(f"{usage.kernel}: wanted at most {allowed} bytes spilled, received {usage.spilled}")
        if usage.local > max(allowed, STACK.get(usage.kernel, 0)):
            found.append(f"{usage.kernel}: wanted no stack frame, received one of {usage.local} bytes")
        block = -(-usage.registers // UNIT) * UNIT * threads.get(usage.kernel, 256)
        if usage.registers > REGISTERS or block > ALL_REGISTERS:
            found.append(f"{usage.kernel}: {usage.registers} registers a thread are too many, {block} a block")
    return found


@pytest.mark.parametrize("job", JOBS)
def test_source_compiles(results, job):
    usages = results[job].result()
    assert sorted(usage.kernel for usage in usages) == sorted(source.kernels(job.file))
    assert complaints(usages, launches.threads_of(job.file)) == []


@pytest.mark.parametrize("file", source.files())
def test_every_kernel_is_launched_by_a_call_of_the_contract(file):
    """Or by one of the ranks'; also what makes the types above those of real calls."""
    launched = {launch.kernel for launch in launches.launches("float32") if launch.file == file}
    assert launched == set(source.kernels(file))


# ---- the gate itself

KERNEL = """#line 1 "planted.cu"
extern "C" __global__ void {bounds} planted(double* y) {{
    double held[{count}];
#pragma unroll
    for (int i = 0; i < {count}; i++) held[i] = y[i * 32 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < {count}; i++) y[i * 32 + threadIdx.x] = held[{count} - 1 - i] * held[(i * 7) % {count}]{end}
}}"""
#: An array whose element only the run knows cannot lie in registers.
STACKED = """extern "C" __global__ void planted(const float* x, const int* at, float* y, int n) {
    float held[64] = {};
    for (int i = 0; i < n; i++) held[at[i]] += x[i];
    y[threadIdx.x] = held[at[threadIdx.x]];
}"""


def holding(count: int, bounds: str = "", end: str = ";") -> str:
    """A kernel that holds so many numbers of float64 at a time."""
    return KERNEL.format(count=count, bounds=bounds, end=end)


@pytest.mark.parametrize(
    ("text", "threads", "word"),
    [
        (holding(4), 1024, ""),
        (holding(100, "__launch_bounds__(1024)"), 256, "bytes spilled"),
        (STACKED, 256, "stack frame"),
        (holding(90), 256, "registers a thread are too many"),
        (holding(40), 256, ""),
        (holding(40), 1024, "a block"),
    ],
    ids=["modest", "spilled", "stacked", "registers", "small blocks", "large blocks"],
)
def test_what_a_planted_kernel_takes_too_much_of_is_told(text, threads, word):
    found = complaints(compiled(text, "planted.cu", USUAL), {"planted": threads})
    assert (not found) == (word == "") and word in "".join(found)


def test_a_wrong_source_is_refused_with_its_line():
    with pytest.raises(RuntimeError, match=r"planted\.cu\(\d+\): error"):
        compiled(holding(4, end=""), "planted.cu", USUAL)
