"""clip_global_norm=, accumulate= (test_update_rules.py has them beside PyTorch), micro_batches=: a batch in pieces."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, permutations
from math import inf, isnan, nan
from typing import Any

import numpy as np
import pytest

from budget_nets import on_cpu
from nets import bits, state_of
from singa_lite import FeedForwardNet, GraphError, autograd, device, layers, loss, optimizer, tensor
from singa_lite.compiler.recompute.recompute_for_clipping import STEP_TWICE
from singa_lite.errors import SnapshotError
from singa_lite.layer import Layer
from singa_lite.regularizer import L2Regularizer

LIMIT = 0.2


def net_of(opt: optimizer.Optimizer, kernels: str = "numpy", drop: float = 0.0, **compiling: Any) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on_cpu(kernels), seed=2)
    net.add(layers.Dense("a", 7, input_sample_shape=(5,)))
    net.add(layers.Activation("t", "tanh"))
    if drop:
        net.add(layers.Dropout("drop", drop))
    net.add(layers.Dense("b", 3))
    net.compile(opt, **compiling)
    return net


def batch(number: int, count: int = 9) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(number)
    return rng.standard_normal((count, 5), dtype=np.float32), rng.integers(0, 3, count)


def trained(net: FeedForwardNet, batches: int, first: int = 0) -> list[bytes]:
    """Losses of so many batches, of 9 and 11 samples in turns, and the net's state behind them."""
    losses = [bits(net.train_one_batch(*batch(number, 9 + 2 * (number % 2)))[0]) for number in range(first, batches)]
    return [*losses, *(value for _, value in sorted(state_of(net).items()))]


def test_parameters_stay_until_the_group_is_whole_and_schedules_count_updates():
    asked: list[int] = []

    def rate(step: int) -> float:
        asked.append(step)
        return 0.1 / (1 + step)

    net = net_of(optimizer.Adam(rate), accumulate=3)
    moved = [bits(net.parameters()["a/weight"])]
    for number in range(7):
        net.train_one_batch(*batch(number))
        moved.append(bits(net.parameters()["a/weight"]))
    assert [before != after for before, after in pairwise(moved)] == [False, False, True, False, False, True, False]
    assert net.optimizer.step == 2 and net.accumulate == 3 and max(asked) == 1


def test_only_where_the_momentum_cannot_take_the_sum_in_there_is_a_tensor_for_it():
    """Their bytes are state of the plan, and told beforehand."""
    parameters = 4 * (5 * 7 + 7 + 7 * 3 + 3)

    def held(make: Callable[[], optimizer.Optimizer], **compiling: Any) -> int:
        net = net_of(make(), **compiling)
        beforehand = net.plan_batch(9).by_role["state"]
        for number in range(net.accumulate):
            net.train_one_batch(*batch(number))
        assert net.memory_plan.by_role["state"] == beforehand
        assert net.memory_plan.gathered_bytes == sum(t.nbytes for t in net.optimizer.gathering.sums.values())
        return beforehand

    def momentum() -> optimizer.Optimizer:
        return optimizer.SGD(0.3, 0.9, weight_decay=0.1)

    assert held(momentum, accumulate=2) == held(momentum)
    for make in (optimizer.SGD, lambda: optimizer.SGD(0.3, 0.9, 0.2), optimizer.Nesterov, optimizer.Adam):
        assert held(make, accumulate=2) - held(make) == parameters
    clipped = {"clip_global_norm": 1.0}
    assert held(momentum, accumulate=2, **clipped) - held(momentum, **clipped) == parameters
    assert held(lambda: optimizer.SGD(0.1, 0.9, regularizer=L2Regularizer(0.1)), accumulate=2) > held(momentum)


def test_a_norm_that_is_no_number_makes_all_gradients_nan():
    net = net_of(optimizer.SGD(0.1), clip_global_norm=1.0)
    assert isnan(float(net.gradient_norm))  # before the first step
    net.train_one_batch(*batch(0))
    assert 0 < float(net.gradient_norm) < inf
    x, y = batch(1)
    x[2, 3] = nan
    net.train_one_batch(x, y)
    assert isnan(float(net.gradient_norm))
    assert all(np.isnan(tensor.to_numpy(value)).all() for value in net.param_values())


