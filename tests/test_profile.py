"""Profiles by a clock that the launches move themselves, and of a graph that really runs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from singa_lite import device, tensor
from singa_lite.common.strides import laid_out
from singa_lite.compiler.ir.operation import Instruction, Operand, Phase
from singa_lite.compiler.report import profile as profile_module
from singa_lite.compiler.report.profile import Peaks, Profile, measure
from singa_lite.graph import call_times

# (kernel, shape of each operand, phase, layer)
STEPS = [
    ("relu", [(5, 3), (5, 3)], Phase.FORWARD, "one"),
    ("add", [(7, 3), (7, 3), (7, 3)], Phase.FORWARD, "two"),
    ("relu_derivative", [(5, 3), (5, 3), (5, 3)], Phase.DERIVATIVE, "one"),
    ("relu", [(2,), (2,)], Phase.UPDATE, ""),
]

# Seconds of each launch in three runs; powers of two, so that sums are exact.
SECONDS = [(0.5, 8.0, 0.25), (2.0, 1.0, 4.0), (1.0, 1.0, 1.0), (0.5, 0.5, 16.0)]


def call(kernel: str, shapes: list[tuple[int, ...]], settings: dict[str, object]) -> Instruction:
    """A call over float32 operands, which have no bytes."""
    operands = tuple(
        Operand(block, shape, np.dtype("f4"), laid_out(shape, range(len(shape)), 4), 0)
        for block, shape in enumerate(shapes)
    )
    return Instruction(0, kernel, operands, settings, Phase.FORWARD, "", 0)


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
    assert (measured.seconds, measured.runs) == (4.0, 3)
    assert [operation[:4] for operation in measured.operations][1:3] == [
        (11, "add", "two", "forward"),
        (12, "relu_derivative", "one", "derivative"),
    ]


def test_what_is_updated_counts_as_read_and_as_written():
    value = Operand(0, (3,), np.dtype("f4"), (4,), 0)
    rate, count = (Operand(block, (), np.dtype(kind), (), 0) for block, kind in ((1, "f8"), (2, "i8")))
    update = Instruction(0, "sgd", (value, rate, value, None, count), {}, Phase.UPDATE, "", 0)
    (operation,) = measure([update], [lambda: None], 1).operations
    assert (operation.bytes_read, operation.bytes_written) == (12 + 8 + 12 + 8, 12 + 8)


def test_sums_by_layer_phase_and_kernel(measured):
    assert measured.by_layer() == [
        ("two", 1, 2.0, 0.5, 168, 84, 0),
        ("one", 2, 1.5, 0.375, 180, 120, 0),
        ("", 1, 0.5, 0.125, 8, 8, 0),
    ]
    assert measured.by_phase() == [
        ("forward", 2, 2.5, 0.625, 228, 144, 0),
        ("derivative", 1, 1.0, 0.25, 120, 60, 0),
        ("update", 1, 0.5, 0.125, 8, 8, 0),
    ]
    assert measured.by_kernel() == [
        ("add", 1, 2.0, 0.5, 168, 84, 0),
        ("relu", 2, 1.0, 0.25, 68, 68, 0),
        ("relu_derivative", 1, 1.0, 0.25, 120, 60, 0),
    ]


def test_rates_and_shares_of_the_peaks(monkeypatch):
    """A product of 3 x 400 and 400 x 500 000 (1.2 GFLOP, 0.806 GB) in half a second, a copy of 0.25 GB in a quarter."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(profile_module, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def takes(seconds: float):
        def run() -> None:
            clock.now += seconds

        return run

    product = call("matmul", [(3, 400), (400, 500_000), (3, 500_000)], {"transpose_a": False, "transpose_b": False})
    copy = call("copy", [(62_500_000 // 2,)] * 2, {})
    peaks = Peaks(flops=4e9, nbytes=2e9)
    profile = measure([product, copy], [takes(0.5), takes(0.25)], 1, peaks=peaks)
    assert [o.flops for o in profile.operations] == [1_200_000_000, 0]
    _, _, kernels, *_ = str(profile).split("\n\n")
    assert [line.split() for line in kernels.splitlines()[2:]] == [
        ["matmul", "1", "500.000", "66.7%", "2.4", "60%", "800,004,800", "6,000,000", "1.6", "81%"],
        ["copy", "1", "250.000", "33.3%", "125,000,000", "125,000,000", "1.0", "50%"],
    ]


def test_an_operation_names_the_way_in_which_it_is_done():
    ways = ["", "fast", "", ""]
    profile = measure(instructions(), [lambda: None] * 4, 1, variants=ways)
    assert [operation.variant for operation in profile.operations] == ways
    assert "11 add (fast) " in str(profile)
    assert "10 relu " in str(profile) and "10 relu (" not in str(profile)


def growing(limit: int | None = None) -> tuple:
    """A recorded step that doubles two numbers in place, by way of an intermediate."""
    cpu = device.new_cpu(limit=limit)
    value = tensor.from_numpy(np.array([1.0, 3.0], np.float32), cpu)
    with cpu.recording() as graph, cpu.scope(layer="grow"):
        doubled = cpu.empty((2,))
        cpu.run("scale", value, doubled, alpha=2.0, beta=0.0)
        cpu.run("copy", doubled, value)
        del doubled
    return graph, value


def test_a_graph_is_profiled_by_really_running_it_and_nothing_is_moved_behind_it():
    graph, value = growing()
    before = tensor.to_numpy(value).tolist()
    with pytest.raises(ValueError, match="runs"):
        graph.profile(0)
    with pytest.raises(TypeError, match="peaks"):
        graph.profile(1, peaks="yes")
    result = graph.profile(runs=3)
    assert tensor.to_numpy(value).tolist() == before
    assert [(o.kernel, o.layer, o.bytes_read, o.bytes_written) for o in result.operations] == [
        ("scale", "grow", 8, 8),
        ("copy", "grow", 8, 8),
    ]
    assert all(0 < operation.seconds < 1 for operation in result.operations)
    graph.run()
    assert tensor.to_numpy(value).tolist() == [2 * each for each in before]


@pytest.fixture
def small_peaks(monkeypatch):
    """A calibration by small products and copies."""
    monkeypatch.setattr(call_times, "ORDERS", (16, 32))
    monkeypatch.setattr(call_times, "COPIES", (2**12, 2**14))


def test_a_graph_measures_the_peaks_once_for_a_device(small_peaks):
    graph, value = growing()
    peaks = graph.profile(1).peaks
    assert peaks is not None and peaks.flops > 0 and peaks.nbytes > 0
    assert graph.profile(1).peaks is peaks
    assert graph.profile(1, peaks=False).peaks is None
    assert tensor.to_numpy(value).tolist() == [1.0, 3.0], "neither a calibration nor a profile moves anything"


def test_the_peaks_keep_to_the_limit_of_the_device(small_peaks):
    graph, value = growing(limit=2**21)
    assert graph.profile(1).peaks is not None
    graph, value = growing(limit=1536)
    assert graph.profile(1).peaks is None, "there is no room for any of its calls"
    graph.run()
    assert tensor.to_numpy(value).tolist() == [2.0, 6.0], "the profile moved nothing, the run did"
