"""Recording: nothing runs meanwhile, what is held keeps its values, and an unfinished step is refused."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from nets import bits
from singa_lite import Tensor, autograd, device, loss, optimizer, schedule, tensor
from singa_lite.device import Device
from singa_lite.errors import GraphError
from singa_lite.graph import Graph, Phase
from singa_lite.passes.dependencies import predecessors

RNG = np.random.default_rng(3)
X, W, T = (RNG.standard_normal(shape).astype("f") for shape in ((3, 5), (5, 4), (3, 4)))


@pytest.fixture
def cpu() -> Device:
    return device.new_cpu()


def parameter(array: np.ndarray, on: Device, name: str = "") -> Tensor:
    made = tensor.from_numpy(array, on)
    made.stores_grad, made.name = True, name
    return made


class Problem:
    """A product with a weight, and its squared error from a target."""

    def __init__(self, on: Device) -> None:
        self.x, self.t = tensor.from_numpy(X, on), tensor.from_numpy(T, on)
        self.w = parameter(W, on, "w")
        self.sgd = optimizer.SGD(lr=0.1, momentum=0.5)

    def loss(self) -> Tensor:
        return autograd.squared_error(autograd.tanh(autograd.matmul(self.x, self.w)), self.t)

    def step(self) -> Tensor:
        value = self.loss()
        for p, g in autograd.backward(value):
            self.sgd.update(None, p, g)
        return value


def roles(graph: Graph) -> dict[str, int]:
    found: dict[str, int] = {}
    for number in range(len(graph.blocks)):
        role = str(graph.role(number))
        found[role] = found.get(role, 0) + 1
    return found


# --- nothing runs -------------------------------------------------------------------------------------------


def test_nothing_runs_and_nothing_is_allocated(cpu):
    x, big = tensor.from_numpy(X, cpu), tensor.zeros((5, 1000), device=cpu)
    before = bits(x), cpu.pool.used, cpu.pool.high_water
    with cpu.recording() as graph:
        y = autograd.matmul(x, big)
        cpu.run("fill", x, value=7.0)
        total = autograd.reduce_sum(y * 2.0, axes=(0, 1))
        assert cpu.pool.used == before[1]
    assert (bits(x), cpu.pool.used, cpu.pool.high_water) == before
    graph.run()
    assert tensor.to_numpy(x).tolist() == np.full((3, 5), 7.0).tolist()
    assert tensor.to_numpy(total) == 0


def test_host_values_given_meanwhile_are_all_that_is_allocated(cpu):
    x = tensor.from_numpy(X, cpu)
    used = cpu.pool.used
    with cpu.recording() as graph:
        shift = tensor.from_numpy(np.ones((3, 5), "f"), cpu)
        y = x + shift
    assert cpu.pool.used == used + 64
    graph.run()
    assert np.array_equal(tensor.to_numpy(y), X + 1)


def test_a_step_recorded_for_the_first_time_moves_no_parameter_until_it_runs(cpu):
    problem = Problem(cpu)
    with cpu.recording() as graph:
        problem.step()
    assert bits(problem.w) == bits(W)
    graph.run()
    assert bits(problem.w) != bits(W)


def test_the_device_is_free_again_after_an_error(cpu):
    with pytest.raises(ZeroDivisionError), cpu.recording():
        raise ZeroDivisionError
    assert cpu.graph is None
    assert tensor.to_numpy(tensor.ones((2, 3), device=cpu)).sum() == 6


# --- reading and writing meanwhile --------------------------------------------------------------------------

READS: dict[str, Callable[[Tensor], Any]] = {
    "to_numpy": tensor.to_numpy,
    "float": lambda t: float(autograd.reduce_sum(t, axes=(0, 1))),
    "numpy.asarray": np.asarray,
    "DLPack": np.from_dlpack,
    "array": lambda t: t.array,
    "another device": lambda t: t.to_device(device.new_cpu()),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_reading_a_recorded_value_meanwhile(cpu, read):
    x = tensor.from_numpy(X, cpu)
    with pytest.raises(GraphError, match="reading"), cpu.recording():
        read(x * 2.0)


@pytest.mark.parametrize("name", [name for name in READS if name != "array"])
def test_reading_any_value_meanwhile(cpu, name):
    """Host code runs once: what it makes of the first batch's values would be frozen for all batches."""
    x = tensor.from_numpy(X, cpu)
    with pytest.raises(GraphError, match="reading"), cpu.recording():
        READS[name](x)


