"""What bare records were made by, built in or of the user's own: changed between runs it is refused, never ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nets import bits
from own_functions import Shrink
from singa_lite import FeedForwardNet, Layer, Tensor, autograd, device, layers, loss, optimizer, schedule, tensor
from singa_lite.errors import GraphError
from singa_lite.graph import Graph
from singa_lite.regularizer import Regularizer


class Scaled(Layer):
    """x, by numbers that stand in attributes of all kinds, and by a layer within it."""

    def __init__(self, name: str, factor: float) -> None:
        super().__init__(name)
        self.factor = factor
        self._hidden = factor
        self.several = [factor]
        self.calls = 0
        self.within = self.add_layer(layers.Dropout("drop", 0.5))

    def setup(self, shape: tuple[int, ...]) -> Any:
        return self.set_up(self.within, shape)

    def forward(self, training: bool, x: Tensor) -> Any:
        self.calls += 1
        return self.run(self.within, training, x * self.factor * self._hidden * self.several[0])


class Weighted(loss.Loss):
    """weight (x - y)**2, summed."""

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        return autograd.reduce_sum((x - target) * (x - target) * self.weight, (1,))


class Pull(Regularizer):
    """A constant pull towards 0."""

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def apply(self, value: Tensor, gradient: Tensor, decay_mult: float = 1.0) -> None:
        gradient.device.run("add_scaled", value, gradient, alpha=self.strength)


class Own(optimizer.SGD):
    """SGD by a gradient that is made smaller first."""

    def __init__(self, lr: float, share: float = 0.5) -> None:
        super().__init__(lr, momentum=0.9)
        self.share = share

    def update(self, name: str | None, value: Tensor, gradient: Tensor, rate: Tensor | None = None) -> None:
        super().update(name, value, gradient * self.share, rate)


class Problem:
    """A step, and an evaluation, over all of these."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        self.on = device.new_cpu()
        self.x, self.y = (tensor.from_numpy(rng.standard_normal(s).astype("f"), self.on) for s in ((6, 3), (6, 4)))
        self.w = tensor.from_numpy(rng.standard_normal((3, 4)).astype("f"), self.on)
        self.fixed = tensor.from_numpy(rng.standard_normal(4).astype("f"), self.on)
        self.w.stores_grad = True
        self.net = FeedForwardNet(device=self.on)
        self.layer = self.net.add(Scaled("scaled", 1.5), self.net.add(layers.Dummy("in", (4,)), []))
        self.function, self.criterion, self.built_in = Shrink(0.1), Weighted(0.7), loss.Huber(0.7)
        self.pull, self.rate = Pull(0.1), schedule.Constant(0.1)
        self.sgd = Own(self.rate)
        self.sgd.register("*", regularizer=self.pull)

    def scores(self) -> tuple[Tensor, Tensor]:
        """What trains, and what stands beside it."""
        own = self.function(autograd.linear(self.x, self.w, self.fixed))
        return own, self.net.forward(False, own.detach())

    def step(self) -> Tensor:
        own, beside = self.scores()
        found = self.criterion.forward(False, beside, self.y)
        self.built_in.forward(False, beside, self.y)
        for value, gradient in autograd.backward(autograd.reduce_mean(own * beside)):
            self.sgd.update(None, value, gradient)
        return found

    def recorded(self) -> Graph:
        with self.on.recording() as graph:
            self.step()
        return graph


CHANGES: dict[str, tuple[Callable[[Problem], object], str]] = {
    "a layer's attribute": (lambda p: setattr(p.layer, "factor", 0.5), "'scaled'"),
    "a layer within it": (lambda p: setattr(p.layer.within, "p", 0.1), "drop"),
    "a function's setting": (lambda p: setattr(p.function, "threshold", 0.2), "Shrink"),
    "a loss's": (lambda p: setattr(p.criterion, "weight", 0.2), "Weighted"),
    "a regularizer's": (lambda p: setattr(p.pull, "strength", 0.2), "Pull"),
    "an optimizer's": (lambda p: setattr(p.sgd, "share", 0.2), "Own"),
    "settings": (lambda p: setattr(p.sgd, "settings", {**p.sgd.settings, "momentum": 0.5}), "another settings"),
    "weight decay": (lambda p: setattr(p.sgd, "weight_decay", 0.5), "another weight_decay"),
    "a built-in loss's": (lambda p: setattr(p.built_in, "delta", 0.2), "Huber"),
    "a further rule": (lambda p: p.sgd.register("*", lr_mult=0.5), "another rules"),
    "a weight that is to train": (lambda p: setattr(p.fixed, "stores_grad", True), "another stores_grad of 'a tensor'"),
    "one that is not": (lambda p: setattr(p.w, "stores_grad", False), "another stores_grad"),
}


@pytest.mark.parametrize("runs", [0, 2])
@pytest.mark.parametrize(("change", "word"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_refused_before_anything_runs(change, word, runs):
    problem = Problem()
    graph = problem.recorded()
    for _ in range(runs):
        graph.run()
    before = bits(problem.w), bits(problem.fixed)
    change(problem)
    with pytest.raises(GraphError, match=word):
        graph.run()
    with pytest.raises(GraphError, match=word):
        graph.profile(1)
    assert (bits(problem.w), bits(problem.fixed)) == before


def test_what_changes_nothing_is_not_refused():
    """What recording counts, work that is done at once, and equal values; of an evaluation, what trains."""
    problem, twin = Problem(), Problem()
    graph = problem.recorded()
    with problem.on.recording() as evaluation:
        found, beside = problem.scores()
    for _ in range(2):
        graph.run()
        twin.step()
    problem.scores()
    problem.layer.factor, problem.function.threshold = 1.5, 0.1
    problem.layer.several[0], problem.layer._hidden, problem.layer.note = 9.0, 9.0, "of the user's own"
    graph.run()
    twin.step()
    assert bits(problem.w) == bits(twin.w)
    problem.layer.several[0] = problem.layer._hidden = 1.5
    problem.fixed.stores_grad = True
    problem.w.stores_grad = False
    evaluation.run()
    assert [bits(found), bits(beside)] == [bits(each) for each in problem.scores()]


def test_a_rate_that_is_changed_is_followed():
    problem, twin = Problem(), Problem()
    graph = problem.recorded()
    for rate in (0.1, 0.5, 0.01):
        problem.rate.value = twin.rate.value = rate
        graph.run()
        twin.step()
        assert bits(problem.w) == bits(twin.w)
    for rate in (0.2, schedule.Constant(0.3)):
        problem.sgd.lr = twin.sgd.lr = rate
        graph.run()
        twin.step()
        assert bits(problem.w) == bits(twin.w)
