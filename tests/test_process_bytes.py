"""What a process takes for the calls of a large net is part of what a budget bounds: by rule, and as Linux counts."""

from __future__ import annotations

import sys
from copy import copy

import numpy as np
import pytest

from in_process import output
from kernel_sets import kernel_sets
from nets import bits, state_of
from singa_lite import FeedForwardNet, device, layers, loss, optimizer
from singa_lite.compiler import byte_limit
from singa_lite.compiler.byte_limit import A_CALL, A_FORM, BESIDE, FURTHER, further_bytes
from singa_lite.compiler.ir.operation import Instruction, Operand, Phase
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.device import Device

COUNT, SMALL = 403, 43
CODE = 80 << 10  # as of a set that makes code for each different call


def on() -> Device:
    """NumPy's kernels, as if they made code."""
    made = device.new_cpu(kernels="numpy")
    made.kernels = copy(made.kernels)
    made.kernels.code_bytes = CODE
    return made


def deep(depth: int = 5, **compiling: object) -> FeedForwardNet:
    """So many different dense layers with activations."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on(), seed=4)
    net.add(layers.Dense("first", 300, input_sample_shape=(7,)))
    for number in range(depth):
        net.add(layers.Activation(f"act{number}", "tanh"))
        net.add(layers.Dense(f"dense{number}", 299))
    net.compile(optimizer.SGD(lr=0.05, momentum=0.9), **compiling)
    return net


def trained(net: FeedForwardNet) -> list[object]:
    rng = np.random.default_rng(3)
    seen = []
    for _ in range(2):
        x, y = rng.standard_normal((COUNT, 7), dtype=np.float32), rng.integers(0, 5, COUNT)
        seen.append(bits(net.train_one_batch(x, y)[0]))
    return [*seen, state_of(net)]


@pytest.fixture
def counted(monkeypatch):
    """As if nothing were promised beside a budget, so that each call counts."""
    monkeypatch.setattr(byte_limit, "BESIDE", 0)


def test_nets_that_are_within_the_promise_count_nothing():
    plan = deep().plan_batch(COUNT)
    assert plan.process_bytes == 0
    assert plan.operations * (A_CALL + CODE) < BESIDE
    assert "process  " not in plan.summary()


def test_a_total_counts_each_call_and_each_different_one(counted):
    plan = deep().plan_batch(COUNT)
    beyond = plan.process_bytes - plan.operations * A_CALL
    assert 0 < beyond <= plan.operations * CODE
    assert beyond % CODE == 0
    held = max(plan.arena_bytes, *plan.beside.values()) + plan.held_bytes + plan.overhead_bytes
    assert plan.total_bytes == held + plan.process_bytes
    assert f"for {plan.operations:,} operations" in plan.summary()


def test_a_budget_of_the_free_total_gives_the_free_plan_and_a_lower_one_is_kept(counted):
    free = deep().plan_batch(COUNT)
    wanted = trained(deep())
    for budget in (free.total_bytes, free.total_bytes - 2**20):
        net = deep(memory_budget=budget)
        plan = net.plan_batch(COUNT)
        assert plan.total_bytes <= budget
        assert (plan.recomputed > 0) == (budget < free.total_bytes)
        assert trained(net) == wanted
        assert net.device.pool.high_water <= budget - plan.process_bytes


def test_kernels_that_make_no_code_take_it_for_calls_alone(counted):
    net = deep()
    net.device.kernels.code_bytes = 0
    plan = net.plan_batch(COUNT)
    assert plan.process_bytes == plan.operations * A_CALL


def test_errors_the_curve_and_the_largest_batch_count_it(counted):
    net = deep(2)
    free = net.plan_batch(SMALL)
    points = net.budget_curve(SMALL)
    assert points[0] == (free.total_bytes, 0.0)
    with pytest.raises(PlanError, match="process") as caught:
        net.plan_batch(SMALL, memory_budget=points[-1][0] // 2)
    least = caught.value.total_bytes
    assert least <= points[-1][0]
    for nbytes, slowdown in (points[0], points[-1], (least, float("inf"))):
        plan = net.plan_batch(SMALL, memory_budget=nbytes)
        assert plan.total_bytes <= nbytes
        assert plan.estimated_slowdown <= slowdown
        assert plan.process_bytes >= plan.operations * A_CALL
    with pytest.raises(PlanError) as other:
        net.plan_batch(SMALL, memory_budget=1000)
    assert other.value.total_bytes == least
    largest = net.largest_batch(free.total_bytes)
    assert largest >= SMALL
    assert net.plan_batch(largest).total_bytes <= free.total_bytes < net.plan_batch(largest + 1).total_bytes
    assert net.largest_batch(free.total_bytes - free.process_bytes) < SMALL


# --- forms of batch beside the step ---------------------------------------------------------------------------


def calls(forward: int, backward: int, different: int) -> list[Instruction]:
    """So many calls of either phase, with operands of so many shapes in turns."""
    phases = [Phase.FORWARD] * forward + [Phase.GRADIENT] * backward
    operands = [Operand(0, (3 + number, 5), np.dtype("f"), (20, 4), 0) for number in range(different)]
    return [Instruction(n, "tanh", (operands[n % different],) * 2, {}, phase, "", 0) for n, phase in enumerate(phases)]


@pytest.mark.parametrize(
    ("forward", "backward", "different", "mib"),
    [
        (100, 500, 100, 0),  # 7.0 + 7.8 = 14.8 MiB, twice 16.0 with an evaluation: below 73
        (1024, 3072, 64, 2 * (48 + 5 + 12) - 73),  # 48 of calls, 5 of code, and 12 of an evaluation, twice
        (4096, 0, 128, 58 - 25),  # an evaluation alone: 48 and 10
        (4096, 0, 0, 48 - 25),  # no code
    ],
)
def test_a_training_step_counts_the_shorter_batch_and_the_evaluations_of_fit(forward, backward, different, mib):
    made = calls(forward, backward, max(1, different))
    assert byte_limit.launch_bytes(made, lambda kernel: CODE if different else 0) == mib << 20


def test_one_form_more_counts_what_is_beyond_its_share():
    made = calls(1024, 3072, 64)
    assert further_bytes(made, {"tanh": CODE}.__getitem__) == (24 + 5 << 20) - A_FORM
    assert further_bytes(calls(10, 30, 8), {"tanh": CODE}.__getitem__) == 0
    assert further_bytes(calls(4096, 0, 64), {"tanh": CODE}.__getitem__) == 0, "evaluations share the code of the step"


@pytest.mark.parametrize("more", [0, 20 << 20])
def test_a_third_form_of_batch_takes_its_own_from_the_budget(monkeypatch, more):
    """As if nothing were promised; with room for it, or none."""
    for name in ("BESIDE", "A_FORM"):
        monkeypatch.setattr(byte_limit, name, 0)
    free = deep()
    net = deep(memory_budget=free.plan_batch(COUNT).total_bytes + more)
    rng = np.random.default_rng(3)
    for number, count in enumerate((COUNT, COUNT - 100, COUNT - 1, COUNT)):
        x, y = rng.standard_normal((count, 7), dtype=np.float32), rng.integers(0, 5, count)
        assert bits(net.train_one_batch(x, y)[0]) == bits(free.train_one_batch(x, y)[0])
        recorded = [step.graph.further_bytes for step in net.trainer.steps._recorded._steps.values()]
        assert all(recorded)
        assert len(recorded) == min(3, number + 1) or not more
        assert net.device.pool.high_water + sum(recorded) <= net.trainer.steps.how.memory_budget
    assert state_of(net) == state_of(free)


# --- of a process ---------------------------------------------------------------------------------------------

#: Dense layers with activations, of which no two are alike: each call has code of its own.
DEPTH = 160

TRAIN = f"""
import numpy as np
from singa_lite import FeedForwardNet, layers, loss, metric, optimizer

