"""Every CUDA source compiles to machine code of all supported architectures, and its kernels fit a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

import launches
import nvrtc_compiler
from nvrtc_compiler import Usage, compiled, ptx
from singa_lite.kernels.cuda_kernels import source

pytestmark = pytest.mark.skipif(bool(nvrtc_compiler.missing()), reason=f"wants {nvrtc_compiler.missing()}")

#: Ampere, Hopper, and Blackwell in its two lines.
ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
#: The one that types other than the commonest are compiled for: what is wrong in one is wrong in all.
USUAL = "sm_90"

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


def complaints(usages: list[Usage], threads: dict[str, int]) -> list[str]:
    """What is wrong with kernels of a source. threads: of the largest block that each is launched with."""
    found = []
    for usage in usages:
        if usage.spilled:
            found.append(f"{usage.kernel}: {usage.spilled} bytes spilled")
        if usage.local:
            found.append(f"{usage.kernel}: wanted no stack frame, received one of {usage.local} bytes")
        block = -(-usage.registers // UNIT) * UNIT * threads.get(usage.kernel, 256)
        if usage.registers > REGISTERS or block > ALL_REGISTERS:
            found.append(f"{usage.kernel}: {usage.registers} registers a thread are too many, {block} a block")
    return found


@pytest.mark.parametrize("job", JOBS)
def test_source_compiles(job):
    usages = compiled(source.program(job.file, job.types), job.file, job.architecture)
    assert sorted(usage.kernel for usage in usages) == sorted(source.kernels(job.file))
    assert complaints(usages, launches.threads_of(job.file)) == []


@pytest.mark.parametrize("file", source.files())
def test_every_kernel_is_launched_by_a_call_of_the_contract(file):
    """Or by one of the ranks'; also what makes the types above those of real calls."""
    launched = {launch.kernel for launch in launches.launches("float32") if launch.file == file}
    assert launched == set(source.kernels(file))


SPILLING = """extern "C" __global__ void __launch_bounds__(1024) planted(double* y) {
    double held[100];
#pragma unroll
    for (int i = 0; i < 100; i++) held[i] = y[i * 32 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 100; i++) y[i * 32 + threadIdx.x] = held[99 - i] * held[(i * 7) % 100];
}"""


def test_a_kernel_that_spills_registers_is_told():
    told = "".join(complaints(compiled(SPILLING, "planted.cu", USUAL), {"planted": 256}))
    assert "bytes spilled" in told and "stack frame" in told


# ---- passes of normalisations load several packs before they store the first: a load behind a store waits for it

AT_ONCE = 4
PASSES = {
    "batch_norm.cu": {"batch_normalize", "batch_normalize_add", "batch_inference"},
    "batch_norm_derivative.cu": {"batch_derivative", "batch_derivative_add", "batch_derivative_masked"},
}
_KERNEL = re.compile(r"\.entry (\w+)\(.*?\{(.*?)\n\}", re.DOTALL)
#: What ends a row of stores: a load, a label, a branch.
_ENDS = re.compile(r"\bld\.global|^\s*\$\w+:|\bbra\b", re.MULTILINE)


@pytest.mark.parametrize("file", PASSES)
def test_packs_are_stored_behind_the_loads_of_all(file):
    text = ptx(source.program(file, launches.types_of(file, "float32")[0]), "compute_100").decode()
    in_a_row = {
        kernel: max(part.count("st.global.v4.f32") for part in _ENDS.split(body))
        for kernel, body in _KERNEL.findall(text)
    }
    assert {kernel for kernel, count in in_a_row.items() if count >= AT_ONCE} >= PASSES[file]
