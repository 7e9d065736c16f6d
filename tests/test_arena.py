"""The arena: one span of bytes for several programs, taken from the pool and given back, grown when it must be."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from nets import bits
from singa_lite import Tensor, autograd, device, tensor
from singa_lite.arena import Arena
from singa_lite.device import Device
from singa_lite.graph import Graph
from singa_lite.memory.pool import OutOfMemoryError

RNG = np.random.default_rng(11)


@pytest.fixture
def cpu() -> Device:
    return device.new_cpu()


def recorded(on: Device, arena: Arena, x: Tensor) -> tuple[Graph, Tensor]:
    """tanh(x @ 1) @ 1, which needs a place for x @ 1 (as large as x) and one for its tanh, in place."""
    ones = tensor.ones((x.shape[1], x.shape[1]), device=on)
    with on.recording(arena) as graph:
        y = autograd.matmul(autograd.matmul(x, ones), ones)
        y = autograd.reduce_sum(autograd.tanh(y), axes=(0, 1))
    return graph, y


def eager(x: Tensor) -> object:
    ones = tensor.ones((x.shape[1], x.shape[1]), device=x.device)
    y = autograd.matmul(autograd.matmul(x, ones), ones)
    return bits(autograd.reduce_sum(autograd.tanh(y), axes=(0, 1)))


def numbers(on: Device, rows: int) -> Tensor:
    return tensor.from_numpy(RNG.standard_normal((rows, 20)).astype("f") / 20, on)


def test_an_arena_holds_nothing_before_it_is_needed(cpu):
    arena = Arena(cpu)
    graph, _y = recorded(cpu, arena, numbers(cpu, 30))
    level = cpu.pool.used
    assert arena.nbytes == 0
    graph.run()
    assert arena.nbytes == graph.memory_plan.arena_bytes == 2 * 2432  # two of 2400 bytes, in whole lines
    assert cpu.pool.used == level + 2 * 2432 + 64  # and the result


def test_programs_share_one_span_the_largest_wins_and_all_keep_working(cpu):
    arena, programs = Arena(cpu), []
    for rows in (30, 90, 10, 60):
        x = numbers(cpu, rows)
        graph, y = recorded(cpu, arena, x)
        programs.append((x, graph, y))
        graph.run()
        largest = max(graph.memory_plan.arena_bytes for _, graph, _ in programs)
        assert arena.nbytes == largest
        for given, other, result in [*programs, *reversed(programs)]:
            other.run()
            assert bits(result) == eager(given)
        assert arena.nbytes == largest


def test_growing_does_not_hold_two_spans_at_a_time(cpu):
    arena = Arena(cpu)
    small, _y = recorded(cpu, arena, numbers(cpu, 300))
    small.run()
    large, _z = recorded(cpu, arena, numbers(cpu, 301))
    cpu.pool.reset_high_water()
    large.run()
    assert cpu.pool.high_water == cpu.pool.used


def test_the_span_goes_back_with_the_last_that_holds_the_arena(cpu):
    x = numbers(cpu, 300)
    level = cpu.pool.used
    arena = Arena(cpu)
    graph, y = recorded(cpu, arena, x)
    graph.run()
    del graph
    gc.collect()
    assert cpu.pool.used > level + 300 * 20 * 4
    del arena
    gc.collect()
    del y
    assert cpu.pool.used == level


def test_a_program_that_died_leaves_the_others_alone(cpu):
    arena = Arena(cpu)
    x = numbers(cpu, 40)
    graph, y = recorded(cpu, arena, x)
    other, _ = recorded(cpu, arena, numbers(cpu, 80))
    other.run()
    del other
    gc.collect()
    graph.run()
    assert bits(y) == eager(x)


def test_a_span_that_the_pool_cannot_give_leaves_the_smaller_programs_working(cpu):
    arena = Arena(cpu)
    x = numbers(cpu, 40)
    graph, y = recorded(cpu, arena, x)
    graph.run()
    cpu.pool.set_limit(cpu.pool.total)
    too_large = tensor.zeros((40_000, 1), device=cpu)
    with cpu.recording(arena) as other:
        wide = autograd.add(too_large, tensor.zeros((1, 50), device=cpu))
        total = autograd.reduce_sum(wide, axes=(0, 1))
        del wide
    for _ in range(2):
        with pytest.raises(OutOfMemoryError):
            other.run()
        graph.run()
        assert bits(y) == eager(x)
    cpu.pool.set_limit(None)
    other.run()
    assert float(total) == 0
    graph.run()
    assert bits(y) == eager(x)


def test_dead_bytes_are_overwritten_with_nan_when_checked(cpu, monkeypatch):
    monkeypatch.setenv("SINGA_LITE_CHECKED", "1")
    arena = Arena(cpu)
    graph, y = recorded(cpu, arena, numbers(cpu, 30))
    for _ in range(2):
        graph.run()
        span = np.asarray(arena.block.memory)[: 30 * 20 * 4]
        assert np.isnan(span.view("f4")).all()
    assert np.isfinite(float(y))


def test_dead_bytes_stay_as_they_are_when_not_checked(cpu, monkeypatch):
    monkeypatch.delenv("SINGA_LITE_CHECKED", raising=False)
    arena = Arena(cpu)
    graph, _y = recorded(cpu, arena, numbers(cpu, 30))
    graph.run()
    assert np.isfinite(np.asarray(arena.block.memory)[: 30 * 20 * 4].view("f4")).all()
