"""Recording: nothing runs meanwhile, what is held keeps its values, and an unfinished step is refused."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from nets import bits
from singa_lite import Tensor, autograd, device, loss, optimizer, schedule, tensor
from singa_lite.compiler.ir.uses import predecessors
from singa_lite.device import Device
from singa_lite.errors import GraphError
from singa_lite.graph import Graph, Phase

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


# --- reading and writing meanwhile --------------------------------------------------------------------------

READS: dict[str, Callable[[Tensor], Any]] = {
    "to_numpy": tensor.to_numpy,
    "float": lambda t: float(autograd.reduce_sum(t, axes=(0, 1))),
    "numpy.asarray": np.asarray,
    "DLPack": np.from_dlpack,
    "array": lambda t: t.array,
    "another device": lambda t: t.to_device(device.new_cpu()),
}


@pytest.mark.parametrize("name", READS)
def test_nothing_is_read_meanwhile(cpu, name):
    """Not a value of the step, and no other: host code runs once, and would go on with the first batch's values."""
    x = tensor.from_numpy(X, cpu)
    with cpu.recording():
        y = x * 2.0
        for value in (y, x) if name != "array" else (y,):
            with pytest.raises(GraphError, match="reading"):
                READS[name](value)


def test_a_value_is_read_after_the_first_run(cpu):
    x = tensor.from_numpy(X, cpu)
    with cpu.recording() as graph:
        y = x * 2.0
    with pytest.raises(GraphError, match="run the graph"):
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


def test_a_tensor_that_nobody_wrote(cpu):
    with cpu.recording() as graph:
        nothing = cpu.empty((3, 5))
        y = nothing * 2.0
        del nothing
    with pytest.raises(GraphError, match="scale"):
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


def test_one_recording_at_a_time_also_after_an_error(cpu):
    with pytest.raises(GraphError, match="recording"), cpu.recording(), cpu.recording():
        pass
    with pytest.raises(ZeroDivisionError), cpu.recording():
        raise ZeroDivisionError
    assert cpu.graph is None
    assert tensor.to_numpy(tensor.ones((2, 3), device=cpu)).sum() == 6


def test_two_devices_record_at_the_same_time(cpu):
    other = device.new_cpu()
    x, far = tensor.from_numpy(X, cpu), tensor.from_numpy(X, other)
    with cpu.recording() as graph, other.recording() as far_graph:
        y, far_y = x * 2.0, far * 3.0
    graph.run()
    far_graph.run()
    assert (len(graph.operations), len(far_graph.operations)) == (1, 1)
    assert np.array_equal(tensor.to_numpy(y) * 1.5, tensor.to_numpy(far_y))


ORDERS = ("recorded", "dependencies")


def test_nothing_runs_while_recording(cpu):
    x = tensor.from_numpy(X, cpu)
    with cpu.recording() as graph:
        y = x * 2.0
        with pytest.raises(GraphError, match="finished"):
            graph.run()
    graph.run()
    with cpu.recording():
        for order in ORDERS:
            with pytest.raises(GraphError, match="recording"):
                graph.run(order)
    del y


def test_a_recording_that_failed_is_refused(cpu):
    problem = Problem(cpu)
    with pytest.raises(ZeroDivisionError), cpu.recording() as graph:
        problem.step()
        raise ZeroDivisionError
    for order in ORDERS:
        for use in (graph.run, graph.plan):
            with pytest.raises(GraphError, match="exception"):
                use(order)
    assert bits(problem.w) == bits(W)


def fails(walk: Iterator[Any]) -> None:
    """The consumer of the first gradient fails, and its error is caught."""
    with suppress(ValueError):
        for _, g in walk:
            autograd.concat([g, autograd.transpose(g)], 0)


LEFT: dict[str, Callable[[Iterator[Any]], Any]] = {
    "never begun": lambda walk: None,
    "suspended": next,
    "closed early": lambda walk: (next(walk), walk.close()),
    "its consumer failed": fails,
}


@pytest.mark.parametrize("leave", LEFT.values(), ids=LEFT.keys())
def test_a_backward_left_before_its_end_is_refused(cpu, leave):
    """Though another one was finished."""
    x, kept = tensor.from_numpy(X, cpu), []
    with cpu.recording() as graph:
        for _ in range(2):
            kept += [parameter(W, cpu), parameter(W.T.copy(), cpu)]
            value = autograd.reduce_mean(autograd.matmul(autograd.matmul(x, kept[-2]), kept[-1]), axes=(0, 1))
            walk = autograd.backward(value)
            if len(kept) == 2:
                list(walk)
        leave(walk)
    with pytest.raises(GraphError, match="before its end"):
        graph.run()
    del walk
    gc.collect()
    with pytest.raises(GraphError, match="before its end"):
        graph.run()


def test_an_empty_record_runs_in_each_order_and_in_no_unknown_one(cpu):
    with cpu.recording() as graph:
        pass
    for order in ORDERS:
        graph.run(order)
    plan = graph.memory_plan
    assert (plan.arena_bytes, plan.floor_bytes, plan.operations, plan.at_peak()) == (0, 0, 0, [])
    assert plan.summary()
    with pytest.raises(ValueError, match="sideways"):
        graph.run("sideways")


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


def test_a_value_that_is_let_go_is_an_intermediate_and_harms_nothing(cpu):
    x = tensor.from_numpy(X, cpu)
    with cpu.recording() as graph:
        y = x * 2.0
        z = y * 3.0
        last = autograd.tanh(z)
    assert roles(graph) == {"input": 1, "output": 3}
    del y
    assert roles(graph) == {"input": 1, "output": 2, "intermediate": 1}
    graph.run()
    assert np.array_equal(tensor.to_numpy(z), 6 * X)
    wanted = bits(last)
    del z  # after the first run
    for order in ORDERS:
        graph.run(order)
        assert bits(last) == wanted


# --- what is held keeps its value, the rest goes ------------------------------------------------------------


def chain(x: Tensor, length: int) -> list[Tensor]:
    values = [x * 1.5]
    for index in range(length - 1):
        values.append(autograd.tanh(values[-1]) if index % 2 else values[-1] + x)
    return values


@pytest.mark.parametrize("held", [(), (3,), (0, 1, 2, 3, 4, 5, 6)])
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
    with pytest.raises(GraphError, match="run the graph"):
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


def test_random_states_move_on_though_nobody_uses_the_numbers(cpu):
    x, state = tensor.from_numpy(X, cpu), tensor.from_numpy(np.array([1, 2, 0], "u8"), cpu)
    with cpu.recording() as graph:
        autograd.dropout(x, state, 0.5)
    for _ in range(3):
        graph.run()
    assert tensor.to_numpy(state).tolist() == [1, 2, 3]
    assert graph.memory_plan.operations == 1


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
    plan = graph.memory_plan
    assert cpu.pool.used == level
    graph.run()
    assert cpu.pool.used == level + plan.arena_bytes + y.nbytes
    graph.run("dependencies")
    del graph, plan
    gc.collect()
    assert cpu.pool.used == level + y.nbytes
    del y
    assert cpu.pool.used == level


def test_operations_know_their_phase_and_layer(cpu):
    problem = Problem(cpu)
    with cpu.recording() as graph, cpu.scope(layer="dense"):
        problem.step()
    phases = [i.phase for i in graph.operations]
    assert phases[0] is Phase.FORWARD
    assert phases[-1] is Phase.UPDATE
    assert {Phase.DERIVATIVE, Phase.GRADIENT} < set(phases)
    assert {i.layer for i in graph.operations} == {"dense"}