def test_reading_before_the_first_run(cpu):
    x = tensor.from_numpy(X, cpu)
    with cpu.recording() as graph:
        y = x * 2.0
    with pytest.raises(GraphError, match="run the graph first"):
        tensor.to_numpy(y)
    graph.run()
    assert np.array_equal(tensor.to_numpy(y), 2 * X)


def test_overwriting_a_used_tensor_from_the_host_meanwhile(cpu):
    x = tensor.from_numpy(X, cpu)
    with pytest.raises(GraphError, match="no operation"), cpu.recording():
        y = x * 2.0
        x.copy_from_numpy(np.zeros_like(X))
    assert bits(x) == bits(X)
    del y


def test_overwriting_from_the_host_what_nobody_uses_yet(cpu):
    x = tensor.from_numpy(X, cpu)
    with cpu.recording() as graph:
        x.copy_from_numpy(X + 1)
        y = x * 2.0
    graph.run()
    assert np.array_equal(tensor.to_numpy(y), 2 * (X + 1))


def test_an_input_may_change_between_runs(cpu):
    x = tensor.from_numpy(X, cpu)
    with cpu.recording() as graph:
        y = autograd.tanh(x)
    for factor in (1, 2, 3):
        x.copy_from_numpy(factor * X)
        graph.run()
        assert bits(y) == bits(autograd.tanh(tensor.from_numpy(factor * X, cpu)))


def test_a_tensor_that_nobody_wrote(cpu):
    with cpu.recording() as graph:
        nothing = cpu.empty((3, 5))
        y = nothing * 2.0
        del nothing
    with pytest.raises(GraphError, match=r"scale.*never written"):
        graph.run()
    del y


def test_a_place_for_an_input_is_filled_after_preparing(cpu):
    with cpu.recording() as graph:
        x = cpu.empty((3, 5))
        y = x * 2.0
    graph.prepare()
    x.copy_from_numpy(X)
    graph.run()
    assert np.array_equal(tensor.to_numpy(y), 2 * X)


# --- whole steps only ---------------------------------------------------------------------------------------


def test_recording_within_a_recording(cpu):
    with pytest.raises(GraphError, match="no other recording"), cpu.recording(), cpu.recording():
        pass
    assert cpu.graph is None


def test_two_devices_record_at_the_same_time(cpu):
    other = device.new_cpu()
    x, far = tensor.from_numpy(X, cpu), tensor.from_numpy(X, other)
    with cpu.recording() as graph, other.recording() as far_graph:
        y, far_y = x * 2.0, far * 3.0
    graph.run()
    far_graph.run()
    assert (len(graph.operations), len(far_graph.operations)) == (1, 1)
    assert np.array_equal(tensor.to_numpy(y) * 1.5, tensor.to_numpy(far_y))


def test_running_while_recording(cpu):
    x = tensor.from_numpy(X, cpu)
    with cpu.recording() as graph:
        y = x * 2.0
        with pytest.raises(GraphError, match="finished"):
            graph.run()
    graph.run()
    with cpu.recording():
        for order in ("recorded", "dependencies"):
            with pytest.raises(GraphError, match="no recording"):
                graph.run(order)
    del y


@pytest.mark.parametrize("order", ["recorded", "dependencies"])
def test_a_recording_that_failed_is_refused(cpu, order):
    problem = Problem(cpu)
    with pytest.raises(ZeroDivisionError), cpu.recording() as graph:
        problem.step()
        raise ZeroDivisionError
    with pytest.raises(GraphError, match="exception"):
        graph.run(order)
    with pytest.raises(GraphError, match="exception"):
        graph.plan(order)
    assert bits(problem.w) == bits(W)


def two_weights(on: Device) -> tuple[Tensor, Tensor, Tensor]:
    x = tensor.from_numpy(X, on)
    w, v = parameter(W, on), parameter(W.T.copy(), on)
    return w, v, autograd.reduce_mean(autograd.matmul(autograd.matmul(x, w), v), axes=(0, 1))


LEFT: dict[str, Callable[[Iterator[Any]], Any]] = {
    "never begun": lambda walk: None,
    "suspended": next,
    "closed early": lambda walk: (next(walk), walk.close()),
}


