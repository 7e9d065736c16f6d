"""A user's own operation is recorded, planned, proved and replayed as any kernel call."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from cuda_devices import new_device
from own_functions import Counted, Noisy, Shrink, SumAndProduct, losses, net_of
from singa_lite import autograd, device, tensor
from singa_lite.compiler.ir.operation import repeat_of
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.proof.check_calls import check_calls

X = np.array([[-1.0, 0.25, 2.0], [0.5, -0.75, -0.125]])


def values(*results):
    return [tensor.to_numpy(result).tolist() for result in results]


def parameter(array, on=None):
    made = tensor.from_numpy(array, on)
    made.stores_grad = True
    return made


def test_values_and_derivatives_worked_out_by_hand():
    x = parameter(X)
    y = Shrink(0.5)(x)
    assert values(y) == [[[-0.5, 0.0, 1.5], [0.0, -0.25, -0.0]]]
    gradients = [values(g) for _, g in autograd.backward(autograd.reduce_sum(y * tensor.from_numpy(2 * X)))]
    assert gradients == [[[[-2.0, 0.0, 4.0], [0.0, -1.5, -0.0]]]]


def test_several_results_of_which_nobody_uses_one_and_only_what_is_needed_is_done():
    on, seen = device.new_cpu(), []
    a, b = parameter(X, on), parameter(X + 2, on)
    total, product = SumAndProduct()(a, b)
    assert values(total) == [(2 * X + 2).tolist()]
    found = {id(p): values(g)[0] for p, g in autograd.backward(autograd.reduce_sum(product))}
    assert found == {id(a): (X + 2).tolist(), id(b): X.tolist()}
    with on.watch(lambda operation: seen.append(operation.kernel)):
        for _ in autograd.backward(autograd.reduce_sum(SumAndProduct()(a, tensor.from_numpy(X, on))[1])):
            pass
    assert [name.partition(".")[2].partition("#")[0] for name in seen if "." in name] == ["forward", "derivative_a"]


def test_a_bare_recording_replays_without_memory_of_its_own():
    on = device.new_cpu()
    x = tensor.from_numpy(X, on)
    with on.recording() as graph:
        y = Shrink(0.5)(x)
    graph.run()
    used = on.pool.used
    for factor in (1, 3):
        x.copy_from_numpy(factor * X)
        graph.run()
        np.testing.assert_array_equal(tensor.to_numpy(y), np.copysign(np.maximum(abs(factor * X) - 0.5, 0), X))
    assert on.pool.used == used


def test_scratch_is_planned_for_as_long_as_it_is_asked_for():
    net = net_of(Shrink(0.1))
    losses(net, 1)
    rows = [row for row in net.memory_plan.rows if "Shrink.forward" in row.name and row.layer == "own0"]
    scratch = next(row for row in rows if row.kind == "scratch")
    kept = next(row for row in rows if row.nbytes == 11 * 24)
    assert (scratch.nbytes, scratch.upper - scratch.lower) == (-(-11 * 24 * 4 // 64) * 64, 1)
    assert kept.lower == scratch.lower and kept.upper > scratch.upper + 10


def test_it_writes_in_place_where_it_may():
    class Apart(Shrink):
        overwrites = ()

    def floor(function):
        on = device.new_cpu()
        x, w = tensor.from_numpy(np.ones((64, 64), "f"), on), tensor.from_numpy(np.eye(64, dtype="f"), on)
        with on.recording() as graph:
            y = autograd.matmul(function(autograd.matmul(x, w)), w)
        graph.run()
        assert tensor.to_numpy(y).sum() == 64 * 64 * 0.5
        return graph.memory_plan.floor_bytes

    assert floor(Shrink(0.5)) == floor(Apart(0.5)) - 64 * 64 * 4


def test_memory_of_the_step_is_shared_by_its_calls_and_begins_at_zero():
    on, function, x = device.new_cpu(), Counted(), np.ones((11, 7), "f")
    assert losses(net_of(Counted(), lr=1e-3)) == losses(net_of(Counted(), graph=False, lr=1e-3))
    given = tensor.from_numpy(x, on)
    with on.recording() as recorded:
        y = function(function(function(given)))
    for _ in range(2):
        recorded.run()
        assert values(y) == [(x + 0 + 1 + 2).tolist()]
    assert values(function(function(given))) == [x.tolist()]  # without a step each call has its own


@pytest.mark.parametrize(("kind", "is_repeated"), [(Shrink, True), (Noisy, False)])
def test_a_budget_makes_it_again_unless_it_says_no(kind, is_repeated):
    free = net_of(kind(0.1), depth=8)
    wanted = losses(free)
    least = free.budget_curve(11)[-1][0]
    tight = net_of(kind(0.1), depth=8, memory_budget=least)
    assert losses(tight) == wanted
    kernels = {row.kernel.partition("#")[0] for row in tight.memory_plan.repeats}
    assert (f"{kind.__name__}.forward" in kernels) == is_repeated


def test_the_proof_refuses_a_repeat_of_what_may_be_done_once():
    on = device.new_cpu()
    with on.recording() as graph:
        y = Noisy(0.5)(tensor.from_numpy(X, on))
    assert y.shape == (2, 3)
    program = graph._recorded()
    (call,) = program.instructions
    planted = replace(repeat_of(call), number=1)
    with pytest.raises(PlanError, match="once"):
        check_calls(program, replace(program, instructions=(call, planted)), {})


def test_a_changed_setting_counts_from_the_next_batch_on():
    function, later = Shrink(0.1), Shrink(0.1)
    one, other = net_of(function), net_of(later, graph=False)
    assert losses(one, 2) == losses(other, 2)
    function.threshold = later.threshold = 0.4
    assert losses(one, 2) == losses(other, 2)


def test_copies_and_pickles():
    made = pickle.loads(pickle.dumps(Shrink(0.25)))
    assert made.threshold == 0.25 and values(made(tensor.from_numpy(X))) == values(Shrink(0.25)(tensor.from_numpy(X)))
    net = net_of(Shrink(0.1))
    losses(net, 1)
    assert losses(copy.deepcopy(net)) == losses(net)


def test_two_classes_of_one_name_are_two_operations():
    def made(factor):
        class Scaled(autograd.Function):
            def makes(self, x):
                return {"y": autograd.Output(x.shape)}

            def forward(self, x, y):
                np.multiply(x, factor, out=y)

        return Scaled()

    x = tensor.from_numpy(X)
    assert values(made(2)(x), made(3)(x)) == [(2 * X).tolist(), (3 * X).tolist()]


@pytest.mark.filterwarnings("ignore:this step cannot be one CUDA graph:UserWarning")
def test_on_a_gpu_it_is_done_on_the_host():
    np.testing.assert_allclose(losses(net_of(Shrink(0.1), new_device("stand-in"))), losses(net_of(Shrink(0.1))), 1e-4)


def test_equal_records_are_equal_and_others_are_not():
    def recorded(threshold):
        on = device.new_cpu()
        with on.recording() as graph:
            y = Shrink(threshold)(tensor.from_numpy(X, on))
        graph.run()
        assert y.shape == (2, 3)
        return graph

    assert recorded(0.5).equals(recorded(0.5)) and not recorded(0.5).equals(recorded(0.25))
