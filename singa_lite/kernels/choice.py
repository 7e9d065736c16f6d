"""Chooses the kernel set of a CPU device."""

from __future__ import annotations

import os
from copy import copy
from dataclasses import dataclass
from functools import cache

from singa_lite.common import pages, threads
from singa_lite.common.contexts import OneAtATime
from singa_lite.common.errors import DeviceError
from singa_lite.common.notice import warn
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import CallArrays, DeviceArray, Kernel, KernelSet, Launch, Settings, TensorSpecs
from singa_lite.kernels.loop_kernels import loops
from singa_lite.kernels.loop_kernels.library import find as find_loops
from singa_lite.kernels.numpy_kernels import NUMPY

SETS = ("auto", "onednn", "numpy")

#: By what a kernel multiplies (`Facts.multiplies`), the fewest elements of its largest tensor for which BLAS may use
#: threads. OpenBLAS does from m·n·k = 2**18 on, where the largest of the three matrices has 2**12 elements or more. How
#: large the patches of a convolution, the tiles of attention and the matrices of a step are, their tensors do not say.
_LEAST = {"tensors": 1 << 12, "blocks": 1 << 12, "patches": 0, "scores": 0, "steps": 0}

_lock = OneAtATime()


def cpu_kernels(wanted: str = "auto") -> KernelSet:
    """The set called "onednn" or "numpy", or for "auto" that of SINGA_LITE_KERNELS, or the fastest that is there.

    DeviceError for another name, and for a set that was asked for and is not there.
    """
    where = "kernels"
    if isinstance(wanted, str) and wanted == "auto":
        where, wanted = "SINGA_LITE_KERNELS", os.environ.get("SINGA_LITE_KERNELS", "") or "auto"
    if not isinstance(wanted, str) or wanted not in SETS:
        raise DeviceError(f"{where}: wanted one of {SETS}, received {wanted!r}")
    if wanted == "numpy":
        return NUMPY
    found = find_onednn()
    if isinstance(found, KernelSet):
        with _lock.lock:
            _warn_of_loops()
        return found
    if wanted == "onednn":
        raise DeviceError(f"{where}: wanted the oneDNN kernels, but {found}")
    with _lock.lock:
        _warn_of_onednn(found)
    return NUMPY


def find_onednn() -> KernelSet | str:
    """The set, or why there is none; looked for once."""
    with _lock.lock:  # a library is loaded once, and every thread gets the same set
        return _onednn()


@cache
def _onednn() -> KernelSet | str:
    from singa_lite.kernels.onednn_kernels import onednn
    from singa_lite.kernels.onednn_kernels.library.library import OneDNNError, load

    try:
        with threads.openmp_starts():
            path = load().path
    except (OSError, OneDNNError) as error:
        return str(error)
    threads.use_openmp_of(path)
    pages.may_drop_code(path)
    return onednn(loops(_beside_openmp(NUMPY)))


@cache
def _warn_of_loops() -> None:
    """Once in a process, unless there are loops or the user has said that it is meant."""
    found = find_loops()
    if isinstance(found, str) and found:
        warn(
            f"{found}; the NumPy kernels do their work, several times slower. To change that: install GCC and then "
            "singa_lite again, or in a checkout python setup.py build_ext --inplace --force; to say that this is "
            "meant: SINGA_LITE_LOOPS=off",
        )


@cache
def _warn_of_onednn(why: str) -> None:
    """Once in a process, unless the user has said that it is meant."""
    from singa_lite.kernels.onednn_kernels.library.library import OFF

    if os.environ.get("SINGA_LITE_ONEDNN", "") != OFF:
        warn(
            f"{why}; the NumPy kernels serve, many times slower. To change that: pip install onednn-cpu-gomp; "
            "to say that this is meant: SINGA_LITE_KERNELS=numpy",
        )


def _beside_openmp(kernels: KernelSet) -> KernelSet:
    """The set, with BLAS on one thread."""
    made = copy(kernels)
    products = {name: SIGNATURES[name].facts.multiplies for name in kernels.kernels}
    made.kernels = {
        name: OneBlasThread(kernel, _LEAST[products[name]]) if products[name] else kernel
        for name, kernel in kernels.kernels.items()
    }
    return made


@dataclass(frozen=True)
class OneBlasThread:
    """A kernel with BLAS on one thread, as its waiting threads would take the cores from OpenMP's.

    least: elements of the largest tensor from which on BLAS may use threads.
    """

    kernel: Kernel
    least: int

    def supports(self, specs: TensorSpecs, settings: Settings) -> bool:
        """As the kernel."""
        return self.kernel.supports(specs, settings)

    def scratch_bytes(self, specs: TensorSpecs, settings: Settings) -> int:
        """As the kernel."""
        return self.kernel.scratch_bytes(specs, settings)

    def prepare(self, arrays: CallArrays, scratch: DeviceArray | None, settings: Settings) -> Launch:
        """As the kernel."""
        launch = self.kernel.prepare(arrays, scratch, settings)
        if max(array.size for array in arrays if array is not None) < self.least:
            return launch
        return threads.on_one_blas_thread(launch)