@pytest.mark.parametrize("leave", LEFT.values(), ids=LEFT.keys())
def test_a_backward_left_before_its_end_is_refused(cpu, leave):
    with cpu.recording() as graph:
        _, _, value = two_weights(cpu)
        walk = autograd.backward(value)
        leave(walk)
    with pytest.raises(GraphError, match="before its end"):
        graph.run()
    del walk
    gc.collect()
    with pytest.raises(GraphError, match="before its end"):
        graph.run()


def test_one_finished_backward_does_not_excuse_another(cpu):
    with cpu.recording() as graph:
        walks = [autograd.backward(two_weights(cpu)[2]) for _ in range(2)]
        list(walks[0])
        next(walks[1])
    with pytest.raises(GraphError, match="before its end"):
        graph.run()


def test_a_backward_that_was_drained_is_whole(cpu):
    with cpu.recording() as graph:
        w, v, value = two_weights(cpu)
        list(autograd.backward(value))
    graph.run()
    del w, v


def test_a_backward_whose_consumer_failed_is_refused_though_the_error_was_caught(cpu):
    problem = Problem(cpu)
    with cpu.recording() as graph:
        w, v, value = two_weights(cpu)
        try:
            for p, g in autograd.backward(value):
                problem.sgd.update(None, p, autograd.concat([g, g], 0))
        except ValueError:
            pass
    with pytest.raises(GraphError, match="before its end"):
        graph.run()
    del w, v


def test_an_unknown_order(cpu):
    with cpu.recording() as graph:
        pass
    with pytest.raises(ValueError, match="sideways"):
        graph.run("sideways")


def test_an_empty_record_runs(cpu):
    with cpu.recording() as graph:
        pass
    for order in ("recorded", "dependencies"):
        graph.run(order)
    plan = graph.memory_plan
    assert (plan.arena_bytes, plan.floor_bytes, plan.operations, plan.at_peak()) == (0, 0, 0, [])
    assert "0 operations" in plan.summary()


# --- roles --------------------------------------------------------------------------------------------------


def test_blocks_by_role(cpu):
    problem = Problem(cpu)
    with cpu.recording() as graph:
        value = problem.step()
    found = {graph.blocks[n].name: str(graph.role(n)) for n in range(len(graph.blocks)) if graph.blocks[n].name}
    by_block = {id(b.held): n for n, b in enumerate(graph.blocks) if b.held is not None}
    assert graph.role(by_block[id(problem.x.block)]) == "input"
    assert graph.role(by_block[id(problem.t.block)]) == "input"
    assert graph.role(by_block[id(problem.w.block)]) == found["w"] == "parameter"
    for slot in problem.sgd.state[problem.w].values():
        assert graph.role(by_block[id(slot.block)]) == "state"
    count = roles(graph)
    assert (count["parameter"], count["state"], count["output"]) == (1, 2, 1)
    assert count["input"] == 3  # x, the target and the learning rate
    assert count["intermediate"] >= 5
    del value


def test_a_value_that_is_let_go_before_the_first_run_is_an_intermediate(cpu):
    x = tensor.from_numpy(X, cpu)
    with cpu.recording() as graph:
        y = x * 2.0
        z = y * 3.0
    assert roles(graph) == {"input": 1, "output": 2}
    del y
    assert roles(graph) == {"input": 1, "output": 1, "intermediate": 1}
    graph.run()
    assert np.array_equal(tensor.to_numpy(z), 6 * X)


def test_a_value_that_is_let_go_after_the_first_run_costs_nothing_more_and_harms_nothing(cpu):
    x = tensor.from_numpy(X, cpu)
    with cpu.recording() as graph:
        y = x * 2.0
        z = autograd.tanh(y)
    graph.run()
    wanted = bits(z)
    del y
    for order in ("recorded", "dependencies"):
        graph.run(order)
        assert bits(z) == wanted


def test_a_view_keeps_its_whole(cpu):
    x = tensor.from_numpy(X, cpu)
    with cpu.recording() as graph:
        y = x * 2.0
        row = autograd.split(y, 0, (1,))[1]
        others = [autograd.tanh(y * float(i)) for i in range(4)]
        total = others[0] + others[1] + others[2] + others[3]
        del y, others
    graph.run()
    assert np.array_equal(tensor.to_numpy(row), 2 * X[1:])
    assert roles(graph)["output"] == 2
    del total