def test_gradients_clipped_by_hand():
    by_hand, within = net_of(optimizer.Adam(0.01)), net_of(optimizer.Adam(0.01), clip_global_norm=LIMIT)
    for number in range(3):
        gradients = by_hand.gradients(*batch(number))
        norm = optimizer.clip_global_norm(gradients.values(), LIMIT)
        for name, gradient in gradients.items():
            by_hand.optimizer.update(name, by_hand.parameters()[name], gradient)
        within.train_one_batch(*batch(number))
        assert bits(norm) == bits(within.gradient_norm)
    assert list(map(bits, by_hand.param_values())) == list(map(bits, within.param_values()))


def test_in_fit_a_group_goes_on_in_the_next_epoch():
    """3 batches an epoch, 2 an update: the third waits for the first of the next epoch."""
    x, y = batch(0, 26)
    net = net_of(optimizer.Adam(), accumulate=2)
    net.fit(x, y, batch_size=10, epochs=3, shuffle=False, verbose=False)
    assert net.optimizer.gathering.done == 1 and net.optimizer.step == 4


def test_a_snapshot_within_a_group_wants_the_same_group(tmp_path):
    path = tmp_path / "net.h5"
    net = net_of(optimizer.Adam(), accumulate=4)
    trained(net, 6)
    net.save(path)
    plain = net_of(optimizer.Adam())
    before = state_of(plain)
    with pytest.raises(SnapshotError, match=r"accumulate=1.*2 of 4"):
        plain.load(path)
    assert state_of(plain) == before
    plain.load(path, optimizer=False)
    momentum, clipped = tmp_path / "m.h5", net_of(optimizer.SGD(0.1, 0.9), accumulate=4, clip_global_norm=1.0)
    inside = net_of(optimizer.SGD(0.1, 0.9), accumulate=4)
    trained(inside, 1)
    inside.save(momentum)
    with pytest.raises(SnapshotError, match="sums"):
        clipped.load(momentum)
    trained(net, 8, first=6)
    net.save(path)  # between groups: the sums count no more
    plain.load(path)
    assert plain.optimizer.step == 2


@pytest.mark.parametrize("name", ["net.h5", "net.npz", "net.safetensors"])
def test_a_snapshot_within_a_group_goes_on_to_the_bit_with_parameters_in_16_bits(tmp_path, name):
    net, other = (net_of(optimizer.AdamW(), accumulate=3, parameter_dtype="bfloat16") for _ in range(2))
    trained(net, 4)
    net.save(tmp_path / name)
    other.load(tmp_path / name)
    assert trained(other, 8, first=4) == trained(net, 8, first=4)


ROUNDED = ({}, {"parameter_dtype": "bfloat16"}, {"parameter_dtype": "bfloat16", "rounding": "compensated"})


@pytest.mark.parametrize(("written", "compiled"), [*permutations(ROUNDED, 2)])
def test_state_of_parameters_that_were_rounded_otherwise_is_refused(tmp_path, written, compiled):
    net, other = (net_of(optimizer.Adam(), **options) for options in (written, compiled))
    trained(net, 2)
    net.save(tmp_path / "net.h5")
    before = state_of(other)
    with pytest.raises(SnapshotError, match=r"wanted optimizer state of compile\(parameter_dtype=.*optimizer=False"):
        other.load(tmp_path / "net.h5")
    assert state_of(other) == before
    other.load(tmp_path / "net.h5", optimizer=False)


def test_a_group_that_has_begun_is_not_given_up_silently():
    net = net_of(optimizer.Adam(), accumulate=2)
    net.train_one_batch(*batch(0))
    with pytest.raises(GraphError, match="group"):
        net.compile(net.optimizer)
    net.compile(net.optimizer, accumulate=2)
    net.train_one_batch(*batch(1))
    net.compile(net.optimizer)
    net.train_one_batch(*batch(2))
    assert net.optimizer.step == 2


def test_dry_runs_leave_a_group_as_it_is():
    net = net_of(optimizer.Adam(), accumulate=3)
    net.train_one_batch(*batch(0))
    net.plan_batch(40)
    net.budget_curve(9)
    net.evaluate(*batch(1))
    assert net.optimizer.gathering.done == 1 and net.optimizer.step == 0


