"""What is answered about budgets: the largest batch, the curve, errors with remedies, a device's limit, checkpoints."""

from __future__ import annotations

import copy
import gc
import re
from collections.abc import Callable
from itertools import count
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from budget_nets import CHAIN, HEAVY_STATE, chain, on_cpu
from misuse import refused
from nets import state_of
from singa_lite import FeedForwardNet, OutOfMemoryError, Sequential, device, layers, loss, optimizer, tensor
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.recompute.schedule import Schedule
from singa_lite.graph.budget_error import BudgetError
from singa_lite.snapshots import Checkpoint

COUNT = CHAIN.count
X, Y = CHAIN.data(3 * COUNT + 4, 31)


@pytest.fixture(scope="module")
def points() -> list[tuple[int, float]]:
    return chain().budget_curve(COUNT)


def trained(net: FeedForwardNet, steps: int = 2) -> list[Any]:
    return [*(CHAIN.step(net) for _ in range(steps)), state_of(net)]


# --- the largest batch, and the curve -----------------------------------------------------------------------


def test_more_time_gives_a_larger_batch_that_keeps_to_both(points):
    nbytes = points[0][0]
    net = chain()
    sizes = {share: net.largest_batch(nbytes, share) for share in (0.0, 0.2)}
    assert sizes[0.0] == net.largest_batch(nbytes) >= COUNT
    assert sizes[0.2] > 1.2 * sizes[0.0]
    plan = net.plan_batch(sizes[0.2], memory_budget=nbytes)
    assert plan.total_bytes <= nbytes and 0 < plan.estimated_slowdown <= 0.2
    net.compile(net.optimizer, memory_budget=nbytes)
    net.train_one_batch(*CHAIN.data(sizes[0.2]))
    assert net.device.pool.used <= nbytes
    bounded = chain(memory_budget=points[2][0])
    assert bounded.largest_batch("1 GiB") == chain().largest_batch(points[2][0]) < COUNT
    assert bounded.largest_batch(1, 0.5) == 0


@pytest.mark.parametrize("share", [-0.1, nan, float("inf"), "much", True, None, [0.2]])
def test_what_is_no_share_of_time(share):
    refused(lambda: chain().largest_batch("1 MiB", share), (TypeError, ValueError), "largest_batch extra_time")


def test_any_time_will_do():
    """Through two sizes goes no line that reaches so far."""
    hidden = (layers.Dense(width, activation="tanh") for width in (9, 8, 9))
    small = Sequential([layers.Dense(8, input_shape=(7,)), *hidden, layers.Dense(3)])
    small.compile("sgd", "mse")
    found = small.largest_batch("16 KiB", 1e308)
    assert found == small.largest_batch("16 KiB", 1000.0) > small.largest_batch("16 KiB") > 0


# --- budgets that are none, or too small --------------------------------------------------------------------


@pytest.mark.parametrize("given", ["12 apples", -1, 0, True, 1.5, nan, "0 MiB", [1]])
def test_what_is_no_budget(given):
    net = chain()
    kept = net.optimizer, net.loss
    shown = str(given) if given is nan else repr(given)
    errors = (TypeError, ValueError)
    refused(lambda: net.compile(optimizer.SGD(), memory_budget=given), errors, "compile memory_budget", shown)
    refused(lambda: net.plan_batch(3, memory_budget=given), errors, "plan_batch memory_budget", shown)
    assert (net.optimizer, net.loss) == kept


