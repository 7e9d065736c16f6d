"""The arena: one span of bytes for several programs, taken from the pool and given back, grown when it must be."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from nets import bits
from singa_lite import Tensor, autograd, device, tensor
from singa_lite.arena import Arena
from singa_lite.device import Device
from singa_lite.memory.pool import OutOfMemoryError

RNG = np.random.default_rng(11)


@pytest.fixture
def cpu() -> Device:
    return device.new_cpu()


class Recorded:
    """The sum of tanh(x @ 1 @ 1), which needs two places as large as x."""

    def __init__(self, on: Device, arena: Arena, rows: int) -> None:
        self.x = tensor.from_numpy(RNG.standard_normal((rows, 20)).astype("f") / 20, on)
        self.ones = tensor.ones((20, 20), device=on)
        with on.recording(arena) as self.graph:
            self.result = self.made()

    def made(self) -> Tensor:
        y = autograd.matmul(autograd.matmul(self.x, self.ones), self.ones)
        return autograd.reduce_sum(autograd.tanh(y), axes=(0, 1))

    def runs(self) -> None:
        """To the bits of doing each operation at once."""
        self.graph.run()
        assert bits(self.result) == bits(self.made())


def test_an_arena_holds_nothing_before_it_is_needed(cpu):
    arena = Arena(cpu)
    one = Recorded(cpu, arena, 30)
    level = cpu.pool.used
    assert arena.nbytes == 0
    one.graph.run()
    assert arena.nbytes == one.graph.memory_plan.arena_bytes == 2 * 2432  # two of 2400 bytes, in whole lines
    assert cpu.pool.used == level + 2 * 2432 + 64  # and the result


def test_programs_share_one_span_the_largest_wins_and_all_keep_working(cpu):
    """Growing does not hold two spans at a time."""
    arena, programs = Arena(cpu), list[Recorded]()
    for rows in (30, 90, 10, 60):
        programs.append(Recorded(cpu, arena, rows))
        cpu.pool.reset_high_water()
        programs[-1].graph.run()
        assert cpu.pool.high_water == cpu.pool.used
        assert arena.nbytes == max(one.graph.memory_plan.arena_bytes for one in programs)
        for one in [*programs, *reversed(programs)]:
            one.runs()
    del programs[1]
    gc.collect()
    for one in programs:
        one.runs()


def test_the_span_goes_back_with_the_last_that_holds_the_arena(cpu):
    level = cpu.pool.used
    arena = Arena(cpu)
    one = Recorded(cpu, arena, 300)
    one.graph.run()
    del one
    gc.collect()
    assert cpu.pool.used > level + 300 * 20 * 4
    del arena
    gc.collect()
    assert cpu.pool.used == level


def test_a_span_that_the_pool_cannot_give_leaves_the_smaller_programs_working(cpu):
    arena = Arena(cpu)
    one = Recorded(cpu, arena, 40)
    one.runs()
    tall = tensor.zeros((40_000, 1), device=cpu)
    cpu.pool.set_limit(cpu.pool.total)
    with cpu.recording(arena) as other:
        wide = autograd.add(tall, tensor.zeros((1, 50), device=cpu))
        total = autograd.reduce_sum(wide, axes=(0, 1))
        del wide
    for _ in range(2):
        with pytest.raises(OutOfMemoryError):
            other.run()
        one.runs()
    cpu.pool.set_limit(None)
    other.run()
    assert float(total) == 0
    one.runs()


@pytest.mark.parametrize("checked", [True, False])
def test_dead_bytes_are_overwritten_with_nan_when_checked(cpu, monkeypatch, checked):
    monkeypatch.setenv("SINGA_LITE_CHECKED", "1" if checked else "")
    arena = Arena(cpu)
    one = Recorded(cpu, arena, 30)
    for _ in range(2):
        one.graph.run()
        span = np.asarray(arena.block.memory)[: 30 * 20 * 4].view("f4")
        assert np.isnan(span).all() if checked else np.isfinite(span).all()
    assert np.isfinite(float(one.result))
