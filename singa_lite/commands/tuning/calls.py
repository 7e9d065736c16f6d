"""Calls that a kernel set can do in several ways: those of a net's training step, or those of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from singa_lite.common.strides import laid_out, memory_order
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.time_model import multiply_adds
from singa_lite.kernels.built import BuiltKernel
from singa_lite.kernels.kernel_set import KernelSet, Settings, TensorSpec, TensorSpecs, specs_of
from singa_lite.kernels.variants import AnyVariants

_FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Call:
    """A call, and how often it is done in a step. layer: the first that does it."""

    variants: AnyVariants
    specs: TensorSpecs
    settings: Settings
    layer: str
    count: int = 1

    @property
    def name(self) -> str:
        """By which tables of choices know it."""
        return self.variants.call_name(self.specs, self.settings)

    @property
    def flops(self) -> int:
        """Two for each multiply-add."""
        return 2 * multiply_adds(self.variants.kernel, self.specs, self.settings)

    @property
    def shapes(self) -> str:
        """Of its tensors, short."""
        return " ".join("x".join(map(str, spec.shape)) for spec in self.specs if spec is not None)


def variants_of(kernels: KernelSet) -> dict[str, AnyVariants]:
    """{kernel: its variants}, of those that have several."""
    found: dict[str, AnyVariants] = {}
    for name, kernel in kernels.kernels.items():
        if isinstance(kernel, BuiltKernel) and kernel.variants is not None:
            found[name] = kernel.variants
    return found


def of_step(kernels: KernelSet, instructions: Iterable[Instruction]) -> list[Call]:
    """The calls of a planned step, each different one once."""
    known = variants_of(kernels)
    return counted(
        Call(known[i.kernel], _as_done(kernels, i), i.settings, i.layer) for i in instructions if i.kernel in known
    )


def _as_done(kernels: KernelSet, instruction: Instruction) -> TensorSpecs:
    """The specs by which the set itself does the call: float32 ones, where it is widened first."""
    specs = specs_of(instruction.operands)
    own = kernels.kernels[instruction.kernel]
    if kernels.choose(instruction.kernel, specs, instruction.settings) is own:
        return specs
    return tuple(None if spec is None else _wide(spec) for spec in specs)


def _wide(spec: TensorSpec) -> TensorSpec:
    order = memory_order(spec.shape, spec.strides)
    return TensorSpec(spec.shape, _FLOAT32, laid_out(spec.shape, order, _FLOAT32.itemsize))


def counted(calls: Iterable[Call]) -> list[Call]:
    """Equal ones as one, in the order of the first ones."""
    groups: dict[str, list[Call]] = {}
    for call in calls:
        groups.setdefault(call.name, []).append(call)
    return [replace(group[0], count=sum(call.count for call in group)) for group in groups.values()]


def images(shape: Sequence[int], axes: Sequence[int]) -> TensorSpec:
    """The spec of a float32 tensor without gaps, its axes in this order from the outermost."""
    return TensorSpec(tuple(shape), _FLOAT32, laid_out(shape, axes, _FLOAT32.itemsize))
