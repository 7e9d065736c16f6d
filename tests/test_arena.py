"""The arena: one span of bytes for several programs, taken from the pool and given back, grown when it must be."""

from __future__ import annotations

import gc
import os
import threading
from typing import Any

import numpy as np
import pytest

from kernel_sets import kernel_sets
from nets import bits
from singa_lite import FeedForwardNet, Tensor, autograd, device, layers, loss, optimizer, tensor
from singa_lite.device import Device
from singa_lite.graph.arena import Arena
from singa_lite.runtime.pool import OutOfMemoryError

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


# --- nets on one device share one arena

X, Y = RNG.standard_normal((32, 20)).astype("f"), RNG.integers(0, 4, 32)
SETS = [kernels.name for kernels in kernel_sets()]


def net_of(on: Device, width: int, **options: Any) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on, seed=width)
    net.add(layers.Dense("wide", width, input_sample_shape=(20,)))
    net.add(layers.Activation("act"))
    net.add(layers.Dense("dense", 4))
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9), **options)
    return net


def values(net: FeedForwardNet) -> list[Any]:
    return [bits(value) for value in net.param_values()]


def alone(kernels: str, width: int, steps: int) -> tuple[list[Any], int, int]:
    """Parameters after so many steps; bytes of the arena and of the pool."""
    net = net_of(device.new_cpu(kernels=kernels), width)
    for _ in range(steps):
        net.train_one_batch(X, Y)
    return values(net), net.memory_plan.arena_bytes, net.device.pool.used


@pytest.mark.parametrize("kernels", SETS)
def test_two_nets_take_the_arena_of_the_larger_and_train_as_alone(kernels):
    apart = [alone(kernels, width, 3) for width in (300, 200)]
    on = device.new_cpu(kernels=kernels)
    nets = [net_of(on, 300), net_of(on, 200)]
    for _ in range(3):
        for net in nets:
            net.train_one_batch(X, Y)
    found, arenas, used = zip(*apart, strict=True)
    assert [values(net) for net in nets] == [*found]
    assert on.pool.used <= sum(used) - min(arenas) + 1024


@pytest.mark.parametrize("kernels", SETS)
def test_results_stay_readable_behind_the_other_nets_step(kernels):
    on = device.new_cpu(kernels=kernels)
    one, other = net_of(on, 60, keep=["wide"]), net_of(on, 90)
    result, _ = one.train_one_batch(X, Y)
    predicted, kept = one.predict_one_batch(X), one.kept["wide"]
    before = [bits(value) for value in (result, kept.output, kept.derivative, predicted)]
    for _ in range(2):
        other.train_one_batch(X[::-1].copy(), Y)
        other.evaluate(X, Y)
    assert [bits(value) for value in (result, kept.output, kept.derivative, predicted)] == before


@pytest.mark.parametrize("kernels", SETS)
def test_threads_wait_for_each_others_steps(kernels):
    on = device.new_cpu(kernels=kernels)
    nets = [net_of(on, width) for width in (40, 50, 60)]
    for net in nets:
        net.train_one_batch(X, Y)  # a device records for one thread at a time
    errors: list[BaseException] = []

    def train(net: FeedForwardNet) -> None:
        try:
            for _ in range(19):
                net.train_one_batch(X, Y)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=train, args=(net,), daemon=True) for net in nets]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert errors == [] and not any(worker.is_alive() for worker in workers)
    assert [values(net) for net in nets] == [alone(kernels, width, 20)[0] for width in (40, 50, 60)]


@pytest.mark.parametrize("change", ["a longer batch", "a net that is gone", "a new program"])
def test_the_arena_changes_for_one_net_while_no_thread_runs_a_step_of_another(change):
    on = device.new_cpu(kernels="numpy")
    net, other = net_of(on, 30), net_of(on, 40)
    net.train_one_batch(X, Y)
    steps, feeds = net.trainer.steps, net.trainer.steps.feeds
    changes = {
        "a longer batch": lambda: feeds._grow(2 * feeds.nbytes),
        "a net that is gone": lambda: steps.exclusively(lambda: None),
        "a new program": lambda: steps.arena.add(net.training_graph.executable()),
    }
    other.train_one_batch(X, Y)
    steps.arena.leave()
    inside, go = threading.Event(), threading.Event()

    def held() -> None:
        inside.set()
        go.wait(60)

    worker = threading.Thread(target=lambda: other.trainer.steps.arena.turn.run(held), daemon=True)
    changing = threading.Thread(target=changes[change], daemon=True)
    worker.start()
    inside.wait(60)
    changing.start()
    changing.join(0.2)
    assert changing.is_alive()
    go.set()
    changing.join(60)
    assert not changing.is_alive()


def test_what_only_a_net_that_is_gone_needed_is_given_back():
    on = device.new_cpu(kernels="numpy")
    small = net_of(on, 30)
    small.train_one_batch(X, Y)
    used = on.pool.used
    large = net_of(on, 500)
    large.train_one_batch(X, Y)
    assert on.pool.used > used + large.memory_plan.arena_bytes - small.memory_plan.arena_bytes
    del large
    gc.collect()
    small.train_one_batch(X, Y)
    assert on.pool.used == used


def test_a_net_with_a_budget_has_an_arena_of_its_own():
    on = device.new_cpu(kernels="numpy")
    large = net_of(on, 500)
    large.train_one_batch(X, Y)
    budget = net_of(on, 30).plan_batch(32).total_bytes
    bound = net_of(on, 30, memory_budget=budget)
    before = on.pool.used
    bound.train_one_batch(X, Y)
    assert on.pool.used - before <= budget
    large.train_one_batch(X, Y)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_process_does_not_wait_for_a_thread_that_it_does_not_have(monkeypatch):
    on = device.new_cpu(kernels="numpy")
    busy, other = net_of(on, 30), net_of(on, 40)
    other.train_one_batch(X, Y)
    inside, go = threading.Event(), threading.Event()

    def held() -> None:
        inside.set()
        assert go.wait(60)

    worker = threading.Thread(target=lambda: busy.trainer.steps.exclusively(held), daemon=True)
    worker.start()
    assert inside.wait(60)
    child = os.fork()
    if not child:
        try:
            other.train_one_batch(X, Y)
            os._exit(0)
        except BaseException:
            os._exit(1)
    go.set()
    worker.join(60)
    assert os.waitpid(child, 0)[1] == 0
