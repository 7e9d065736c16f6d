"""Eager, planned, unplanned, dependency-ordered and checked runs of random expressions and nets give equal bits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuda_devices import KINDS, new_device
from nets import bits, state_of
from random_graphs import Expression, compiled, random_batch, random_net
from singa_lite import FeedForwardNet, device
from singa_lite.device import Device
from singa_lite.memory_plan import MemoryPlan
from singa_lite.passes.program import floor, requests

RUNS = 3
Make = Callable[[], Device]
SEEDS = st.integers(0, 2**32 - 1)
many = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

#: SINGA_LITE_PLAN, SINGA_LITE_CHECKED, and the order of running.
MODES = {
    "planned": ("", "", "recorded"),
    "unplanned": ("off", "", "recorded"),
    "dependencies": ("", "", "dependencies"),
    "checked": ("", "1", "recorded"),
    "dependencies, checked": ("", "1", "dependencies"),
}


@contextmanager
def mode(plan: str, checked: str) -> Iterator[None]:
    """The environment of a mode."""
    before = {name: os.environ.get(name) for name in ("SINGA_LITE_PLAN", "SINGA_LITE_CHECKED")}
    os.environ |= {"SINGA_LITE_PLAN": plan, "SINGA_LITE_CHECKED": checked}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def assert_sound(plan: MemoryPlan) -> None:
    """Proved, no smaller than it can be, and for one order no larger than what is to be planned needs as it stands.

    That is the rewritten program: a library's fused call may want more scratch than the two recorded ones do.
    """
    plan.check()
    rewritten = plan.placed.rewritten
    assert plan.floor_bytes <= plan.arena_bytes <= sum(request.size for request in requests(rewritten))
    if plan.order != "dependencies":
        assert plan.floor_bytes <= floor(rewritten)


def eager(seed: int, length: int, make: Make = device.new_cpu) -> list[list[Any]]:
    expression, seen = Expression(seed, length, make()), []
    for _ in range(RUNS):
        results = [bits(value) for value in expression.step()]
        seen.append([*results, *map(bits, expression.lasting())])
    return seen


def recorded(seed: int, length: int, order: str, make: Make = device.new_cpu) -> list[list[Any]]:
    expression, seen = Expression(seed, length, make()), []
    with expression.on.recording() as graph:
        results = expression.step()
    for _ in range(RUNS):
        graph.run(order)
        seen.append([*map(bits, results), *map(bits, expression.lasting())])
    assert_sound(graph.plan(order))
    return seen


@settings(many, max_examples=500)
@given(SEEDS, st.integers(1, 14))
def test_expressions(seed, length):
    wanted = eager(seed, length)
    for name, (plan, checked, order) in MODES.items():
        with mode(plan, checked):
            assert recorded(seed, length, order) == wanted, name


@pytest.mark.filterwarnings("ignore:this step cannot be one CUDA graph")  # where a kernel for integers is the host's
@pytest.mark.parametrize("kind", KINDS)
@settings(many, max_examples=12)
@given(SEEDS, st.integers(3, 20))
def test_expressions_on_a_gpu(kind, seed, length):
    def make() -> Device:
        return new_device(kind)

    wanted = eager(seed, length, make)
    for name in ("planned", "unplanned", "checked"):
        plan, checked, order = MODES[name]
        with mode(plan, checked):
            assert recorded(seed, length, order, make) == wanted, name


@settings(many, max_examples=40)
@given(SEEDS, st.integers(20, 50))
def test_long_expressions(seed, length):
    wanted = eager(seed, length)
    for name in ("planned", "dependencies, checked"):
        plan, checked, order = MODES[name]
        with mode(plan, checked):
            assert recorded(seed, length, order) == wanted, name


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


@settings(many, max_examples=120)
@given(SEEDS, st.integers(0, 9))
def test_nets(seed, length):
    wanted = trained(compiled(random_net(seed, length), seed, graph=False))
    for name, (plan, checked, order) in MODES.items():
        if order == "recorded":
            with mode(plan, checked):
                net = compiled(random_net(seed, length), seed, graph=True)
                assert trained(net) == wanted, name
            assert_sound(net.memory_plan)


@pytest.mark.parametrize("kind", KINDS)
@settings(many, max_examples=5)
@given(SEEDS, st.integers(0, 7))
def test_nets_on_a_gpu(kind, seed, length):
    """Fused as they are, which rounds otherwise than doing each operation at once."""
    seen = {}
    for name in ("unplanned", "planned", "checked"):
        plan, checked, _ = MODES[name]
        with mode(plan, checked):
            net = compiled(random_net(seed, length, new_device(kind)), seed, graph=True)
            seen[name] = trained(net)
        assert_sound(net.memory_plan)
    assert seen["planned"] == seen["unplanned"] == seen["checked"]


@settings(many, max_examples=120)
@given(SEEDS, st.integers(0, 9))
def test_nets_in_dependency_order(seed, length):
    net, twin = (compiled(random_net(seed, length), seed, graph) for graph in (True, False))
    x, y = random_batch(net, 0, 4)
    for one in (net, twin):
        one.train_one_batch(x, y)
    assert state_of(net) == state_of(twin)
    net.optimizer.begin_step()
    net.training_graph.run("dependencies")
    twin.train_one_batch(x, y)
    assert state_of(net) == state_of(twin)
    assert_sound(net.training_graph.plan("dependencies"))