def resident(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))

def deep(depth, budget=None):
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), seed=2)
    for number in range(depth):
        net.add(layers.Dense(f"dense{{number}}", 40 + number, input_sample_shape=None if number else (30,)))
        net.add(layers.Activation(f"act{{number}}", "tanh"))
    net.add(layers.Dense("scores", 7))
    net.compile(optimizer.SGD(lr=0.01, momentum=0.9), memory_budget=budget)
    return net

rng = np.random.default_rng(1)
x, y = rng.standard_normal((19, 30), np.float32), rng.integers(0, 7, 19)
deep(1).train_one_batch(x, y)  # what loads at first use belongs to the import
level = resident("VmRSS")
net = deep({DEPTH})
plan = net.plan_batch(8)
budget = plan.total_bytes
net.compile(optimizer.SGD(lr=0.01, momentum=0.9), memory_budget=budget)
for step in range(2):
    net.train_one_batch(x[:8], y[:8])
step = resident("VmHWM") - level
net.fit(x, y, 8, validation_data=(x[:11], y[:11]), verbose=False)
print(plan.process_bytes, budget, step, resident("VmHWM") - level)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="this system does not say what a process took at most")
@pytest.mark.parametrize("kernels", [one.name for one in kernel_sets()])
def test_a_step_and_fit_of_many_calls_take_no_more_than_is_promised(kernels):
    """fit has three forms of record beside the step: a shorter batch, and an evaluation of both sizes."""
    counted, budget, step, fitted = map(int, output(TRAIN, SINGA_LITE_KERNELS=kernels, OMP_NUM_THREADS=1).split())
    assert (counted > 0) == (kernels == "onednn"), "so many calls count where they have code"
    assert step <= budget + BESIDE
    assert fitted <= budget + BESIDE + FURTHER * A_FORM
