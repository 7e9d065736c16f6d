"""Compiles CUDA sources to machine code as CuPy would, without a GPU, and reads what each kernel takes of one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import build_cache
from host_loader import INCLUDES

#: Headers that a source can reach.
HEADERS = ("*.h", "*.hpp", "crt/*", "nv/**/*")
_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


class Usage(NamedTuple):
    """What ptxas tells of a kernel, with the functions that it calls. Bytes are those of one thread, shared a block's.

    local: arrays that do not fit in registers, spilled ones among them.
    """

    kernel: str
    registers: int
    local: int
    spilled: int
    shared: int


@cache
def missing() -> str:
    """What is wanted to compile here and not found; "" if all is there."""
    try:
        _nvrtc().getVersion()
    except Exception as error:  # no CuPy, or CuPy without the library: each version raises its own
        return f"NVRTC, pip install cupy-cuda13x nvidia-cuda-nvrtc nvidia-cuda-runtime ({type(error).__name__})"
    if not any((folder / "cuda_fp16.h").exists() for folder in INCLUDES):
        return "cuda_fp16.h, pip install nvidia-cuda-runtime"
    return ""


def compiled(text: str, name: str, architecture: str) -> list[Usage]:
    """What the kernels of a source take, once it is machine code; compiled unless the cache has what was said of it.

    architecture: sm_90, say. RuntimeError with the compiler's words.
    """
    options = ["--std=c++17", "-default-device", "-ftz=true", f"-arch={architecture}", "--ptxas-options=-v"]

    def make(path: Path) -> None:
        path.write_text(_compile(text, name, options))

    made_of = [text, name, *options, *_surroundings()]
    kept = build_cache.entry(f"{Path(name).stem}.log", made_of, make)
    return usages(build_cache.contents(kept).decode())


@cache
def _surroundings() -> tuple[str, ...]:
    """What else is compiled in: the compiler and the contents of headers."""
    headers = [path for folder in INCLUDES for part in HEADERS for path in sorted(folder.glob(part)) if path.is_file()]
    return str(_nvrtc().getVersion()), *(hashlib.sha256(path.read_bytes()).hexdigest() for path in headers)


def ptx(text: str, architecture: str) -> bytes:
    """The PTX of a program, for such as compute_100."""
    with _made(text, "kernel.cu", ["--std=c++17", "-default-device", "-ftz=true", f"-arch={architecture}"]) as program:
        made = _nvrtc().getPTX(program)
    return (made if isinstance(made, bytes) else made.encode()).rstrip(b"\0")


def _compile(text: str, name: str, options: list[str]) -> str:
    """What the compiler says of a source that it made machine code of."""
    with _made(text, name, options) as program:
        if not _nvrtc().getCUBIN(program).startswith(b"\x7fELF"):
            raise RuntimeError(f"{name}: wanted machine code, received none")
        return str(_nvrtc().getProgramLog(program))


@contextmanager
def _made(text: str, name: str, options: list[str]) -> Iterator[Any]:
    """The compiled program. RuntimeError with the compiler's words."""
    nvrtc = _nvrtc()
    program = nvrtc.createProgram(text, name, [], [])
    try:
        nvrtc.compileProgram(program, [*options, *(f"-I{folder}" for folder in INCLUDES if folder.exists())])
        yield program
    except nvrtc.NVRTCError as error:
        raise RuntimeError(nvrtc.getProgramLog(program)[:4000]) from error
    finally:
        nvrtc.destroyProgram(program)


def usages(log: str) -> list[Usage]:
    """What a program log says, kernel by kernel."""
    _, *parts = _ENTRY.split(log)
    return [_usage(kernel, part) for kernel, part in zip(parts[::2], parts[1::2], strict=True)]


def _usage(kernel: str, text: str) -> Usage:
    memory = [tuple(map(int, found)) for found in _MEMORY.findall(text)]
    local = sum(frame for frame, _, _ in memory)
    spilled = sum(stores + loads for _, stores, loads in memory)
    registers, shared = _REGISTERS.search(text), _SHARED.search(text)
    if registers is None or not memory:
        raise ValueError(f"wanted ptxas to tell of kernel {kernel!r}, received {text!r}")
    return Usage(kernel, int(registers[1]), local, spilled, int(shared[1]) if shared else 0)


def _nvrtc() -> Any:
    from cupy.cuda import nvrtc

    return nvrtc