def test_a_budget_too_small_says_what_would_help_and_changes_nothing(points):
    """Adam keeps two tensors of state a parameter, SGD with momentum one."""
    least = points[-1][0]
    net = chain(memory_budget=int(0.8 * least))
    before, used = state_of(net), net.device.pool.used
    words = ("memory_budget", "arena", "parameter", "whose peak holds", "SGD without momentum keeps")
    text = refused(lambda: CHAIN.step(net), BudgetError, *words)
    gc.collect()  # an error and the frames that it saw are a cycle
    assert (state_of(net), net.optimizer.step) == (before, 0)
    assert net.device.pool.used <= used + 64, "the learning rate lies there"
    found = re.search(r"a batch of (\d+) in the place of 13.* takes ([\d,]+) bytes", text)
    assert found is not None, text
    net.plan_batch(int(found[1]))
    assert int(found[2].replace(",", "")) <= 0.8 * least
    refused(lambda: net.plan_batch(13), PlanError, "least found")  # some size in between may fit by another search
    state = sum(value.nbytes for value in net.param_values())
    for means in ("SGD with momentum keeps", r"state_dtype='bfloat16' .*? keeps"):  # half of both of Adam's tensors
        saved = re.search(rf"{means} ([\d,]+) bytes less", text)
        assert saved is not None and int(saved[1].replace(",", "")) == state
    plain = chain(opt=optimizer.SGD(lr=0.1), memory_budget=least // 2)
    assert "SGD" not in refused(lambda: plain.plan_batch(COUNT), BudgetError)
    found = re.search(r"least found is ([\d,]+)", text)
    assert found is not None
    net.compile(net.optimizer, memory_budget=int(found[1].replace(",", "")))
    assert trained(net) == trained(chain())
    text = refused(lambda: chain(memory_budget=5000).plan_batch(COUNT), BudgetError, "parameters alone")
    assert "a batch of" not in text


@pytest.mark.parametrize("at", [1, 60])
@pytest.mark.parametrize("what", ["train", "plan", "curve", "largest", "remedies"])
def test_an_interrupt_during_a_search_leaves_the_net_as_it_was(points, what, at, monkeypatch):
    net = chain(memory_budget=points[3][0])
    asked: dict[str, Callable[[], object]] = {
        "train": lambda: CHAIN.step(net),
        "plan": lambda: net.plan_batch(COUNT),
        "curve": lambda: net.budget_curve(COUNT),
        "largest": lambda: net.largest_batch(points[3][0], 0.2),
        "remedies": lambda: net.plan_batch(COUNT, memory_budget=points[-1][0] // 2),
    }
    before, used, trials, change = state_of(net), net.device.pool.used, count(1), Schedule.changed

    def interrupted(schedule: Schedule, *given: Any) -> Any:
        if next(trials) == at:
            raise KeyboardInterrupt
        return change(schedule, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Schedule, "changed", interrupted)
        with pytest.raises(KeyboardInterrupt):
            asked[what]()
    gc.collect()
    assert (state_of(net), net.optimizer.step, net.recorded_forms) == (before, 0, [])
    fed = 0 if what != "train" else X[:COUNT].nbytes + 2**10
    assert net.device.pool.used <= used + 64 + fed, "the learning rate lies there, and a batch has its place"
    assert trained(net) == trained(chain())
    assert net.memory_plan.recomputed


# --- a device's limit ---------------------------------------------------------------------------------------


def test_a_limited_device_is_planned_within_its_limit(points):
    limit = points[5][0]
    net = chain(limit)
    assert trained(net) == trained(chain())
    assert net.memory_plan.recomputed and net.device.pool.total <= limit
    assert net.plan_batch(COUNT).recomputed
    assert not chain(2 * points[0][0]).plan_batch(COUNT).recomputed


def test_what_else_lives_in_the_limited_pool_counts(points):
    limit = points[2][0]
    net = chain(limit)
    alone = net.plan_batch(COUNT)
    other = tensor.from_numpy(np.zeros(points[2][0] - points[5][0], np.uint8), net.device)
    beside = net.plan_batch(COUNT)
    assert beside.arena_bytes < alone.arena_bytes and beside.recomputed > alone.recomputed
    assert trained(net) == trained(chain())
    assert net.device.pool.total <= limit and other.nbytes


def test_a_limit_in_which_nothing_is_found_is_an_error_of_both_kinds(points):
    net = chain(points[-1][0] - 2**15)
    before = state_of(net)
    text = refused(lambda: CHAIN.step(net), OutOfMemoryError, net.device.name, "limit")
    assert "memory_budget" not in text
    refused(lambda: net.plan_batch(COUNT), BudgetError, "a batch of")
    assert state_of(net) == before


def test_a_budget_above_the_limit_names_both(points):
    limit = points[0][0]
    words = ("memory_budget", f"{limit} bytes", f"{limit + 1} bytes")
    refused(lambda: chain(limit, memory_budget=limit + 1), ValueError, *words)
    net = chain(memory_budget=limit + 1)
    refused(lambda: net.to_device(device.new_cpu(limit)), ValueError, "to_device", *words)
    CHAIN.step(net)


def test_a_plan_that_is_off_runs_under_a_limit_as_before(points, monkeypatch):
    monkeypatch.setenv("SINGA_LITE_PLAN", "off")
    refused(lambda: trained(chain(points[0][0])), OutOfMemoryError, "limit")
    assert trained(chain(2**24))


# --- everywhere ---------------------------------------------------------------------------------------------


def fitted(net: FeedForwardNet, epochs: int = 2, **options: Any) -> dict[str, list[float]]:
    validation = X[:19], Y[:19]
    history = net.fit(X, Y, COUNT, epochs, validation_data=validation, verbose=False, **options)
    return {name: values for name, values in history.history.items() if name.endswith(("loss", "metric", "accuracy"))}


def test_evaluations_before_there_is_any_state_and_copies_keep_to_one_budget(points):
    budget = points[-2][0]
    net, free = chain(memory_budget=budget), chain()
    for one in (free, net):
        one.evaluate(X, Y, 7)
    assert fitted(net) == fitted(free)
    assert state_of(net) == state_of(free)
    assert net.device.pool.used <= budget
    copied = copy.deepcopy(net)
    CHAIN.step(copied)
    assert copied.memory_plan.recomputed


def test_training_goes_on_under_another_budget_with_equal_bits(points, tmp_path: Path):
    """From a checkpoint, which knows no budget."""
    whole = chain()
    fitted(whole, 2)
    for name, budget in (("budget", points[3][0]), ("free", None)):
        net = chain(memory_budget=budget)
        fitted(net, 1, callbacks=Checkpoint(tmp_path / name))
        net.save(tmp_path / f"{name}.h5")
    assert (tmp_path / "budget.h5").read_bytes() == (tmp_path / "free.h5").read_bytes()
    for name, budget in (("free", points[-1][0]), ("budget", None)):
        net = chain(memory_budget=budget)
        fitted(net, 2, callbacks=Checkpoint(tmp_path / name), resume="auto")
        assert state_of(net) == state_of(whole)


def test_the_least_of_the_curve_is_a_budget_that_will_do_where_evaluation_needs_most():
    """Training goes by pieces of the batch, evaluation does not."""

    def net() -> FeedForwardNet:
        made = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(kernels="numpy"), seed=1)
        made.add(layers.Conv2D("narrow", 2, 3, input_sample_shape=(5, 6, 7)))
        made.add(layers.Activation("act"))
        made.add(layers.Conv2D("wide", 9, 3, use_bias=False))
        made.compile(optimizer.SGD(momentum=0.9), micro_batches=4)
        return made

    for nbytes, _ in net().budget_curve(32):
        assert net().plan_batch(32, memory_budget=nbytes).total_bytes <= nbytes
    with pytest.raises(BudgetError) as caught:
        net().plan_batch(32, memory_budget=5000)
    least = caught.value.total_bytes
    assert net().plan_batch(32, memory_budget=least).total_bytes <= least


@pytest.mark.parametrize("given", [{}, {"keep": ["a"]}], ids=["loss alone", "kept"])
def test_a_budget_of_the_very_total_is_kept_by_plans_before_and_behind_steps(given):
    """What the recorded step of the same form holds is what the next one holds, and other steps make room for it."""

    def net(**bounded: object) -> FeedForwardNet:
        made = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(), seed=1)
        made.add(layers.Dense("a", 16, input_sample_shape=(8,)))
        made.add(layers.Activation("t", "tanh"))
        made.add(layers.Dense("b", 5))
        made.compile(optimizer.SGD(0.1, momentum=0.9), **given, **bounded)
        return made

    total = net().plan_batch(32).total_bytes
    bounded = net(memory_budget=total)
    x, y = np.ones((32, 8), np.float32), np.ones((32, 5), np.float32)
    wanted = bounded.plan_batch(32)
    for go_on in (bounded.train_one_batch, bounded.evaluate_one_batch, bounded.train_one_batch):
        go_on(x, y)
        found = bounded.plan_batch(32)
        assert (found.total_bytes, found.arena_bytes) == (wanted.total_bytes, wanted.arena_bytes)
    bounded.evaluate_one_batch(x[:17], y[:17])
    assert bounded.plan_batch(32).total_bytes <= total
    with pytest.raises(PlanError, match=f"wanted at most {total:,} bytes"):
        bounded.plan_batch(64)


