"""A Python process under the address sanitizer of g++, for kernels compiled with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import host_loader


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


def report(written: str) -> str:
    """What the sanitizer wrote: the error, and where in the sources; all of it if it did not."""
    lines = written.splitlines()
    first = next((n for n, line in enumerate(lines) if "ERROR: AddressSanitizer" in line), None)
    if first is None:
        return written.strip()[-4000:]
    error = lines[first:]
    # Below the call through ctypes are Python's own frames; further down it says which memory lies nearby.
    frames = error[: next((n for n, line in enumerate(error) if "ffi" in line), 20)]
    return "\n".join([*frames, *[line for line in error if " is located " in line]])
