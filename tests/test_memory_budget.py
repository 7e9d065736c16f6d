"""A memory budget: all that training takes stays within it, to equal bits, or one error says what the least is."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from budget_nets import BRANCHES, HEAVY_STATE, LAYERS, Subject, branches, curve_of
from misuse import refused
from nets import bits, state_of
from random_graphs import compiled, random_batch, random_net
from singa_lite import FeedForwardNet, device, layers, loss, optimizer
from singa_lite.compiler import lower
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.recompute import repeats
from singa_lite.runtime.pool_numbers import arena_within, overhead

COUNT = BRANCHES.count
MOMENTUM = {"opt": lambda: optimizer.SGD(0.1, momentum=0.9)}
pytestmark = pytest.mark.filterwarnings("ignore:compile precision='float16'")

#: (net, its options, shares of the way from the least budget to the free plan).
ROWS: dict[str, tuple[Subject, dict[str, Any], tuple[float, ...]]] = {
    "branches": (BRANCHES, {}, (0.0, 0.5, 0.9)),
    "branches, onednn": (BRANCHES, {"kernels": "onednn"}, (0.0, 0.6)),
    **{name: (LAYERS[name], {}, (0.0, 0.5)) for name in ("attention", "recurrent", "grouped")},
    "half": (LAYERS["half"], {}, (0.0,)),
    "pieces": (HEAVY_STATE, {"micro_batches": 2, "clip_global_norm": 0.1}, (0.0,)),
    "pieces, momentum": (HEAVY_STATE, {"micro_batches": 2, "clip_global_norm": 0.1, **MOMENTUM}, (0.0,)),
    "kept, in groups": (HEAVY_STATE, {"accumulate": 2, "keep": ["scores"]}, (0.0,)),
    "groups with sums": (HEAVY_STATE, {"accumulate": 3, "clip_global_norm": 1.0}, (0.0,)),
    "groups with sums, momentum": (HEAVY_STATE, {"accumulate": 3, "clip_global_norm": 1.0, **MOMENTUM}, (0.0,)),
    "state in 8 bits": (HEAVY_STATE, {"state_dtype": "int8"}, (0.0,)),
}


@pytest.mark.parametrize(("subject", "options", "shares"), ROWS.values(), ids=ROWS)
def test_a_budget_is_kept_to_the_byte_by_all_steps_and_gives_equal_bits(subject, options, shares):
    wanted = subject.trained(subject.make(**options))
    least, free = subject.least(**options), subject.free(**options)
    assert least < free or subject is HEAVY_STATE
    for share in shares:
        budget = int(least + share * (free - least))
        net = subject.make(memory_budget=budget, **options)
        assert subject.trained(net, budget) == wanted
        net.memory_plan.check()
        if subject is not HEAVY_STATE:
            assert net.plan_batch(subject.count).recomputed > 0


@pytest.mark.parametrize("kernels", ["numpy", "onednn"])
def test_every_budget_of_the_curve_is_kept_and_gives_equal_bits(kernels):
    """Less memory never takes less time."""
    curve, wanted = curve_of(kernels), None
    assert len(curve) >= 3
    assert curve[-1][0] < 0.75 * curve[0][0]
    assert all(a[0] > b[0] and a[1] < b[1] for a, b in pairwise(curve))
    assert curve[0] == (branches(kernels).plan_batch(COUNT).total_bytes, 0.0)
    for nbytes, slowdown in (*curve[:-1:3], curve[-1]):
        net = branches(kernels, memory_budget=nbytes)
        seen = [BRANCHES.step(net), state_of(net)]
        assert seen == (wanted := wanted or seen)
        plan = net.memory_plan
        assert plan.total_bytes <= nbytes and net.device.pool.total <= nbytes
        assert plan.estimated_slowdown <= slowdown + 1e-12
        assert plan.repeats_are_paid_for or (plan.recomputed > 0) >= (slowdown > 0)
        assert plan.repeats_are_paid_for <= (slowdown == 0)


def test_a_plan_tells_what_is_repeated_and_what_it_costs():
    free = branches().plan_batch(COUNT)
    plan = branches().plan_batch(COUNT, memory_budget=int(0.75 * free.total_bytes))
    again = [i for i in plan.placed.planned.instructions if i.repeats is not None]
    assert (free.recomputed, free.extra_flops, free.estimated_slowdown) == (0, 0, 0.0)
    assert plan.recomputed == len(again) > 0
    assert plan.estimated_slowdown > 0
    assert f"{len(again)} operations" in plan.summary()
    assert "repeated" not in free.summary()
    assert plan.gains["repeat"] > 0
    assert any("again" in row.name for row in plan.rows)


def test_running_statistics_move_once_and_masks_are_the_same():
    """Within a budget so small that normalisations and dropouts are repeated."""
    plan = branches("onednn").plan_batch(COUNT, memory_budget=curve_of("onednn")[-1][0])
    kernels = {i.kernel for i in plan.placed.planned.instructions if i.repeats is not None}
    assert "batch_normalize" in kernels
    assert not kernels & {"batch_norm", "draw_key"}


def within_any_budget(seed: int, length: int) -> None:
    def run(budget: int | None) -> list[Any]:
        net = compiled(random_net(seed, length), seed, graph=True, memory_budget=budget)
        losses = [bits(net.train_one_batch(*random_batch(net, number, 4))[0]) for number in range(2)]
        return [*losses, state_of(net)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "LEAST_GAP", 2)
        curve = compiled(random_net(seed, length), seed, graph=True).budget_curve(4)
        wanted = run(None)
        for nbytes, _ in {*curve[1:4:2], *curve[-1:]}:
            assert run(nbytes) == wanted


def test_random_nets_train_to_equal_bits_within_any_budget():
    for number in range(4):
        within_any_budget(seed=7919 * number + 3, length=2 + 2 * number)


@pytest.mark.nightly
@settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(2, 8))
def test_many_random_nets_train_to_equal_bits_within_any_budget(seed, length):
    within_any_budget(seed, length)


def test_text_is_a_budget_and_a_copy_and_another_device_keep_it():
    nbytes = curve_of("numpy")[2][0]
    net = branches(memory_budget=f"{nbytes / 1024} KiB")
    net.to_device(device.new_cpu(kernels="numpy"))
    BRANCHES.step(net)
    assert net.device.pool.total <= nbytes
    assert net.memory_plan.recomputed


def test_what_a_budget_does_not_go_with(monkeypatch):
    refused(lambda: branches(memory_budget="1 GiB", graph=False), ValueError, "memory_budget", "graph=True")
    net = branches(memory_budget=curve_of("numpy")[2][0])
    BRANCHES.step(net)
    refused(lambda: net.training_graph.run("dependencies"), PlanError, "order", "memory_budget")
    monkeypatch.setenv("SINGA_LITE_PLAN", "off")
    refused(lambda: net.plan_batch(COUNT), PlanError, "memory_budget", "SINGA_LITE_PLAN")


@given(st.integers(0, 10**8), st.integers(0, 4 * 10**6), st.lists(st.integers(0, 3 * 10**6), max_size=9))
def test_the_arena_within_a_budget_is_the_largest_that_fits(budget, more, held):
    """Also where one segment of the pool is no longer enough, which it counts another one for."""
    arena = arena_within(budget, held, 64)
    assert arena == 0 or sum(held) + arena + overhead(held, arena, 64) <= budget
    if arena > 2**21:  # below, the pool's own bytes rise and fall with the arena
        larger = arena + 64 - arena % 64 + 64
        assert sum(held) + larger + overhead(held, larger, 64) > budget
    assert arena_within(budget + more, held, 64) >= arena


def images_to_images(**compiling: Any) -> FeedForwardNet:
    """A net whose predictions take as much as a few of its activations, and whose batch counts."""
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(kernels="numpy"), seed=1)
    end = net.add(layers.Conv2D("conv0", 4, 3, input_sample_shape=(8, 16, 20)))
    for number in range(1, 4):
        act = net.add(layers.Activation(f"act{number}", "tanh"), end)
        end = net.add(layers.Conv2D(f"conv{number}", 16 if number == 3 else 4, 3), act)
    net.compile(optimizer.SGD(lr=0.01), **compiling)
    return net


def test_steps_that_do_not_fit_beside_each_other_follow_each_other():
    """The first one's arena, a longer batch behind it, and what predictions give are more than the budget together."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((48, 8, 16, 20), dtype="f"), rng.standard_normal((48, 16, 16, 20), dtype="f")

    def seen(net: FeedForwardNet, budget: int) -> Any:
        found: list[Any] = []
        for count in (32, 48, 32):
            found += [bits(net.train_one_batch(x[:count], y[:count])[0]), bits(net.predict_one_batch(x))]
            found += [bits(net.evaluate_one_batch(x[:count], y[:count])[0])]
            assert net.memory_plan.total_bytes > 0
            assert max(net.device.pool.high_water, net.device.pool.total) <= budget
        return [*found, state_of(net)]

    least = images_to_images().budget_curve(48)[-1][0]
    wanted = seen(images_to_images(), 10**9)
    net = images_to_images(memory_budget=least)
    assert seen(net, least) == wanted
    assert len(net.recorded_forms) < 5, "or all of them fit, and nothing was shown"