# --- what lies beside a step --------------------------------------------------------------------------------


def test_the_least_at_the_first_batch_of_a_group_does_for_the_group():
    """The last batch of a group also holds the optimizer's state, so that its step needs more than the first one."""
    net = HEAVY_STATE.make(memory_budget=1, accumulate=3)
    x, y = HEAVY_STATE.data()
    with pytest.raises(BudgetError) as found:
        net.train_one_batch(x, y)
    net.compile(net.optimizer, memory_budget=found.value.total_bytes, accumulate=3)
    for _ in range(6):
        net.train_one_batch(x, y)
    assert net.optimizer.step == 2 and net.device.pool.used <= found.value.total_bytes


def test_the_least_for_a_number_of_samples_does_for_all_of_fit():
    """Kernels may ask for more scratch with the shorter last batch: oneDNN's normalisations do with 14 of 16."""

    def normalised(**compiling: Any) -> FeedForwardNet:
        made = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on_cpu("onednn"), seed=3)
        made.add(layers.Conv2D("first", 8, 3, input_sample_shape=(3, 8, 8)))
        for number in range(2):
            made.add(layers.BatchNormalization(f"norm{number}"))
            made.add(layers.Activation(f"act{number}"))
        made.add(layers.MaxPooling2D("pool", 2, 2))
        made.add(layers.Flatten("flat"))
        made.add(layers.Dense("scores", 5))
        made.compile(optimizer.SGD(0.1, momentum=0.9), **compiling)
        return made

    with pytest.raises(BudgetError) as caught:
        normalised().plan_batch(16, memory_budget=1, samples=30)
    least = caught.value.total_bytes
    assert normalised().plan_batch(16, memory_budget=least, samples=30).total_bytes <= least
    made = normalised(memory_budget=least)
    x, y = HEAVY_STATE.data(30)
    made.fit(x[:, :, :8, :8].copy(), y, batch_size=16, epochs=2, verbose=False)
    assert made.device.pool.high_water <= least


