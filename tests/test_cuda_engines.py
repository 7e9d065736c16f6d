"""Which engines of cuDNN the benchmarks' nets get, planned by the library itself for a described H100."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import pytest
from benchmark_modules import FOLDER, benchmark_modules

from host_convolutions import missing
from planned_device import Planned, planned_convolutions, planned_device
from singa_lite import optimizer
from singa_lite.kernels.cuda_kernels.assumed import wanted_at_most
from singa_lite.kernels.cuda_kernels.cudnn_call import GENERIC, Wish
from singa_lite.memory_plan import MemoryPlan

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"wants {missing()}"),
    pytest.mark.skipif(not FOLDER.is_dir(), reason="this copy has no benchmarks, the checkout has"),
]

#: Net and batch.
NETS = {"lenet": 64, "resnet50": 32, "vgg16": 32, "mobilenet_v2": 32}


#: Calls of these that are faster without tensor cores, as the library has it: images of one channel.
ELSEWHERE = {"lenet": 2}


@pytest.fixture(scope="module", params=[(net, tf32) for net in NETS for tf32 in (False, True)], ids=str)
def planned(request: pytest.FixtureRequest) -> Iterator[tuple[str, bool, MemoryPlan, list[Planned]]]:
    """(net, whether factors are rounded, the plan of a training step, its convolutions)."""
    name, tf32 = request.param
    on = planned_device(allow_tf32=tf32)
    with benchmark_modules() as load:
        net = load("nets").entry(name).build(on, init=0.0)
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9))
    plan = net.plan_batch(NETS[name], samples=NETS[name])
    yield name, tf32, plan, list(planned_convolutions(on, plan))


def is_on_cores(one: Planned, engine: str) -> bool:
    """Whether the library says that the engine, which the call may be done by, uses tensor cores."""
    assert one.call is not None
    made: Any = one.call
    wanted = next(plan.workspace_bytes for plan in made.plans if plan.engine == engine)
    found = made._planner.plan(made._draw, made._dtype, Wish(wanted, tensor_cores=True))
    return found is not None and found.engine == engine


def test_none_is_generic_and_the_arena_is_its_floor(planned):
    _, _, plan, found = planned
    engines = {one.engine.split("_")[0] for one in found if one.call is not None}
    assert engines
    assert GENERIC not in engines
    assert plan.arena_bytes == plan.floor_bytes


def test_tensor_cores_are_used_where_they_may_be(planned):
    """By all calls for which the library puts an engine on them first, which is nearly all."""
    name, tf32, _, found = planned
    dense = [one for one in found if one.call is not None and one.instruction.settings["groups"] == 1]
    used = [is_on_cores(one, one.engine) for one in dense]
    assert used == [is_on_cores(one, one.call.plans[0].engine) for one in dense]
    assert sum(used) == (len(used) - ELSEWHERE.get(name, 0) if tf32 else 0)


def test_what_a_call_wants_is_no_more_than_is_assumed_without_the_library(planned):
    _, _, _, found = planned
    for instruction, call in found:
        if call is not None:
            tensors = sum(prod(o.shape) * o.dtype.itemsize for o in instruction.operands if o is not None)
            assert call.scratch_bytes <= wanted_at_most(tensors), instruction


def test_most_have_the_engine_that_the_library_puts_first(planned):
    _, _, _, found = planned
    first = [one.engine == one.call.plans[0].engine for one in found if one.call is not None]
    assert sum(first) >= 0.8 * len(first)


def test_depthwise_convolutions_are_ours_but_for_gradients(planned):
    name, _, _, found = planned
    depthwise = [one for one in found if one.instruction.settings["groups"] > 1]
    assert bool(depthwise) == (name == "mobilenet_v2")
    assert all((one.call is None) == (one.instruction.kernel != "conv2d_gradient") for one in depthwise)


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
