"""`python -m singa_lite info`: what this installation has and what it will use, one fact a line.

Exit status: 0, also where something is missing or a setting is wrong, which the lines say; 2 for a bad command line.
"""

from __future__ import annotations

import argparse
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

import singa_lite
from singa_lite import machine, threads
from singa_lite.device import cuda_libraries
from singa_lite.errors import DeviceError
from singa_lite.kernels.choice import cpu_kernels, find_onednn
from singa_lite.kernels.onednn_kernels.library import load

Fact = tuple[str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m singa_lite", description="About this installation of singa_lite.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("info", help="versions, libraries, kernels, threads, processor and memory")
    if parser.parse_args(arguments).command is None:
        parser.print_help()
        return 0
    for name, value in facts():
        print(f"{name:<16}  {value}")
    return 0


def facts() -> Iterator[Fact]:
    """What `info` prints: names and values."""
    yield "singa_lite", f"{singa_lite.__version__}, {Path(singa_lite.__file__).parent}"
    yield "Python", f"{platform.python_version()}, {platform.platform()}"
    yield "NumPy", np.__version__
    yield "BLAS", _or_error(_blas)
    yield "oneDNN", _or_error(_onednn)
    yield "kernels", _or_error(_kernels)
    yield "threads", _or_error(_threads)
    yield "processor", machine.processor()
    yield "instruction sets", " ".join(machine.instruction_sets()) or "unknown"
    yield "memory", _memory()
    yield from cuda_libraries.found()


def _or_error(value: Callable[[], str]) -> str:
    try:
        return value()
    except (DeviceError, ValueError) as error:
        return f"error: {error}"


def _blas() -> str:
    """NumPy's, or whatever is loaded."""
    threads.start()
    told = [library.info() for library in threads.blas()]
    lines = (
        f"{one['internal_api']} {one['version']}, kernels for {one.get('architecture', 'unknown')}, "
        f"threads {one['num_threads']}, {one['filepath']}"
        for one in told
    )
    return "; ".join(lines) or "unknown"


def _onednn() -> str:
    found = find_onednn()
    if isinstance(found, str):
        return f"none: {found}"
    library = load()
    return f"{library.version}, {library.path}"


def _kernels() -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the line above says why
        return cpu_kernels().name


def _threads() -> str:
    return f"{threads.threads()}, on {machine.cores()} cores"


def _memory() -> str:
    return ", ".join(f"{nbytes / 2**30:.1f} GiB {name}" for name, nbytes in machine.memory().items()) or "unknown"


if __name__ == "__main__":
    sys.exit(main())