def test_a_step_that_fails_after_its_first_change_begins_the_group_anew(monkeypatch):
    net = net_of(optimizer.Adam(), accumulate=3, graph=False)
    net.train_one_batch(*batch(0))

    device_run, calls = net.device.run, []

    def run(kernel: str, *given: Any, **settings: Any) -> Any:
        calls.append(kernel)
        if calls.count("add_scaled") == 2:
            raise RuntimeError("no")
        return device_run(kernel, *given, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(net.device, "run", run)
        with pytest.raises(RuntimeError):
            net.train_one_batch(*batch(1))
    with pytest.raises(GraphError, match="discard_step"):
        net.train_one_batch(*batch(1))
    net.discard_step()
    assert net.optimizer.gathering.done == 0
    fresh = net_of(optimizer.Adam(), accumulate=3, graph=False)
    for each in (net, fresh):
        for number in range(3):
            each.train_one_batch(*batch(number))
    assert list(map(bits, net.param_values())) == list(map(bits, fresh.param_values()))


def test_on_another_device_a_group_goes_on():
    one, moved = (net_of(optimizer.Adam(), accumulate=3, clip_global_norm=LIMIT) for _ in range(2))
    trained(one, 4)
    trained(moved, 4)
    moved.to_device(device.new_cpu(kernels="numpy"))
    assert float(moved.gradient_norm) == float(one.gradient_norm)
    assert trained(one, 7, first=4) == trained(moved, 7, first=4)


@pytest.mark.parametrize("options", [{"clip_global_norm": 0.3}, {"loss_scale": "dynamic"}], ids=str)
def test_within_a_budget_gradients_are_made_twice(options):
    """No gradient waits for the others there, for their norm or to be seen to be finite; the plan says the form."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels="numpy"), seed=4)
    net.add(layers.Conv2D("first", 12, 3, input_sample_shape=(3, 8, 10)))
    net.add(layers.BatchNormalization("norm"))
    relu = net.add(layers.Activation("relu"))
    net.add(layers.Merge("sum"), [net.add(layers.Conv2D("second", 12, 3), relu), relu])
    net.add(layers.Dropout("drop", 0.3))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("wide", 1500))  # weights that are large beside the batch
    net.add(layers.Activation("tanh", "tanh"))
    net.add(layers.Dense("scores", 5))
    net.compile(optimizer.SGD(0.05, 0.9), **options)
    free = net.plan_batch(7)
    assert free.form == "" and free.estimated_slowdown == 0
    for share, form in {0.6: "made twice", 0.2: "walked twice"}.items():
        plan = net.plan_batch(7, memory_budget=int(free.held_bytes + share * free.arena_bytes) + 2**21)
        plan.check()
        assert plan.arena_bytes < (share + 0.05) * free.arena_bytes
        assert form in plan.form and plan.form in plan.summary() and plan.estimated_slowdown > 0


def test_where_values_may_not_wait_for_both_walks_the_step_is_done_twice_and_gives_equal_bits():
    def compiled(**options: Any) -> FeedForwardNet:
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels="numpy"), seed=4)
        net.add(layers.Dense("in", 64, input_sample_shape=(20,)))
        for number in range(12):
            net.add(layers.Activation(f"tanh{number}", "tanh"))
            net.add(layers.Dropout(f"drop{number}", 0.2) if number == 3 else layers.Dense(f"dense{number}", 64))
        net.compile(optimizer.SGD(0.05, 0.9), clip_global_norm=0.01, **options)
        return net

    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((64, 20)).astype(np.float32), rng.integers(0, 64, 64)
    free = compiled()
    plan = free.plan_batch(64)
    budget = plan.total_bytes - int(0.4 * plan.arena_bytes)
    within = compiled(memory_budget=budget)
    for net in (free, within):
        for _ in range(3):
            net.train_one_batch(x, y)
    assert within.memory_plan.form == STEP_TWICE
    assert within.memory_plan.total_bytes <= budget
    assert state_of(within) == state_of(free)
    assert float(free.gradient_norm) == float(within.gradient_norm) > 0.01


@pytest.mark.parametrize("kernels, tied", [("numpy", True), ("onednn", True), ("onednn", False)])
def test_within_a_budget_scores_of_many_classes_are_not_whole_and_the_norm_is_the_same(kernels, tied):
    """The norm as worked out in float64, and parameters as without a budget. A head of its own has a bias."""
    x, y = np.random.default_rng(5).integers(0, 30_000, (2, 1, 300))

    def made() -> FeedForwardNet:
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(-1), device=on_cpu(kernels), seed=3)
        table = net.add(layers.Embedding("table", 30_000, 48, input_sample_shape=(300,)))
        net.add(layers.TiedDense("head", table) if tied else layers.Dense("head", 30_000, bias_init="normal"))
        net.compile(optimizer.SGD(0.1), clip_global_norm=LIMIT)
        return net

    free, within = made(), made()
    before = {name: tensor.to_numpy(value).astype(np.float64) for name, value in free.parameters().items()}
    usual = free.plan_batch(1)
    plan = within.plan_batch(1, memory_budget=usual.total_bytes - usual.arena_bytes + 2**24)
    assert plan.arena_bytes < 2**24 < 4 * x.size * 30_000
    assert "made twice" in plan.form
    within.compile(optimizer.SGD(0.1), clip_global_norm=LIMIT, memory_budget=plan.total_bytes)
    for net in (free, within):
        net.train_one_batch(x, y)

    table = before["table/weight"]
    weight, bias = (table.T, 0) if tied else (before["head/weight"], before["head/bias"])
    scores = table[x[0]] @ weight + bias
    slope = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    slope[range(300), y[0]] -= 1
    gradients = {"head/weight": table[x[0]].T @ slope / 300, "head/bias": slope.sum(0) / 300}
    gradients["table/weight"] = gradients["head/weight"].T.copy() if tied else np.zeros_like(table)
    np.add.at(gradients["table/weight"], x[0], slope @ weight.T / 300)
    norm = np.sqrt(sum((gradients[name] ** 2).sum() for name in before))
    factor = 0.1 * min(1, LIMIT / (norm + 1e-6))
    for net in (free, within):
        assert float(net.gradient_norm) == pytest.approx(norm, rel=1e-6)
        for name, value in net.parameters().items():
            wanted = before[name] - factor * gradients[name]
            np.testing.assert_allclose(tensor.to_numpy(value), wanted, rtol=1e-6, atol=1e-7)


# --- pieces -------------------------------------------------------------------------------------------------


def test_more_pieces_than_samples_are_as_many_as_samples():
    whole, cut = net_of(optimizer.SGD(0.3, 0.9)), net_of(optimizer.SGD(0.3, 0.9), micro_batches=99)
    for number in range(3):
        wanted, found = (float(net.train_one_batch(*batch(number))[0]) for net in (whole, cut))
        assert found == pytest.approx(wanted, rel=2e-5)
    for name, value in whole.parameters().items():
        np.testing.assert_allclose(tensor.to_numpy(cut.parameters()[name]), tensor.to_numpy(value), atol=2e-5)
    assert whole.optimizer.step == cut.optimizer.step == 3


def test_the_least_budget_of_the_curve_does_for_fit_whose_evaluation_is_in_one_piece():
    least = net_of(optimizer.SGD(), micro_batches=2).budget_curve(9)[-1][0]
    net_of(optimizer.SGD(), micro_batches=2, memory_budget=least).plan_batch(9)


def test_what_is_planned_for_pieces_is_what_the_step_takes_and_the_largest_batch_fits():
    net = net_of(optimizer.SGD(0.3, 0.9), micro_batches=3)
    beforehand = net.plan_batch(9)
    largest = net.largest_batch(beforehand.total_bytes)
    net.train_one_batch(*batch(0))
    assert net.memory_plan.arena_bytes == beforehand.arena_bytes
    assert largest >= 9
    assert net.plan_batch(largest).total_bytes <= beforehand.total_bytes


def test_dropout_draws_other_numbers_for_each_piece():
    def made(**compiling: Any) -> FeedForwardNet:
        net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(kernels="numpy"), seed=1)
        net.add(layers.Dropout("drop", 0.5, input_sample_shape=(40,)))
        net.add(layers.Dense("a", 40, use_bias=False, weight_init=0.0))
        net.compile(optimizer.SGD(lr=1.0), **compiling)
        return net

    x = np.ones((2, 40), np.float32)
    net = made(micro_batches=2)
    net.train_one_batch(x, np.stack([np.full(40, 1e3), np.ones(40)]).astype(np.float32))
    moved = tensor.to_numpy(net.parameters()["a/weight"])[:, 0]
    first, second = 2 * 1000 / 80, 2 / 80  # where the sample kept the input; the mean is over 80 elements
    assert set(np.round(moved, 3)) == {0, first, np.float32(second), np.float32(first + second)}


def test_the_plan_counts_the_sums_of_gradients_and_pays_where_activations_are_large():
    def plan(units: int, **compiling: Any) -> Any:
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels="numpy"), seed=1)
        net.add(layers.Dense("in", units, input_sample_shape=(16,)))
        for number in range(3):
            net.add(layers.Activation(f"act{number}", "tanh"))
            net.add(layers.Dense(f"a{number}", units))
        net.compile(optimizer.SGD(), **compiling)
        return net.plan_batch(64)

    narrow, narrow_cut = plan(8), plan(8, micro_batches=4)
    assert narrow_cut.arena_bytes < 0.5 * narrow.arena_bytes
    wide, wide_cut = plan(256), plan(256, micro_batches=4)
    assert wide_cut.arena_bytes > wide.arena_bytes
    assert wide_cut.arena_bytes >= (16 * 256 + 3 * 256 * 256) * 4  # the sums of the weights' gradients


def test_parameters_that_share_one_gradient_are_summed_apart():
    class TwoBiases(Layer):
        def setup(self, shape: Any) -> Any:
            self.add_parameter("one", shape, 0.0)
            self.add_parameter("two", shape, 0.0)
            return shape

        def forward(self, training: bool, x: Any) -> Any:
            return autograd.add(autograd.add(x, self.parameters["one"]), self.parameters["two"])

    def run(**compiling: Any) -> np.ndarray:
        net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(kernels="numpy"), seed=1)
        net.add(TwoBiases("both", input_sample_shape=(3,)))
        net.compile(optimizer.SGD(lr=1.0), **compiling)
        net.train_one_batch(np.zeros((2, 3), np.float32), np.array([[1, 2, 3], [5, 7, 9]], np.float32))
        return np.stack([tensor.to_numpy(value) for value in net.param_values()])

    for graph in (True, False):  # the mean over six elements
        np.testing.assert_allclose(run(graph=graph, micro_batches=2), np.tile([[1, 1.5, 2]], (2, 1)), rtol=1e-6)


def normalised(**compiling: Any) -> Callable[[], FeedForwardNet]:
    def make() -> FeedForwardNet:
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=1)
        net.add(layers.Dense("a", 4, input_sample_shape=(3,)))
        net.add(layers.BatchNormalization("norm"))
        net.add(layers.Dense("b", 2))
        net.compile(optimizer.SGD(), **compiling)
        return net

    return make


def test_batch_statistics_are_refused_at_compile():
    with pytest.raises(RuntimeError, match=r"micro_batches.*'norm', BatchNormalization"):
        normalised(micro_batches=2)()


def test_frozen_batch_statistics_are_none_and_those_thawed_later_are_refused():
    net = normalised(micro_batches=2, freeze="b")()
    x, y = np.ones((4, 3), np.float32), np.array([0, 1, 1, 0])
    net.train_one_batch(x, y)
    net.freeze = None
    before = state_of(net)
    with pytest.raises(RuntimeError, match="'norm'"):
        net.train_one_batch(x, y)
    assert state_of(net) == before


@pytest.mark.parametrize("given, error", [(0, ValueError), (-2, ValueError), (1.5, ValueError), ("2", TypeError)])
def test_no_count_of_pieces(given, error):
    net = normalised()()
    before = net.optimizer
    with pytest.raises(error, match="micro_batches"):
        net.compile(optimizer.SGD(), micro_batches=given)
    assert net.optimizer is before
