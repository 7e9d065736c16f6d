"""Which calls of whole training steps NVIDIA's libraries do, and which are done on the host.

    python tests/cuda_host/library_calls.py

cuDNN plans for a GPU that is described to it. cuBLASLt can be asked on a GPU alone: each product that the builders
can describe is taken to be its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(root / "benchmarks"), str(root)]

from call_steps import parts
from host_libraries import convolutions, served
from singa_lite import optimizer
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.device import Device
from singa_lite.device.abstract import AbstractDevice
from singa_lite.device.host_fallback import HostFallback, by_way_of_host
from singa_lite.kernels.composed import InnerCall
from singa_lite.kernels.cuda_kernels import cuda
from singa_lite.kernels.cuda_kernels.libraries.assumed import AssumedProducts, NoCompiler
from singa_lite.kernels.cuda_kernels.libraries.products import Products
from singa_lite.kernels.cuda_kernels.routine import CudaStep, KernelLaunch, Routine
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.kernels.specs import specs_of
from singa_lite.runtime.without_bytes import AbstractCuda

#: Nets with their batches.
NETS = {"resnet50": 32, "vgg16": 32, "mobilenet_v2": 32, "lenet": 64, "gpt2_small_1024": 8}
PRECISIONS = ("float32", "bfloat16")


def planned_device(**knobs: object) -> Device:
    """knobs: of `cudnn_plan.Knobs`. What cuBLASLt wants is known on a GPU alone: no workspace is assumed."""
    runtime = AbstractCuda("abstract cuda", "device.cuda(0)")
    libraries = served(Products(AssumedProducts(0)), convolutions(**knobs))
    return AbstractDevice("cuda", cuda(NoCompiler(), by_way_of_host(NUMPY, runtime), *libraries), runtime, None)


def planned_step(found: Any, batch: int, precision: str) -> tuple[Device, MemoryPlan]:
    """A training step of a net. found: its entry in `nets` of the benchmarks."""
    on = planned_device()
    net = found.build(on, **({"init": 0.0} if found.begins else {}))
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9), precision=precision)
    return on, net.plan_batch(batch, samples=batch)


class Counts(NamedTuple):
    """Numbers of calls of a training step: all, those by a library, and those on the host. One by both counts twice."""

    calls: int
    libraries: int
    host: int


def counts(on: Device, plan: MemoryPlan) -> Counts:
    """Of a planned step."""
    found = [
        [*steps_of(on, InnerCall(one.kernel, specs_of(one.operands), one.settings))]
        for one in plan.placed.planned.instructions
    ]

    def number(kind: Callable[[object], bool]) -> int:
        return sum(any(map(kind, steps)) for steps in found)

    return Counts(
        len(found),
        number(lambda step: isinstance(step, CudaStep) and not isinstance(step, KernelLaunch)),
        number(lambda step: isinstance(step, HostFallback)),
    )


def steps_of(on: Device, call: InnerCall) -> Iterator[object]:
    """Launches of kernels of ours, calls of libraries, and kernels of the host, by which a call is done."""
    for part in parts(on.kernels, call):
        yield from part.steps if isinstance(part, Routine) else (part,)


def main() -> None:
    """Print the table of tests/cuda_host/README.md."""
    from nets import entry

    print("| net, batch | precision | calls | libraries | host |")
    print("|---|---|---|---|---|")
    for name, batch in NETS.items():
        for precision in PRECISIONS:
            found = counts(*planned_step(entry(name), batch, precision))
            print(f"| {name}, {batch} | {precision} | {' | '.join(map(str, found))} |", flush=True)


if __name__ == "__main__":
    main()
