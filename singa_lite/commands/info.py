"""`python -m singa_lite info`: what this installation has and what it will use, one fact a line."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from singa_lite.common import machine, threads
from singa_lite.common.errors import DeviceError
from singa_lite.device import cuda_libraries
from singa_lite.kernels.choice import cpu_kernels, find_onednn
from singa_lite.kernels.loop_kernels.library import find as find_loops
from singa_lite.kernels.onednn_kernels.library.library import load
from singa_lite.kernels.tuning_file import path, read_tuning

Fact = tuple[str, str]


def facts(version: str) -> Iterator[Fact]:
    """Yields what `info` prints: names and values. version: of singa_lite."""
    yield "singa_lite", f"{version}, {Path(__file__).resolve().parent.parent}"
    yield "Python", f"{platform.python_version()}, {platform.platform()}"
    yield "NumPy", np.__version__
    yield "BLAS", _or_error(_blas)
    yield "oneDNN", _or_error(_onednn)
    yield "loops", _or_error(_loops)
    yield "kernels", _or_error(_kernels)
    yield "tuning", _or_error(_tuning)
    yield "threads", _or_error(_threads)
    yield "processor", machine.processor()
    yield "instruction sets", " ".join(machine.instruction_sets()) or "unknown"
    yield "bfloat16", _or_error(_bfloat16)
    yield "memory", _memory()
    yield from cuda_libraries.library_rows()


def _or_error(value: Callable[[], str]) -> str:
    try:
        return value()
    except (DeviceError, ValueError) as error:
        return f"error: {error}"


def _blas() -> str:
    """NumPy's, or whatever is loaded."""
    threads.start()
    libraries = [library.info() for library in threads.blas()]
    lines = (
        f"{one['internal_api']} {one['version']}, kernels for {one.get('architecture', 'unknown')}, "
        f"threads {one['num_threads']}, {one['filepath']}"
        for one in libraries
    )
    return "; ".join(lines) or "unknown"


def _onednn() -> str:
    found = find_onednn()
    if isinstance(found, str):
        return f"none: {found}"
    library = load()
    return f"{library.version}, {library.path}"


def _loops() -> str:
    """For which processors they were compiled, or why there are none."""
    found = find_loops()
    return f"none: {found or 'SINGA_LITE_LOOPS=off'}" if isinstance(found, str) else found.level


def _kernels() -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the line above says why
        return cpu_kernels().name


def _bfloat16() -> str:
    """Whether the kernels in use compute in it, what the processor has for it, and what it costs without."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # another line says why
        kernels = cpu_kernels()
    has = " ".join(name for name in machine.instruction_sets() if "bf16" in name) or "none of AVX512-BF16 and AMX"
    if kernels.has_bfloat16:
        return f"by the processor ({has})"
    return f"over converted copies in float32 (processor: {has}): half the activations' bytes, no less time"


def _tuning() -> str:
    """By which table kernels choose among several ways to do a call."""
    if isinstance(find_onednn(), str):
        return "none, as oneDNN's kernels alone have several ways"
    from singa_lite.kernels.onednn_kernels.filter_gradient import FILTER_GRADIENTS

    return read_tuning(FILTER_GRADIENTS.library(), path()).told


def _threads() -> str:
    return f"{threads.threads()}, on {machine.cores()} cores"


def _memory() -> str:
    return ", ".join(f"{nbytes / 2**30:.1f} GiB {name}" for name, nbytes in machine.memory().items()) or "unknown"