# --- what is held keeps its value, the rest goes ------------------------------------------------------------


def chain(x: Tensor, length: int) -> list[Tensor]:
    values = [x * 1.5]
    for index in range(length - 1):
        values.append(autograd.tanh(values[-1]) if index % 2 else values[-1] + x)
    return values


@pytest.mark.parametrize("held", [(), (0,), (3,), (2, 5), (0, 1, 2, 3, 4, 5, 6)])
def test_each_value_that_is_held_is_right_after_each_run(cpu, held):
    """Wherever it lies in a chain that would all be one block else (SINGA #659, tinygrad #16571)."""
    x = tensor.from_numpy(X, cpu)
    with cpu.recording() as graph:
        values = chain(x, 8)
        kept = {index: values[index] for index in (*held, 7)}
        del values
    for factor in (1.0, -0.5):
        x.copy_from_numpy(np.float32(factor) * X)
        graph.run()
        wanted = [bits(value) for value in chain(tensor.from_numpy(np.float32(factor) * X, cpu), 8)]
        assert {index: bits(value) for index, value in kept.items()} == {index: wanted[index] for index in kept}
    assert graph.memory_plan.by_role["output"] == 60 * len(kept)


def test_a_gradient_kept_through_another_handle_is_right(cpu):
    """The loop's own handle dies; the copy-less one that the user made pins the bytes."""
    problem, twin = Problem(cpu), Problem(cpu)
    eager = [tensor.to_numpy(g) for _, g in autograd.backward(twin.loss())]
    with cpu.recording() as graph:
        kept = []
        for p, g in autograd.backward(problem.loss()):
            kept.append(g.detach())
            problem.sgd.update(None, p, g)
    graph.run()
    assert bits(kept[0]) == bits(eager[0])


def test_a_gradient_s_own_handle_is_given_back(cpu):
    problem = Problem(cpu)
    with cpu.recording() as graph:
        kept = [g for _, g in autograd.backward(problem.loss())]
    graph.run()
    with pytest.raises(GraphError, match="given back"):
        tensor.to_numpy(kept[0])


def test_values_that_only_the_tape_holds_are_kept(cpu):
    """A loss whose backward comes after the recording cannot work, but must not be wrong either."""
    problem = Problem(cpu)
    with cpu.recording() as graph:
        value = problem.loss()
    graph.run()
    twin = Problem(cpu)
    assert bits(value) == bits(twin.loss())
    found = [tensor.to_numpy(g) for _, g in autograd.backward(value)]
    assert bits(found[0]) == bits(next(autograd.backward(twin.loss()))[1])


def test_another_graph_reads_an_output(cpu):
    x = tensor.from_numpy(X, cpu)
    with cpu.recording() as first:
        y = x * 2.0
    with cpu.recording() as second:
        z = y * 3.0
    with pytest.raises(GraphError, match="run the graph first"):
        second.run()
    first.run()
    second.run()
    assert np.array_equal(tensor.to_numpy(z), 6 * X)


# --- dead operations ----------------------------------------------------------------------------------------


def test_operations_whose_results_nobody_uses_vanish(cpu):
    x = tensor.from_numpy(X, cpu)
    with cpu.recording() as graph:
        y = x * 2.0
        for _ in range(3):
            autograd.tanh(autograd.matmul(x, tensor.from_numpy(W, cpu)))
    assert len(graph.operations) == 7
    assert graph.memory_plan.operations == 1
    graph.run()
    assert np.array_equal(tensor.to_numpy(y), 2 * X)


def test_updates_of_parameters_and_states_never_vanish(cpu):
    problem, twin = Problem(cpu), Problem(cpu)
    with cpu.recording() as graph:
        problem.step()
    for _ in range(3):
        graph.run()
        twin.step()
    assert bits(problem.w) == bits(twin.w)
    for slot, value in twin.sgd.state[twin.w].items():
        assert bits(problem.sgd.state[problem.w][slot]) == bits(value)


