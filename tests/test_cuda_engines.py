"""Which engines of cuDNN the benchmarks' nets get, planned by the library itself for a described H100."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np
import pytest

from benchmark_modules import FOLDER, benchmark_modules
from host_libraries import missing
from kernel_cases import CASES
from library_calls import NETS as COUNTED
from library_calls import PRECISIONS, counts, planned_device, planned_step, steps_of
from singa_lite import device, optimizer
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.device import Device
from singa_lite.device.host_fallback import HostFallback
from singa_lite.kernels.composed import InnerCall
from singa_lite.kernels.cuda_kernels.libraries.assumed import wanted_at_most
from singa_lite.kernels.cuda_kernels.libraries.cudnn_call import GENERIC, PlannedCall
from singa_lite.kernels.cuda_kernels.routine import CudaKernel, LibraryStep
from singa_lite.kernels.kernel_set import specs_of

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"wants {missing()}"),
    pytest.mark.skipif(not FOLDER.is_dir(), reason="this copy has no benchmarks, the checkout has"),
]

#: Net and batch.
NETS = {"lenet": 64, "resnet50": 32, "vgg16": 32, "mobilenet_v2": 32}


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


#: The usual run plans the small ones.
PLANNED = [
    pytest.param((net, tf32), id=f"{net}-{tf32}", marks=pytest.mark.nightly if net in ("resnet50", "vgg16") else ())
    for net in NETS
    for tf32 in (False, True)
]


@pytest.fixture(params=PLANNED)
def planned(request: pytest.FixtureRequest) -> Iterator[tuple[str, MemoryPlan, list[Planned]]]:
    """(net, the plan of a training step, its convolutions)."""
    name, tf32 = request.param
    on = planned_device(allow_tf32=tf32)
    with benchmark_modules() as load:
        net = load("nets").entry(name).build(on, init=0.0)
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9))
    plan = net.plan_batch(NETS[name], samples=NETS[name])
    yield name, plan, list(planned_convolutions(on, plan))


def test_engines_of_a_net(planned):
    name, plan, found = planned
    called = [one for one in found if one.call is not None]
    assert called
    assert GENERIC not in {one.engine.split("_")[0] for one in called}
    assert plan.arena_bytes == plan.floor_bytes
    first = [one.engine == one.call.plans[0].engine for one in called]
    assert sum(first) >= 0.8 * len(first), "most have the engine that the library puts first"
    for instruction, call in called:  # what a call wants is no more than is assumed without the library
        tensors = sum(prod(o.shape) * o.dtype.itemsize for o in instruction.operands if o is not None)
        assert call.scratch_bytes <= wanted_at_most(tensors), instruction
    depthwise = [one for one in found if one.instruction.settings["groups"] > 1]
    assert bool(depthwise) == (name == "mobilenet_v2")
    assert all((one.call is None) == (one.instruction.kernel != "conv2d_gradient") for one in depthwise), "ours"


def test_a_budget_below_takes_slower_engines_and_above_it_better_ones():
    """VGG16 in true float32: the derivative of its second layer has but one good engine, of 784 MiB of workspace."""
    on = planned_device()
    with benchmark_modules() as load:
        net = load("nets").entry("vgg16").build(on, init=0.0)
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9))
    free = net.plan_batch(32, samples=32)
    tight = net.plan_batch(32, samples=32, memory_budget=free.total_bytes - (500 << 20))
    assert tight.arena_bytes <= free.arena_bytes - (500 << 20)
    engines = {one.engine.split("_")[0] for one in planned_convolutions(on, tight) if one.call is not None}
    assert GENERIC in engines


@pytest.mark.nightly
def test_a_budget_is_kept_by_repeats_rather_than_by_generic_engines():
    """On a GPU ten of these made the step of ResNet-50 five times as long."""
    on = planned_device()
    with benchmark_modules() as load:
        net = load("nets").entry("resnet50").build(on, init=0.0)
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9), precision="bfloat16")
    budget = int(0.4 * net.plan_batch(32, samples=32).total_bytes)
    tight = net.plan_batch(32, samples=32, memory_budget=budget)
    engines = {one.engine.split("_")[0] for one in planned_convolutions(on, tight) if one.call is not None}
    assert GENERIC not in engines
    assert any(instruction.repeats is not None for instruction in tight.placed.planned.instructions)


#: The usual run counts in the small ones.
COUNTED_STEPS = [
    pytest.param(net, precision, marks=() if net in ("lenet", "mobilenet_v2") else pytest.mark.nightly)
    for net in COUNTED
    for precision in PRECISIONS
]


@pytest.mark.parametrize(("name", "precision"), COUNTED_STEPS)
def test_no_call_of_a_net_is_done_on_the_host(name, precision):
    with benchmark_modules() as load:
        found = counts(*planned_step(load("nets").entry(name), COUNTED[name], precision))
    assert found.host == 0
    assert found.calls > found.libraries > 0


def test_without_the_libraries_convolutions_and_products_are_done_on_the_host():
    with benchmark_modules() as load:
        net = load("nets").entry("lenet").build(device.abstract("cuda", libraries=False))
    net.compile(optimizer.SGD(lr=0.1))
    found = counts(net.device, net.plan_batch(5))
    assert found.libraries == 0
    assert found.host == 3 * 5 - 1, "five layers forward, their gradients, and the derivatives of all but the first"


UPDATES_ON_THE_HOST = ("muon", "adafactor", "adafactor_step")


def test_of_the_contract_only_these_calls_are_done_on_the_host():
    """Of activations the libraries have ReLU alone, and no net is recorded with another one."""
    on, found = planned_device(), set()
    for key, case in CASES.items():
        tensors, settings = case.build(np.random.default_rng(7), np.dtype("float32"), False)
        steps = steps_of(on, InnerCall(key.split(":")[0], tuple(tensors), settings))
        if any(isinstance(step, HostFallback) for step in steps) and key.split(":")[0] not in UPDATES_ON_THE_HOST:
            found.add(key)
    assert found == {"linear:no_bias tanh", "conv2d:grouped sigmoid"}
