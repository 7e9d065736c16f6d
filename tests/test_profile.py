"""Profiles by a clock that the launches move themselves, and of a graph that really runs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from singa_lite import device, tensor
from singa_lite.operation import Instruction, Operand, Phase
from singa_lite.reports import profile as profile_module
from singa_lite.reports.profile import Profile, measure

# (kernel, shape of each operand, phase, layer)
STEPS = [
    ("relu", [(5, 3), (5, 3)], Phase.FORWARD, "one"),
    ("add", [(7, 3), (7, 3), (7, 3)], Phase.FORWARD, "two"),
    ("relu_derivative", [(5, 3), (5, 3), (5, 3)], Phase.DERIVATIVE, "one"),
    ("relu", [(2,), (2,)], Phase.UPDATE, ""),
]

# Seconds of each launch in three runs; powers of two, so that sums are exact.
SECONDS = [(0.5, 8.0, 0.25), (2.0, 1.0, 4.0), (1.0, 1.0, 1.0), (0.5, 0.5, 16.0)]


def instructions() -> list[Instruction]:
    """STEPS over float32, every operand a block of its own."""

    def operand(shape: tuple[int, ...]) -> Operand:
        array = np.empty(shape, np.float32)
        return Operand(0, shape, array.dtype, array.strides, 0)

    return [
        Instruction(10 + number, kernel, tuple(map(operand, shapes)), {}, phase, layer, 0)
        for number, (kernel, shapes, phase, layer) in enumerate(STEPS)
    ]


@pytest.fixture
def measured(monkeypatch) -> Profile:
    """STEPS, three times, by SECONDS."""
    clock = SimpleNamespace(now=3.0, order=[])
    monkeypatch.setattr(profile_module, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def launch(place: int):
        def run() -> None:
            clock.now += SECONDS[place][clock.order.count(place)]
            clock.order.append(place)

        return run

    result = measure(instructions(), [launch(place) for place in range(4)], 3)
    assert clock.order == [0, 1, 2, 3] * 3
    return result


def test_each_operation_has_the_median_of_its_runs(measured):
    assert [operation.seconds for operation in measured.operations] == [0.5, 2.0, 1.0, 0.5]
    assert [operation.share for operation in measured.operations] == [0.125, 0.5, 0.25, 0.125]
    assert measured.seconds == 4.0
    assert measured.runs == 3


def test_operations_keep_their_number_kernel_layer_and_phase(measured):
    assert [operation[:4] for operation in measured.operations] == [
        (10, "relu", "one", "forward"),
        (11, "add", "two", "forward"),
        (12, "relu_derivative", "one", "derivative"),
        (13, "relu", "", "update"),
    ]


def test_bytes_of_what_is_read_and_written(measured):
    assert [(o.bytes_read, o.bytes_written) for o in measured.operations] == [(60, 60), (168, 84), (120, 60), (8, 8)]


def test_what_is_updated_counts_as_read_and_as_written():
    value = Operand(0, (3,), np.dtype("f4"), (4,), 0)
    rate, count = (Operand(block, (), np.dtype(kind), (), 0) for block, kind in ((1, "f8"), (2, "i8")))
    update = Instruction(0, "sgd", (value, rate, value, None, count), {}, Phase.UPDATE, "", 0)
    (operation,) = measure([update], [lambda: None], 1).operations
    assert (operation.bytes_read, operation.bytes_written) == (12 + 8 + 12 + 8, 12 + 8)


def test_sums_by_layer_phase_and_kernel(measured):
    assert measured.by_layer() == [
        ("two", 1, 2.0, 0.5, 168, 84),
        ("one", 2, 1.5, 0.375, 180, 120),
        ("", 1, 0.5, 0.125, 8, 8),
    ]
    assert measured.by_phase() == [
        ("forward", 2, 2.5, 0.625, 228, 144),
        ("derivative", 1, 1.0, 0.25, 120, 60),
        ("update", 1, 0.5, 0.125, 8, 8),
    ]
    assert measured.by_kernel() == [
        ("add", 1, 2.0, 0.5, 168, 84),
        ("relu", 2, 1.0, 0.25, 68, 68),
        ("relu_derivative", 1, 1.0, 0.25, 120, 60),
    ]


def test_the_text(measured):
    head, *tables = str(measured).split("\n\n")
    assert head == "4 operations, 4000.000 ms, medians over 3 runs"
    assert [table.split()[0] for table in tables] == ["phase", "kernel", "layer", "slowest"]
    assert tables[2].splitlines() == [
        "layer   operations        ms  share  bytes read  bytes written",
        "──────  ──────────  ────────  ─────  ──────────  ─────────────",
        "two     1           2000.000  50.0%         168             84",
        "one     2           1500.000  37.5%         180            120",
        "(none)  1            500.000  12.5%           8              8",
    ]
    assert [line.split()[0] for line in tables[3].splitlines()[2:]] == ["11", "12", "10", "13"]


def test_the_text_lists_the_twenty_slowest():
    many = measure(instructions() * 6, [lambda: None] * 24, 1)
    assert len(str(many).split("\n\n")[-1].splitlines()) == 2 + 20


def test_nothing_to_measure():
    empty = measure([], [], 2)
    assert empty.seconds == 0 and empty.operations == ()
    assert str(empty).startswith("0 operations, 0.000 ms")


@pytest.mark.parametrize("runs", [0, -1, 1.5])
def test_runs_below_one_or_broken(runs):
    with pytest.raises(ValueError, match=rf"profile: runs: wanted a whole number of at least 1, received {runs}"):
        measure([], [], runs)


def growing() -> tuple:
    """A recorded step that doubles two numbers in place, by way of an intermediate."""
    cpu = device.new_cpu()
    value = tensor.from_numpy(np.array([1.0, 3.0], np.float32), cpu)
    with cpu.recording() as graph, cpu.scope(layer="grow"):
        doubled = cpu.empty((2,))
        cpu.run("scale", value, doubled, alpha=2.0, beta=0.0)
        cpu.run("copy", doubled, value)
        del doubled
    return graph, value


def test_a_graph_is_profiled_by_really_running_it():
    graph, value = growing()
    result = graph.profile(runs=3)
    assert tensor.to_numpy(value).tolist() == [8.0, 24.0]
    assert [(o.kernel, o.layer, o.bytes_read, o.bytes_written) for o in result.operations] == [
        ("scale", "grow", 8, 8),
        ("copy", "grow", 8, 8),
    ]
    assert all(0 < operation.seconds < 1 for operation in result.operations)
    graph.run()
    assert tensor.to_numpy(value).tolist() == [16.0, 48.0]


def test_a_graph_runs_ten_times_unless_told():
    graph, value = growing()
    assert graph.profile().runs == 10
    assert tensor.to_numpy(value).tolist() == [2.0**10, 3 * 2.0**10]