def test_random_states_move_on_though_nobody_uses_the_numbers(cpu):
    x, state = tensor.from_numpy(X, cpu), tensor.from_numpy(np.array([1, 2, 0], "u8"), cpu)
    with cpu.recording() as graph:
        autograd.dropout(x, state, 0.5)
    for _ in range(3):
        graph.run()
    assert tensor.to_numpy(state).tolist() == [1, 2, 3]
    assert graph.memory_plan.operations == 1


def test_dropout_draws_anew_at_each_run(cpu):
    x, state = tensor.from_numpy(X, cpu), tensor.from_numpy(np.array([1, 2, 0], "u8"), cpu)
    twin = tensor.from_numpy(np.array([1, 2, 0], "u8"), cpu)
    with cpu.recording() as graph:
        y = autograd.dropout(x, state, 0.5)
    seen = set()
    for _ in range(4):
        graph.run()
        assert bits(y) == bits(autograd.dropout(x, twin, 0.5))
        seen.add(bits(y))
    assert len(seen) == 4


# --- dependencies and orders --------------------------------------------------------------------------------


def test_dependencies_of_a_record(cpu):
    x = tensor.from_numpy(X, cpu)
    with cpu.recording() as graph:
        y = x * 2.0  # 0
        z = autograd.tanh(y)  # 1: read after write
        cpu.run("fill", y, value=1.0)  # 2: write after write and read
        cpu.run("add", y, z, x)  # 3: reads what 1 and 2 wrote, overwrites what 0 read
    assert [i.kernel for i in graph.operations] == ["scale", "tanh", "fill", "add"]
    assert predecessors(graph.operations) == [[], [0], [0, 1], [0, 1, 2]]
    graph.run()
    assert np.array_equal(tensor.to_numpy(x), 1 + tensor.to_numpy(z))


def contract(on: Device, record: bool, order: str = "recorded", runs: int = 4) -> list[Any]:
    """The bare expression of the README, SINGA-505 style; what it leaves."""
    rng = np.random.default_rng(5)
    inputs = tensor.from_numpy(rng.standard_normal((7, 6)).astype("f"), on)
    target = tensor.from_numpy(rng.integers(0, 3, 7), on)
    w0, b0, w1 = (
        parameter(rng.standard_normal(shape).astype("f"), on, name)
        for name, shape in (("w0", (6, 5)), ("b0", (5,)), ("w1", (5, 3)))
    )
    sgd = optimizer.SGD(lr=0.3, momentum=0.9)
    losses = []

    def step() -> Tensor:
        h = autograd.relu(autograd.add_bias(autograd.matmul(inputs, w0), b0))
        value = autograd.softmax_cross_entropy(autograd.matmul(h, w1), target)
        for p, g in autograd.backward(value):
            sgd.update(None, p, g)
        return value

    if record:
        with on.recording() as graph:
            value = step()
    for _ in range(runs):
        if record:
            graph.run(order)
        else:
            value = step()
        losses.append(bits(value))
    return [*losses, *map(bits, (w0, b0, w1)), *(bits(s) for w in (w0, b0, w1) for s in sgd.state[w].values())]


@pytest.mark.parametrize("order", ["recorded", "dependencies"])
@pytest.mark.parametrize("plan", ["", "off"])
@pytest.mark.parametrize("checked", ["", "1"])
def test_the_contract_s_bare_expression_gives_the_eager_bits(monkeypatch, order, plan, checked):
    wanted = contract(device.new_cpu(), record=False)
    assert len(set(wanted[:4])) == 4, "it trains"
    monkeypatch.setenv("SINGA_LITE_PLAN", plan)
    monkeypatch.setenv("SINGA_LITE_CHECKED", checked)
    assert contract(device.new_cpu(), True, order) == wanted


def test_orders_may_take_turns(cpu):
    problem, twin = Problem(cpu), Problem(cpu)
    with cpu.recording() as graph:
        value = problem.step()
    for order in ("recorded", "dependencies", "dependencies", "recorded"):
        graph.run(order)
        assert bits(value) == bits(twin.step())
    assert bits(problem.w) == bits(twin.w)


def test_a_dependency_plan_needs_no_less_than_the_recorded_one(cpu):
    problem = Problem(cpu)
    with cpu.recording() as graph:
        problem.step()
    assert graph.plan("dependencies").arena_bytes >= graph.plan().arena_bytes
    assert graph.plan("dependencies").order == "dependencies"


# --- optimizers ---------------------------------------------------------------------------------------------


