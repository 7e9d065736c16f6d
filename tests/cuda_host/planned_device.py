"""An abstract GPU whose convolutions are planned by cuDNN, for a described H100: plans without GPU and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from host_convolutions import convolutions
from singa_lite.device import Device
from singa_lite.device.abstract import AbstractDevice
from singa_lite.device.host_fallback import by_way_of_host
from singa_lite.kernels.cuda_kernels import cuda
from singa_lite.kernels.cuda_kernels.assumed import AssumedProducts, NoCompiler
from singa_lite.kernels.cuda_kernels.cudnn_call import PlannedCall
from singa_lite.kernels.cuda_kernels.pointwise import PointwiseConvolutions
from singa_lite.kernels.cuda_kernels.products import Products
from singa_lite.kernels.cuda_kernels.routine import CudaKernel, LibraryStep
from singa_lite.kernels.kernel_set import specs_of
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.memory_plan import MemoryPlan
from singa_lite.operation import Instruction
from singa_lite.runtime.without_bytes import AbstractCuda


def planned_device(**knobs: object) -> Device:
    """knobs: of `cudnn_plan.Knobs`. What cuBLASLt wants is known on a GPU alone: no workspace is assumed."""
    runtime = AbstractCuda("abstract cuda", "device.cuda(0)")
    products = Products(AssumedProducts(0))
    libraries = [products, PointwiseConvolutions(products), convolutions(**knobs)]
    fusions = {pair for library in libraries for pair in library.FUSIONS}
    below = by_way_of_host(NUMPY, runtime)
    kernels = cuda(NoCompiler(), below, [library.builders for library in libraries], fusions)
    return AbstractDevice("cuda", kernels, runtime, None)


class Planned(NamedTuple):
    """A convolution of a planned step. call: with all engines that it may be done by; None: it is a kernel of ours."""

    instruction: Instruction
    call: PlannedCall | None

    @property
    def engine(self) -> str:
        assert self.call is not None
        return self.call.plan_within(self.instruction.scratch_bytes).engine


def planned_convolutions(on: Device, plan: MemoryPlan) -> Iterator[Planned]:
    """Those of a step that are no products."""
    for instruction in plan.placed.planned.instructions:
        if not instruction.kernel.startswith("conv2d"):
            continue
        specs = specs_of(instruction.operands)
        kernel = on.kernels.choose(instruction.kernel, specs, instruction.settings)
        assert isinstance(kernel, CudaKernel), instruction.kernel
        routine = kernel.attempt(specs, instruction.settings)
        assert routine is not None
        calls = [step.call for step in routine.steps if isinstance(step, LibraryStep)]
        if not calls:
            yield Planned(instruction, None)
        for call in calls:
            if isinstance(call, PlannedCall):
                yield Planned(instruction, call)
