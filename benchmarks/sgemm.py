"""The machine's SGEMM peak: the best GFLOP/s of any library at hand over a few square sizes.

    pip install ".[onednn]" && python benchmarks/sgemm.py [--threads N]

What was measured beside other work is not printed, and the exit status is 4, unless --anyway is given (quiet.py).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import quiet
from peers.process import environment
from tiny import parsed
from tiny import size as tiny_size

SIZES = tiny_size((1024, 2048, 4096), (32,))
#: Seconds spent on each size at least, after a first product that counts for nothing.
SECONDS = tiny_size(1.0, 0.01)

Product = Callable[[], Any]


class Peak(NamedTuple):
    """gflops: the best; library, size: whose and at which."""

    gflops: float
    library: str
    size: int


def _numpy(a: np.ndarray, b: np.ndarray, y: np.ndarray) -> Product:
    return lambda: np.matmul(a, b, out=y)


def _torch(a: np.ndarray, b: np.ndarray, y: np.ndarray) -> Product:
    import torch

    x, w, out = (torch.from_numpy(array) for array in (a, b, y))
    return lambda: torch.mm(x, w, out=out)


def _singa_lite(a: np.ndarray, b: np.ndarray, y: np.ndarray) -> Product:
    """The matmul of the default device, whatever library that is."""
    from singa_lite import device

    kernels, settings = device.default().kernels, {"transpose_a": False, "transpose_b": False}
    scratch = np.empty(kernels.scratch_bytes("matmul", (a, b, y), settings), np.uint8)
    return kernels.prepare("matmul", (a, b, y), scratch, settings)


#: How to bind the product y = a @ b, by library. A further library is a further line.
LIBRARIES: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], Product]] = {
    "numpy": _numpy,
    "torch": _torch,
    "singa_lite": _singa_lite,
}


def measure(library: str) -> Peak:
    """The best product of this library, in this process."""
    best = Peak(0.0, library, 0)
    for size in SIZES:
        a, b = (np.full((size, size), value, np.float32) for value in (0.5, 0.25))
        product = LIBRARIES[library](a, b, np.empty_like(a))
        product()
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            start = time.perf_counter()
            product()
            best = max(best, Peak(2 * size**3 / (time.perf_counter() - start) / 1e9, library, size))
    return best


def sgemm_peaks(threads: int) -> list[Peak]:
    """One of each library that is installed, the best first; each in a process of its own."""
    found = [name for name in tiny_size([*LIBRARIES], ["singa_lite"]) if importlib.util.find_spec(name) is not None]
    peaks = []
    for name in found:
        command = [sys.executable, __file__, "--one", name]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment(threads))
        peaks.append(Peak(*json.loads(done.stdout)))
    return sorted(peaks, reverse=True)


def main() -> int:
    """Print each library's best."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--one", choices=list(LIBRARIES), help="this library in this process, as JSON")
    quiet.add_option(parser)
    options = parsed(parser)
    if options.one:
        print(json.dumps(measure(options.one)))
        return 0
    watch = quiet.Watch(options.anyway)
    peaks = sgemm_peaks(options.threads)
    why = watch.trouble()
    for peak in peaks:
        watch.write(f"{peak.gflops:8.1f} GFLOP/s  {peak.library}, {peak.size} x {peak.size}", why)
    return watch.status


if __name__ == "__main__":
    sys.exit(main())
