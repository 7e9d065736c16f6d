"""Kernels bound by memory, as plain loops in C: each goes over its operands as few times as it can.

They stand between oneDNN, which multiplies and convolves, and NumPy. `source/` has the loops, which are compiled when
the package is installed, where there is a C compiler; without them NumPy does the same work in more time.
"""

from __future__ import annotations

from collections.abc import Mapping

from singa_lite.kernels.kernel_set import KernelSet, Settings, TensorSpecs
from singa_lite.kernels.loop_kernels.library import load
from singa_lite.kernels.loop_kernels.routine import Builder, LoopKernel
from singa_lite.kernels.widening import WideningSet

#: Of a call: what binds it, without code of its own.
CODE_BYTES = 2 << 10


class LoopSet(WideningSet):
    """The kernels of the loops, over float32 and bfloat16."""

    def takes_narrow(self, name: str, specs: TensorSpecs, settings: Settings) -> bool:
        """Whether a loop reads the operands as they are."""
        return name in self.kernels and self.kernels[name].serves(specs, settings)


def loops(fallback: KernelSet) -> KernelSet:
    """Returns the loops above the fallback, or the fallback where they were not compiled."""
    if load() is None:
        return fallback
    from singa_lite.kernels.loop_kernels import attention, batch_norm, position

    tables: list[Mapping[str, Builder]] = [attention.KERNELS, batch_norm.KERNELS, position.KERNELS]
    kernels = {name: LoopKernel(name, build) for table in tables for name, build in table.items()}
    fusions = [*batch_norm.FUSIONS]
    found = LoopSet("loops", kernels, fallback, fusions=fusions, strides_matter=kernels.keys(), one_pass=True)
    found.code_bytes = CODE_BYTES
    return found
