"""A memory budget: all that training takes stays within it, to equal bits, or one error says what the least is."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from misuse import refused
from nets import bits, state_of
from random_graphs import compiled, random_batch, random_net
from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer
from singa_lite.memory.problem import PlanError
from singa_lite.memory.total import arena_within, overhead
from singa_lite.passes import lower, repeats

SEEDS = st.integers(0, 2**32 - 1)
many = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
SETS = ("numpy", "onednn")
#: Of a batch.
COUNT = 29


def convolutional(kernels: str = "numpy", **compiling: Any) -> FeedForwardNet:
    """Five convolutions with normalisation, ReLU and dropout, a sum over two branches, and a dense layer."""
    try:
        on = device.new_cpu(kernels=kernels)
    except device.DeviceError as error:  # says what brings the library
        pytest.skip(str(error))
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device=on, seed=4)
    end = net.add(layers.Conv2D("conv0", 8, 3, input_sample_shape=(3, 20, 24)))
    for number in range(1, 6):
        end = net.add(layers.BatchNormalization(f"norm{number}"), end)
        relu = net.add(layers.Activation(f"act{number}"), end)
        end = net.add(layers.Conv2D(f"conv{number}", 8, 3), relu)
        if number == 2:
            end = net.add(layers.Merge("sum"), [end, net.add(layers.Dropout("drop", 0.3), relu)])
    net.add(layers.Flatten("flat"), end)
    net.add(layers.Dense("scores", 5))
    net.compile(optimizer.SGD(lr=0.05, momentum=0.9), **compiling)
    return net


def data(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((count, 3, 20, 24), dtype=np.float32), rng.integers(0, 5, count)


@cache
def curve_of(kernels: str) -> list[tuple[int, float]]:
    return convolutional(kernels).budget_curve(COUNT)


def trained(net: FeedForwardNet, count: int = COUNT) -> list[Any]:
    seen: list[Any] = []
    for step in range(3):
        x, y = data(count, step)
        value, hits = net.train_one_batch(x, y)
        seen += [bits(value), bits(hits), bits(net.evaluate_one_batch(x, y)[0]), bits(net.predict_one_batch(x))]
    return [*seen, state_of(net)]


@pytest.mark.parametrize("kernels", SETS)
def test_every_budget_of_the_curve_is_kept_and_gives_equal_bits(kernels):
    wanted = trained(convolutional(kernels))
    curve = curve_of(kernels)
    assert len(curve) >= 3
    assert curve[-1][0] < 0.75 * curve[0][0]
    for nbytes, slowdown in (*curve[:-1:3], curve[-1]):
        net = convolutional(kernels, memory_budget=nbytes)
        assert trained(net) == wanted
        plan = net.memory_plan
        plan.check()
        assert net.device.pool.total <= nbytes
        assert plan.estimated_slowdown <= slowdown + 1e-12
        assert plan.repeats_are_paid_for or (plan.recomputed > 0) >= (slowdown > 0)
        assert plan.repeats_are_paid_for <= (slowdown == 0)


def test_less_memory_never_takes_less_time_by_the_curve():
    curve = curve_of("numpy")
    assert curve == sorted(curve, reverse=True)
    assert [slowdown for _, slowdown in curve] == sorted(slowdown for _, slowdown in curve)
    assert curve[0] == (convolutional().plan_batch(COUNT).total_bytes, 0.0)


def test_a_plan_tells_what_is_repeated_and_what_it_costs():
    net = convolutional()
    free = net.plan_batch(COUNT)
    plan = net.plan_batch(COUNT, memory_budget=int(0.75 * free.total_bytes))
    again = [i for i in plan.placed.planned.instructions if i.repeats is not None]
    assert plan.total_bytes <= 0.75 * free.total_bytes
    assert (free.recomputed, free.extra_flops, free.estimated_slowdown) == (0, 0, 0.0)
    assert plan.recomputed == len(again) > 0
    assert plan.estimated_slowdown > 0
    assert f"repeated   {len(again)} operations" in plan.summary()
    assert "repeated" not in free.summary()
    assert plan.gains["repeat"] > 0
    assert any("again" in row.name for row in plan.rows)


def test_running_statistics_move_once_and_masks_are_the_same():
    """Within a budget so small that normalisations and dropouts are repeated."""
    least = curve_of("onednn")[-1][0]
    net = convolutional("onednn", memory_budget=least)
    trained(net)
    kernels = {i.kernel for i in net.memory_plan.placed.planned.instructions if i.repeats is not None}
    assert kernels & {"batch_normalize", "batch_normalize_activation"}
    assert not kernels & {"batch_norm", "batch_norm_activation", "draw_key"}


@settings(many, max_examples=12)
@given(SEEDS, st.integers(2, 8))
def test_random_nets_train_to_equal_bits_within_any_budget(seed, length):
    def run(budget: int | None) -> list[Any]:
        net = compiled(random_net(seed, length), seed, graph=True, memory_budget=budget)
        seen = []
        for number in range(2):
            value, _ = net.train_one_batch(*random_batch(net, number, 4))
            seen += [bits(value), state_of(net)]
        return seen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "LEAST_GAP", 2)
        curve = compiled(random_net(seed, length), seed, graph=True).budget_curve(4)
        wanted = run(None)
        for nbytes, _ in {*curve[1:4:2], *curve[-1:]}:
            assert run(nbytes) == wanted


def test_fit_with_validation_and_a_shorter_batch_stays_within():
    def fitted(**compiling: Any) -> tuple[FeedForwardNet, Any]:
        net = convolutional(**compiling)
        (x, y), validation = data(2 * COUNT + 7), data(COUNT + 4, 1)
        history = net.fit(x, y, batch_size=COUNT, epochs=2, validation_data=validation, verbose=False)
        return net, [history.history["loss"], history.history["val_loss"], state_of(net)]

    free, wanted = fitted()
    budget = int(0.8 * free.plan_batch(COUNT).total_bytes)
    net, seen = fitted(memory_budget=budget)
    assert seen == wanted
    assert net.device.pool.total <= budget


def test_text_is_a_budget_and_a_copy_and_another_device_keep_it():
    nbytes = curve_of("numpy")[2][0]
    net = convolutional(memory_budget=f"{nbytes / 1024} KiB")
    net.to_device(device.new_cpu(kernels="numpy"))
    trained(net)
    assert net.device.pool.total <= nbytes
    assert net.memory_plan.recomputed


def test_a_budget_too_small_is_refused_before_anything_changes_and_names_the_least():
    net = convolutional(memory_budget=300_000)
    before = {name: bits(value) for name, value in zip(net.param_names(), net.param_values(), strict=True)}
    words = ("memory_budget", "300,000", "least found", "arena", "parameter")
    text = refused(lambda: net.train_one_batch(*data(COUNT)), PlanError, *words)
    assert {name: bits(value) for name, value in zip(net.param_names(), net.param_values(), strict=True)} == before
    assert net.optimizer.step == 0
    found = re.search(r"least found is ([\d,]+)", text)
    assert found is not None
    least = int(found[1].replace(",", ""))
    net.compile(net.optimizer, memory_budget=least)
    assert trained(net) == trained(convolutional())


@pytest.mark.parametrize(
    ("compiling", "error", "words"),
    [
        ({"memory_budget": "much"}, ValueError, ("memory_budget", "'much'")),
        ({"memory_budget": -1}, ValueError, ("memory_budget", "-1")),
        ({"memory_budget": True}, TypeError, ("memory_budget", "True")),
        ({"memory_budget": [1]}, TypeError, ("memory_budget", "[1]")),
        ({"memory_budget": "1 GiB", "graph": False}, ValueError, ("memory_budget", "graph=True")),
    ],
    ids=["text", "negative", "flag", "list", "eager"],
)
def test_what_is_no_budget(compiling, error, words):
    refused(lambda: convolutional(**compiling), error, *words)


def test_what_a_budget_does_not_go_with(monkeypatch):
    net = convolutional(memory_budget=curve_of("numpy")[2][0])
    net.train_one_batch(*data(COUNT))
    refused(lambda: net.training_graph.run("dependencies"), PlanError, "order", "memory_budget")
    monkeypatch.setenv("SINGA_LITE_PLAN", "off")
    refused(lambda: net.plan_batch(COUNT), PlanError, "memory_budget", "SINGA_LITE_PLAN")


@given(st.integers(0, 10**8), st.lists(st.integers(0, 3 * 10**6), max_size=9))
def test_the_arena_within_a_budget_is_the_largest_that_fits(budget, held):
    arena = arena_within(budget, held, 64)
    assert arena == 0 or sum(held) + arena + overhead(held, arena, 64) <= budget
    if arena > 2**21:  # below, the pool's own bytes rise and fall with the arena
        larger = arena + 64 - arena % 64 + 64
        assert sum(held) + larger + overhead(held, larger, 64) > budget


@given(st.integers(0, 5 * 10**6), st.integers(0, 4 * 10**6), st.lists(st.integers(0, 10**6), max_size=9))
def test_more_bytes_leave_no_smaller_arena(budget, more, held):
    """Also where one segment of the pool is no longer enough, which it counts another one for."""
    assert arena_within(budget + more, held, 64) >= arena_within(budget, held, 64)


def images_to_images(**compiling: Any) -> FeedForwardNet:
    """A net whose predictions take as much as a few of its activations, and whose batch counts."""
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(kernels="numpy"), seed=1)
    end = net.add(layers.Conv2D("conv0", 4, 3, input_sample_shape=(8, 32, 40)))
    for number in range(1, 4):
        act = net.add(layers.Activation(f"act{number}", "tanh"), end)
        end = net.add(layers.Conv2D(f"conv{number}", 16 if number == 3 else 4, 3), act)
    net.compile(optimizer.SGD(lr=0.01), **compiling)
    return net


def test_steps_that_do_not_fit_beside_each_other_follow_each_other():
    """The first one's arena, a longer batch behind it, and what predictions give are more than the budget together."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((48, 8, 32, 40), dtype="f"), rng.standard_normal((48, 16, 32, 40), dtype="f")

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
    free = convolutional("onednn").plan_batch(COUNT)
    monkeypatch.setattr(lower.Lowering, "_keeps", lambda *_: False)
    within = convolutional("onednn").plan_batch(COUNT, memory_budget=free.total_bytes)
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
        ends.append([np.array(value) for value in net.param_values()])
    assert all(map(np.array_equal, *ends))