@pytest.mark.parametrize("groups", [{}, {"accumulate": 2}], ids=["each", "groups"])
@pytest.mark.parametrize("last", [5, 6])
def test_a_known_last_batch_that_needs_more_than_a_whole_one_counts(last, groups):
    """Scratch of updates, the same for any batch, is most of what few samples need: they go in another order."""

    def tagger(**compiling: Any) -> FeedForwardNet:
        made = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), seed=3)
        made.add(layers.Embedding("table", 30, 8, mask_zero=True, input_sample_shape=(5,)))
        made.add(layers.LSTM("lstm", 8))
        made.add(layers.Dense("scores", 5))
        made.compile(optimizer.Adam(3e-3), clip_global_norm=0.1, freeze=["table"], **groups, **compiling)
        return made

    def fitted_within(nbytes: int, **compiling: Any) -> None:
        made = tagger(**compiling)
        made.fit(x, y, batch_size=8, epochs=2, verbose=False)
        assert made.device.pool.high_water <= nbytes

    samples = 8 + last
    x, y = np.arange(samples * 5).reshape(samples, 5) % 30, np.arange(samples) % 5
    plan = tagger().plan_batch(8, samples=samples)
    assert plan.arena_bytes < plan.beside[f"last batch of {last}"] == tagger().plan_batch(last).arena_bytes
    total = plan.total_bytes
    fitted_within(total)
    assert tagger(memory_budget=total).plan_batch(8, samples=samples).total_bytes <= total
    fitted_within(total, memory_budget=total)
