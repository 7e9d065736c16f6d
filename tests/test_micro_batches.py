"""micro_batches=: a batch in pieces whose gradients are added and applied once, as the whole batch's to rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from budget_nets import on_cpu
from nets import state_of
from singa_lite import FeedForwardNet, autograd, device, initializer, layers, loss, metric, optimizer, tensor
from singa_lite.layer import Layer
from singa_lite.regularizer import L2Regularizer

#: Of a batch: more pieces do not divide it than do.
COUNT = 14


def convolutional(kernels: str = "numpy", **compiling: Any) -> FeedForwardNet:
    """Two outputs, a branch, a shared input, metrics by name."""
    net = FeedForwardNet(device=on_cpu(kernels), seed=4)
    first = net.add(layers.Conv2D("first", 8, 3, input_sample_shape=(3, 10, 12)))
    relu = net.add(layers.Activation("relu"), first)
    second = net.add(layers.Conv2D("second", 8, 3), relu)
    added = net.add(layers.Merge("sum"), [second, relu])
    flat = net.add(layers.Flatten("flat"), added)
    net.add(layers.Dense("scores", 5), flat)
    net.add(layers.Dense("sizes", 2, weight_init=initializer.Normal(std=0.01)), flat)
    compiling.setdefault("opt", optimizer.SGD(lr=0.05, momentum=0.9, regularizer=L2Regularizer(0.01)))
    net.compile(
        compiling.pop("opt"),
        {"scores": loss.SoftmaxCrossEntropy(), "sizes": loss.SquaredError()},
        {"scores": metric.Accuracy()},
        **compiling,
    )
    return net


def batch(step: int, count: int = COUNT) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(step)
    x = rng.standard_normal((count, 3, 10, 12), dtype=np.float32)
    return x, {"scores": rng.integers(0, 5, count), "sizes": rng.standard_normal((count, 2), dtype=np.float32)}


def trained(net: FeedForwardNet, steps: int = 3, **given: Any) -> list[Any]:
    values = []
    for step in range(steps):
        value, metrics = net.train_one_batch(*batch(step, **given))
        values += [float(value), float(metrics["scores"])]
    return values


def assert_close(got: FeedForwardNet, wanted: FeedForwardNet, tolerance: float) -> None:
    for name, value in wanted.parameters().items():
        exact = tensor.to_numpy(value)
        np.testing.assert_allclose(
            tensor.to_numpy(got.parameters()[name]), exact, rtol=0, atol=tolerance * np.abs(exact).max(), err_msg=name
        )


@pytest.mark.parametrize(("kernels", "pieces"), [("numpy", 99), ("onednn", 3)])
def test_a_step_is_that_of_the_whole_batch(kernels, pieces):
    """3 pieces have 5, 5 and 4 samples; 99 pieces of 14 samples are 14."""
    whole, cut = convolutional(kernels), convolutional(kernels, micro_batches=pieces)
    np.testing.assert_allclose(trained(cut), trained(whole), rtol=2e-5)
    assert_close(cut, whole, 2e-5)
    assert whole.optimizer.step == cut.optimizer.step == 3


def test_the_least_budget_of_the_curve_does_for_fit_whose_evaluation_is_in_one_piece():
    least = convolutional(micro_batches=2).budget_curve(5)[-1][0]
    convolutional(micro_batches=2, memory_budget=least).plan_batch(5)


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


def test_what_is_planned_is_what_the_step_takes_and_the_largest_batch_fits():
    net = convolutional(micro_batches=3)
    beforehand = net.plan_batch(5)
    largest = net.largest_batch(beforehand.total_bytes)
    trained(net, 1, count=5)
    assert net.memory_plan.arena_bytes == beforehand.arena_bytes
    assert largest >= 5
    assert net.plan_batch(largest).total_bytes <= beforehand.total_bytes


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
