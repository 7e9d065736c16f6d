"""The routines and kernels by which a CUDA kernel set does a call.

A composed kernel is resolved into its inner calls. Where a call can be done in two ways, the faster one is taken.
"""

from __future__ import annotations

from collections.abc import Iterator

from singa_lite.kernels.carving import unread
from singa_lite.kernels.composed import ComposedKernel, FasterWithScratch, InnerCall, Temporaries
from singa_lite.kernels.cuda_kernels.routine import CudaKernel, Routine
from singa_lite.kernels.kernel_set import Kernel, KernelSet
from singa_lite.kernels.specs import specs_of


def own_set(kernels: KernelSet) -> KernelSet:
    """Returns the set of our own kernels: of the levels of a CUDA set the last one before the host's."""
    while not kernels.one_pass:
        assert kernels.fallback is not None
        kernels = kernels.fallback
    return kernels


def parts(kernels: KernelSet, call: InnerCall) -> Iterator[Routine | Kernel | None]:
    """In their order; None stands for a call that no kernel here serves. Arrays of the call may be specs."""
    specs = specs_of(call.operands)
    kernel = kernels.choose(call.kernel, specs, call.settings) if isinstance(call.kernel, str) else call.kernel
    if isinstance(kernel, FasterWithScratch):
        kernel = kernel.fast
    if isinstance(kernel, CudaKernel):
        yield kernel.attempt(specs, call.settings)
    elif not isinstance(kernel, ComposedKernel):
        yield kernel
    elif not kernel.supports(specs, call.settings):
        yield None
    else:
        arrays = [None if spec is None else unread(spec) for spec in specs]
        for inner in kernel._calls(Temporaries(None), *arrays, **call.settings):
            yield from parts(kernel._kernels, inner)