def test_a_schedule_goes_on_between_runs(cpu):
    def rate(step: int) -> float:
        return 0.1 / (1 + step)

    problem, twin = Problem(cpu), Problem(cpu)
    problem.sgd.schedule = twin.sgd.schedule = schedule.get(rate)
    with cpu.recording() as graph:
        problem.step()
    for run in range(4):
        if run:
            problem.sgd.begin_step()
        graph.run()
        twin.step()
        assert bits(problem.w) == bits(twin.w)


def test_two_steps_in_one_record_with_a_constant_rate(cpu):
    problem, twin = Problem(cpu), Problem(cpu)
    with cpu.recording() as graph:
        problem.step()
        problem.step()
    for _ in range(2):
        graph.run()
        twin.step()
        twin.step()
    assert bits(problem.w) == bits(twin.w)


def test_two_steps_in_one_record_with_a_schedule_are_refused(cpu):
    """There is one learning rate in memory: the second step's would hold for the first one too."""
    problem = Problem(cpu)
    problem.sgd.schedule = schedule.get(lambda step: 0.1 / (1 + step))
    with pytest.raises(GraphError, match="overwriting"), cpu.recording():
        problem.step()
        problem.step()
    twin = Problem(cpu)
    twin.sgd.schedule, twin.sgd.state = problem.sgd.schedule, {}
    problem.sgd.restore_step(0)
    assert bits(problem.step()) == bits(twin.step())
    assert bits(problem.w) == bits(twin.w)


# --- losses and targets -------------------------------------------------------------------------------------


def test_losses_take_host_targets_meanwhile(cpu):
    x = parameter(RNG.standard_normal((4, 3)).astype("f"), cpu)
    criterion = loss.SoftmaxCrossEntropy()
    wanted = bits(criterion.forward(False, x, [0, 2, 1, 1]))
    with cpu.recording() as graph:
        values = criterion.forward(False, x, np.array([0, 2, 1, 1]))
        with pytest.raises(ValueError, match="class ids"):
            criterion.forward(False, x, np.array([0, 2, 1, 3]))
    graph.run()
    assert bits(values) == wanted


# --- memory -------------------------------------------------------------------------------------------------


def test_memory_comes_with_the_first_run_and_goes_with_the_graph(cpu):
    x = tensor.zeros((64, 100), device=cpu)
    level = cpu.pool.used
    with cpu.recording() as graph:
        y = autograd.matmul(autograd.tanh(autograd.matmul(x, tensor.zeros((100, 70), device=cpu)) + 1.0),
                            tensor.zeros((70, 3), device=cpu))  # fmt: skip
    assert cpu.pool.used == level
    graph.run()
    plan = graph.memory_plan
    assert cpu.pool.used == level + plan.arena_bytes + y.nbytes
    graph.run("dependencies")
    del graph, plan
    gc.collect()
    assert cpu.pool.used == level + y.nbytes
    del y
    assert cpu.pool.used == level


def test_a_plan_without_a_run_allocates_nothing(cpu):
    x = tensor.zeros((64, 100), device=cpu)
    level = cpu.pool.used
    with cpu.recording() as graph:
        y = autograd.tanh(x * 2.0) * 3.0
    assert graph.memory_plan.arena_bytes == x.nbytes
    assert cpu.pool.used == level
    del y


def test_the_graph_says_what_it_is(cpu):
    with cpu.recording() as graph:
        y = tensor.zeros((2, 3), device=cpu)
        assert repr(graph) == "<Graph recording, 1 operations, 1 blocks>"
    assert repr(graph) == "<Graph recorded, 1 operations, 1 blocks>"
    with pytest.raises(ZeroDivisionError), cpu.recording() as failed:
        raise ZeroDivisionError
    assert repr(failed) == "<Graph failed, 0 operations, 0 blocks>"
    del y


def test_operations_know_their_phase_and_layer(cpu):
    problem = Problem(cpu)
    with cpu.recording() as graph, cpu.scope(layer="dense"):
        problem.step()
    phases = [i.phase for i in graph.operations]
    assert phases[0] is Phase.FORWARD
    assert phases[-1] is Phase.UPDATE
    assert {Phase.DERIVATIVE, Phase.GRADIENT} < set(phases)
    assert {i.layer for i in graph.operations} == {"dense"}
