"""Compiles the CUDA sources for the host, by g++ and `cuda_on_host.h`, and runs their kernels over host memory."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from singa_lite.kernels.cuda_kernels import source
from singa_lite.kernels.cuda_kernels.routine import Arguments

HERE = Path(__file__).resolve().parent
BARRIER = re.compile(r"__sync(threads|warp)|__shfl|__ballot_sync|__any_sync")
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


class HostFunction:
    """A kernel compiled for the host."""

    def __init__(self, function: Any, name: str) -> None:
        self.function = function
        self.name = name

    def bind(self, grid: Sequence[int], block: Sequence[int], shared_bytes: int, arguments: Arguments) -> Any:
        """A launch with these arguments."""
        extents = (ctypes.c_uint * 6)(*grid, *block)
        shared = ctypes.c_ulong(shared_bytes)

        def launch() -> None:
            if self.function(extents, shared, arguments.pointers):
                raise RuntimeError(f"kernel {self.name!r} failed, see above")

        return launch


class HostLoader:
    """The loader of kernels that run on the host. sanitized: under the address sanitizer."""

    def __init__(self, sanitized: bool = False) -> None:
        self.sanitized = sanitized
        self.launched: set[tuple[str, str, tuple[tuple[str, str], ...]]] = set()

    def function(self, file: str, kernel: str, types: tuple[tuple[str, str], ...]) -> HostFunction:
        """A kernel of a source, for these types."""
        self.launched.add((file, kernel, types))
        return HostFunction(getattr(library(file, types, self.sanitized), f"run_{kernel}"), kernel)


@cache
def library(file: str, types: tuple[tuple[str, str], ...], sanitized: bool = False) -> ctypes.CDLL:
    """The library of a source's kernels for these types."""
    return ctypes.CDLL(str(compiled(file, types, sanitized)))


def compiled(file: str, types: tuple[tuple[str, str], ...], sanitized: bool = False) -> Path:
    """The library's file; compiled unless an equal source was before."""
    text = f'#include "cuda_on_host.h"\n{source.program(file, dict(types))}'
    text += "\n" + "\n".join(f"EXPORT_KERNEL({name})" for name in source.kernels(file)) + "\n"
    options = [] if BARRIER.search(text) else ["-DNO_BARRIERS"]
    options += ["-fsanitize=address", "-g", "-O1"] if sanitized else ["-O2"]
    header = (HERE / "cuda_on_host.h").read_text()
    name = hashlib.sha256("\0".join([text, header, *options]).encode()).hexdigest()[:24]
    folder = cache_folder()
    made = folder / f"{Path(file).stem}-{name}.so"
    if not made.exists():
        _compile(text, options, made)
    return made


def cache_folder() -> Path:
    """Where compiled kernels are kept: one of this user's own, as others could put theirs into a shared one."""
    folder = Path(tempfile.gettempdir()) / f"singa_lite_kernels_on_host_{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _compile(text: str, options: list[str], made: Path) -> None:
    includes = [f"-I{folder}" for folder in (HERE, *INCLUDES) if folder.exists()]
    with tempfile.TemporaryDirectory(dir=made.parent) as work:
        code = Path(work) / "kernels.cpp"
        code.write_text(text)
        flags = ["-std=c++17", "-fPIC", "-shared", "-w", "-fno-math-errno", "-ffp-contract=off", "-Wl,-Bsymbolic"]
        command = ["g++", *flags, *options, *includes, str(code), "-o", f"{work}/kernels.so"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr[:4000]}")
        os.replace(f"{work}/kernels.so", made)


def host_bytes(address: int, nbytes: int) -> np.ndarray:
    """The bytes at an address of the host, no copy."""
    return np.frombuffer((ctypes.c_char * nbytes).from_address(address), np.uint8)