def test_a_budget_of_the_free_total_gives_the_free_plan():
    net = compiled(random_net(6, 9), 6, graph=True)
    for count in (5, 32):
        free = net.plan_batch(count)
        within = net.plan_batch(count, memory_budget=free.total_bytes)
        assert (within.recomputed, within.estimated_slowdown) == (free.recomputed, free.estimated_slowdown)


def test_a_budget_of_the_free_total_takes_no_more_time_however_it_is_found(monkeypatch):
    """Also where the search goes by itself, as it does where repeats that fusion pays for lower the free plan much."""
    monkeypatch.setattr(lower, "LEAST_MOVED", 0.0)
    free = branches("onednn").plan_batch(COUNT)
    monkeypatch.setattr(lower.Lowering, "_keeps", lambda *_: False)
    within = branches("onednn").plan_batch(COUNT, memory_budget=free.total_bytes)
    assert free.recomputed > 0
    assert within.estimated_slowdown <= 0 == free.estimated_slowdown


def test_repeats_beside_calls_that_were_left_out_have_numbers_of_their_own():
    """The norm of a group's first batch is asked for at its last one alone: the last calls of the first's record go."""
    ends = []
    for share in (None, 0.8):
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=1)
        net.add(layers.Dense("first", 64, input_sample_shape=(64,)))
        for number in range(6):
            net.add(layers.Activation(f"tanh{number}", "tanh"))
            net.add(layers.Dense(f"dense{number}", 64))
        options = {"accumulate": 2, "clip_global_norm": 1.0, "loss_scale": 8.0}
        net.compile(optimizer.SGD(0.1, momentum=0.9), **options)
        if share is not None:
            budget = int(net.plan_batch(512).total_bytes * share)
            net.compile(optimizer.SGD(0.1, momentum=0.9), memory_budget=budget, **options)
        x = np.random.default_rng(0).standard_normal((512, 64)).astype("f")
        for _ in range(4):
            net.train_one_batch(x, np.arange(512) % 64)
        assert (net.memory_plan.recomputed > 0) == (share is not None)
        ends.append(state_of(net))
    assert ends[0] == ends[1]
