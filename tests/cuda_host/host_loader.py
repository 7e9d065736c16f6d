"""Compiles the CUDA sources for the host, by g++ and `cuda_on_host.h`, and runs their kernels over host memory."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import build_cache
from singa_lite.kernels.cuda_kernels import source
from singa_lite.kernels.cuda_kernels.routine import Arguments

HERE = Path(__file__).resolve().parent
BARRIER = re.compile(r"__sync(threads|warp)|__shfl|__ballot_sync|__any_sync")
SHARED = re.compile(r"__shared__ ([^;]+);")
BLOCK_BARRIER = "__syncthreads();"
#: Of every library.
FLAGS = ("-std=c++17", "-fPIC", "-w", "-fno-math-errno", "-fno-gnu-unique")
#: Of `Build.as_gpu`.
AS_GPU = ("-ffp-contract=fast", "-mfma", "-DFLUSH_DENORMALS")
LINE = re.compile(r'#line (\d+) "(.*)"')
#: Where headers of CUDA may be: the wheels nvidia-cuda-runtime and nvidia-cuda-crt, or an installed toolkit.
INCLUDES = (
    Path(sysconfig.get_paths()["purelib"]) / "nvidia/cu13/include",
    Path(sysconfig.get_paths()["purelib"]) / "cupy/_core/include/cupy/_cccl/libcudacxx",
    Path("/usr/local/cuda/include"),
)


@cache
def missing() -> str:
    """What is wanted to compile here and not found, and what brings it; "" if all is there."""
    if shutil.which("g++") is None:
        return "g++, apt install g++"
    if not any((folder / "cuda_runtime.h").exists() for folder in INCLUDES):
        return "cuda_runtime.h, pip install nvidia-cuda-runtime nvidia-cuda-crt cupy-cuda13x"
    return ""


@cache
def missing_to_run() -> str:
    """The same for the kernel set compiled here, whose arrays are CuPy's."""
    return missing() or ("" if find_spec("cupy") else "CuPy, pip install cupy-cuda13x")


def rounds_once() -> bool:
    """Whether this processor has a product and a sum in one operation, for `Build.as_gpu`."""
    known = Path("/proc/cpuinfo")
    return known.exists() and re.search(r"^flags\s*:.*\bfma\b", known.read_text(), re.MULTILINE) is not None


class Build(NamedTuple):
    """How kernels are compiled for the host.

    sanitized: under the address sanitizer. as_gpu: numbers are rounded as NVRTC and CuPy's options have it: a product
    and a sum are one operation, rounded once, wherever the compiler sees both, and denormals are 0 (those of float64
    as well, which a GPU keeps); wants a processor that has such an operation. without: (file, line) of a
    __syncthreads() that is left out.
    """

    sanitized: bool = False
    as_gpu: bool = rounds_once()
    without: tuple[str, int] | None = None


PLAIN = Build()


class HostFunction:
    """A kernel compiled for the host."""

    def __init__(self, function: Any, name: str) -> None:
        self.function = function
        self.name = name

    def bind(self, grid: Sequence[int], block: Sequence[int], shared_bytes: int, arguments: Arguments) -> Any:
        extents = (ctypes.c_uint * 6)(*grid, *block)
        shared = ctypes.c_ulong(shared_bytes)

        def launch() -> None:
            if self.function(extents, shared, arguments.pointers):
                raise RuntimeError(f"kernel {self.name!r} failed, see above")

        return launch


class HostLoader:
    """The loader of kernels that run on the host. build: how they are compiled."""

    def __init__(self, build: Build = PLAIN) -> None:
        self.build = build
        self.launched: set[tuple[str, str, tuple[tuple[str, str], ...]]] = set()

    def function(self, file: str, kernel: str, types: tuple[tuple[str, str], ...]) -> HostFunction:
        """A kernel of a source, for these types."""
        self.launched.add((file, kernel, types))
        return HostFunction(getattr(library(file, types, self.build), f"run_{kernel}"), kernel)


@cache
def library(file: str, types: tuple[tuple[str, str], ...], build: Build = PLAIN) -> ctypes.CDLL:
    """The library of a source's kernels for these types."""
    return ctypes.CDLL(str(compiled(file, types, build)))


def compiled(file: str, types: tuple[tuple[str, str], ...], build: Build = PLAIN) -> Path:
    """The library's file; compiled unless the cache has it."""
    return compiled_program(Path(file).stem, source.program(file, dict(types)), source.kernels(file), build)


def compiled_program(name: str, program: str, kernels: Sequence[str], build: Build = PLAIN) -> Path:
    """The same for a whole program. name: of the file; kernels: that the program defines."""
    options = [] if BARRIER.search(program) else ["-DNO_BARRIERS"]
    if build.without is not None:
        program = without_barrier(program, *build.without)
    program = SHARED.sub(_poisoned, program)
    text = f'#include "cuda_on_host.h"\n{program}'
    text += "\n" + "\n".join(f"EXPORT_KERNEL({kernel})" for kernel in kernels) + "\n"
    options += ["-fsanitize=address", "-g", "-O1"] if build.sanitized else ["-O2"]
    options += AS_GPU if build.as_gpu else ["-ffp-contract=off"]
    options = [*FLAGS, *options]
    made_of = [text, *options, *surroundings()]
    return build_cache.entry(f"{name}.so", made_of, lambda made: _compile(text, options, made))


def _poisoned(declaration: re.Match[str]) -> str:
    """Shared memory's declaration, and behind it a call that fills it for a new block."""
    names = [re.findall(r"\w+", re.sub(r"\[[^]]*\]", "", one))[-1] for one in declaration[1].split(",")]
    return " ".join([declaration[0], *(f"cuda_on_host::fill_once(&{name}, sizeof {name});" for name in names)])


def without_barrier(program: str, file: str, line: int) -> str:
    """The program less the __syncthreads() of that line of a source or header, if that is a part of it."""
    lines, here, number = program.splitlines(), "", 0
    for place, text in enumerate(lines):
        begins = LINE.fullmatch(text)
        here, number = (begins[2], int(begins[1]) - 1) if begins else (here, number + 1)
        if (here, number) == (file, line) and BLOCK_BARRIER in text:
            return "\n".join([*lines[:place], text.replace(BLOCK_BARRIER, "", 1), *lines[place + 1 :], ""])
    return program


@cache
def surroundings() -> tuple[str, ...]:
    """What else is compiled in: the compiler, and the contents of all headers that a source can reach."""
    probe = '#include "cuda_on_host.h"\n#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n'
    rule = gcc(*FLAGS, "-fsanitize=address", "-M", "-x", "c++", "-", given=probe).stdout
    headers = [word for word in rule.split() if word.startswith("/")]
    version = gcc("-v").stderr
    return version, *(hashlib.sha256(Path(header).read_bytes()).hexdigest() for header in headers)


def gcc(*options: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """g++ with these options, finding CUDA's headers. RuntimeError with its words if it fails."""
    command = ["g++", *options, *[f"-I{folder}" for folder in (HERE, *INCLUDES) if folder.exists()]]
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # sanitize no compiler
    done = subprocess.run(command, input=given, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[:4000]}")
    return done


def _compile(text: str, options: list[str], made: Path) -> None:
    code = made.with_suffix(".cpp")
    code.write_text(text)
    gcc("-shared", "-Wl,-Bsymbolic", *options, str(code), "-o", str(made))


def host_bytes(address: int, nbytes: int) -> np.ndarray:
    """The bytes at an address of the host, no copy."""
    return np.frombuffer((ctypes.c_char * nbytes).from_address(address), np.uint8)
