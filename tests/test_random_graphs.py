"""Eager, planned, unplanned, dependency-ordered and checked runs of random expressions and nets give equal bits.

Each is run eagerly, as planned, and in one of the other modes in turn: a mode concerns how a step is placed or ordered,
whatever the step is, so that each of them meets a quarter of all. Many more are run nightly.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from cuda_devices import KINDS, new_device
from nets import bits, state_of
from random_graphs import Expression, compiled, random_batch, random_net
from singa_lite import FeedForwardNet, device
from singa_lite.compiler.ir.program import floor, requests
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.device import Device

#: Expressions; of nets a quarter, of long expressions a twelfth.
COUNTS = [48, pytest.param(480, marks=pytest.mark.nightly)]
each_count = pytest.mark.parametrize("count", COUNTS)
Make = Callable[[], Device]

#: SINGA_LITE_PLAN, SINGA_LITE_CHECKED, and the order of running.
MODES = {
    "planned": ("", "", "recorded"),
    "unplanned": ("off", "", "recorded"),
    "dependencies": ("", "", "dependencies"),
    "checked": ("", "1", "recorded"),
    "dependencies, checked": ("", "1", "dependencies"),
}
#: What a GPU and nets are run in: a net's own steps are always in the recorded order.
RECORDED = tuple(name for name, (_, _, order) in MODES.items() if order == "recorded")


def chosen(number: int, names: Sequence[str] = tuple(MODES)) -> list[str]:
    """Modes for this one: as planned, and another one in turn."""
    first, *others = names
    return [first, others[number % len(others)]]


def drawn(count: int, shortest: int, longest: int) -> Iterator[tuple[int, int, int]]:
    """(number, seed, length) of so many, each length as often as another."""
    for number in range(count):
        yield number, random.Random(number).getrandbits(32), shortest + number % (longest + 1 - shortest)


@contextmanager
def mode(name: str) -> Iterator[str]:
    """The environment of a mode; its order of running."""
    plan, checked, order = MODES[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SINGA_LITE_PLAN", plan)
        patch.setenv("SINGA_LITE_CHECKED", checked)
        yield order


def assert_sound(plan: MemoryPlan) -> None:
    """Proved, no smaller than it can be, and for one order no larger than what is to be planned needs as it stands.

    That is the rewritten program: a library's fused call may want more scratch than the two recorded ones do.
    """
    plan.check()
    rewritten = plan.placed.rewritten
    assert plan.floor_bytes <= plan.arena_bytes <= sum(request.size for request in requests(rewritten))
    if plan.order != "dependencies":
        assert plan.floor_bytes <= floor(rewritten)


def eager(seed: int, length: int, make: Make = device.new_cpu, runs: int = 2) -> list[list[Any]]:
    expression, seen = Expression(seed, length, make()), []
    for _ in range(runs):
        results = [bits(value) for value in expression.step()]
        seen.append([*results, *map(bits, expression.lasting())])
    return seen


def recorded(seed: int, length: int, order: str, make: Make = device.new_cpu, runs: int = 2) -> list[list[Any]]:
    """The second run is the first one's launches over what that one left."""
    expression, seen = Expression(seed, length, make()), []
    with expression.on.recording() as graph:
        results = expression.step()
    for _ in range(runs):
        graph.run(order)
        seen.append([*map(bits, results), *map(bits, expression.lasting())])
    assert_sound(graph.plan(order))
    return seen


def assert_equal(number: int, seed: int, length: int, modes: Sequence[str]) -> None:
    """The expression, as it is run eagerly, gives these bits in each mode."""
    wanted = eager(seed, length)
    for name in modes:
        with mode(name) as order:
            assert recorded(seed, length, order) == wanted, f"number {number}, Expression({seed}, {length}), {name}"


@each_count
def test_expressions(count):
    for number, seed, length in drawn(count, 1, 14):
        assert_equal(number, seed, length, chosen(number))
    for number, seed, length in drawn(count // 12, 20, 50):
        assert_equal(number, seed, length, ("planned", "dependencies, checked"))


@pytest.mark.filterwarnings("ignore:this step cannot be one CUDA graph")  # where a kernel for integers is the host's
@pytest.mark.parametrize("kind", KINDS)
@each_count
def test_expressions_on_a_gpu(kind, count):
    for _, seed, length in drawn(count // 12, 3, 20):
        make = partial(new_device, kind)
        wanted = eager(seed, length, make, runs=3)  # the third is the first one as a CUDA graph
        for name in RECORDED:
            with mode(name) as order:
                assert recorded(seed, length, order, make, runs=3) == wanted, name


def trained(net: FeedForwardNet) -> list[Any]:
    """Losses, metrics and state over steps of two sizes, with a prediction between."""
    seen = []
    for number, count in enumerate((4, 4, 7, 4)):
        x, y = random_batch(net, number, count)
        value, hits = net.train_one_batch(x, y)
        out = net.predict_one_batch(x)
        outs = list(out.values()) if isinstance(out, dict) else [out]
        seen.append([*map(bits, [value, *hits.values(), *outs]), state_of(net)])
    return seen


@each_count
def test_nets(count):
    """The planned one also replays a step in dependency order, as no net does of its own."""
    for number, seed, length in drawn(count // 4, 0, 9):
        where = f"number {number}, random_net({seed}, {length})"
        twin = compiled(random_net(seed, length), seed, graph=False)
        wanted = trained(twin)
        for name in chosen(number, RECORDED):
            with mode(name):
                net = compiled(random_net(seed, length), seed, graph=True)
                assert trained(net) == wanted, f"{where}, {name}"
            assert_sound(net.memory_plan)
            if name == "planned":
                in_dependency_order(net, twin, where)


def in_dependency_order(net: FeedForwardNet, twin: FeedForwardNet, where: str) -> None:
    """One step of each by `train_one_batch`, and that step again."""
    x, y = random_batch(net, 9, 4)
    for one in (net, twin):
        one.train_one_batch(x, y)
    net.optimizer.begin_step()
    net.training_graph.run("dependencies")
    twin.train_one_batch(x, y)
    assert state_of(net) == state_of(twin), where
    assert_sound(net.training_graph.plan("dependencies"))


@pytest.mark.parametrize("kind", KINDS)
@each_count
def test_nets_on_a_gpu(kind, count):
    """Fused as they are, which rounds otherwise than doing each operation at once."""
    for _, seed, length in drawn(count // 24, 2, 7):
        seen = {}
        for name in RECORDED:
            with mode(name):
                net = compiled(random_net(seed, length, new_device(kind)), seed, graph=True)
                seen[name] = trained(net)
            assert_sound(net.memory_plan)
        assert seen["planned"] == seen["unplanned"] == seen["checked"]
