"""Kernels bound by memory, as plain loops in C: each goes over its operands as few times as it can.

They stand between oneDNN, which multiplies and convolves, and NumPy. `source/` has the loops, which are compiled when
the package is installed, where there is a C compiler; without them NumPy does the same work in more time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module

from singa_lite.common.array_types import Array
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import Described, KernelSet, Launch, Settings, TensorSpecs, specs_of
from singa_lite.kernels.loop_kernels.library import load
from singa_lite.kernels.loop_kernels.routine import Builder, LoopKernel
from singa_lite.kernels.widening import WideningSet

#: Of a call: what binds it, without code of its own.
CODE_BYTES = 2 << 10
#: Modules of this folder, each with a table `KERNELS`. They are imported where there are loops.
MODULES = (
    "adafactor",
    "attention",
    "batch_norm",
    "elementwise",
    "embedding",
    "gradients",
    "group_norm",
    "loss",
    "lrn",
    "position",
    "quantized",
    "recurrent",
    "reduction",
    "row_norm",
    "stored_value",
    "update",
)


class LoopSet(WideningSet):
    """The kernels of the loops, over float32 and bfloat16.

    Work is cut by shapes alone, and what has gaps is stepped over or copied first: no stride changes a bit.
    """

    def takes_narrow(self, name: str, specs: TensorSpecs, settings: Settings) -> bool:
        """Whether a loop reads the operands as they are."""
        return name in self.kernels and self.kernels[name].supports(specs, settings)

    def free_of_strides(self, name: str, tensors: Sequence[Described | None], settings: Settings) -> Collection[str]:
        """All tensors of a call that a loop does."""
        if self.takes_narrow(name, specs_of(tensors), settings):
            return SIGNATURES[name].tensors
        return super().free_of_strides(name, tensors, settings)

    def converted(self, source: Array, target: Array) -> Launch:
        """As `WideningSet.converted`, by all threads."""
        specs, settings = specs_of((source, target)), dict[str, object]()
        if not self.takes_narrow("copy", specs, settings):
            return super().converted(source, target)
        return self.kernels["copy"].prepare((source, target), None, settings)


def loops(fallback: KernelSet) -> KernelSet:
    """Returns the loops above the fallback, or the fallback where they were not compiled."""
    if load() is None:
        return fallback
    modules = [import_module(f"{__name__}.{name}") for name in MODULES]
    tables: list[Mapping[str, Builder]] = [module.KERNELS for module in modules]
    kernels = {name: LoopKernel(name, build) for table in tables for name, build in table.items()}
    fusions = [fusion for module in modules for fusion in getattr(module, "FUSIONS", ())]
    found = LoopSet("loops", kernels, fallback, fusions=fusions, one_pass=True)
    found.code_bytes = CODE_BYTES
    return found
