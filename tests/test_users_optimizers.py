"""Optimizers, regularizers and constraints of the user's: their code runs while a step is recorded, and not at replays.

Each trains to the bits of a step whose operations are done at once; a change of an option is followed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_lite import FeedForwardNet, device, layers, optimizer
from singa_lite.regularizer import Regularizer

X = np.random.default_rng(5).normal(size=(5, 3)).astype("f")


class Own(optimizer.SGD):
    """SGD by another gradient, as `changed` gives it."""

    def __init__(self, lr: Any = 0.1, share: float = 1.0, **options: Any) -> None:
        super().__init__(lr, **options)
        self.calls, self.share = 0, share

    def update(self, name: Any, value: Any, gradient: Any, rate: Any = None) -> None:
        super().update(name, value, self.changed(name, gradient), rate)

    def changed(self, name: str, gradient: Any) -> Any:
        return gradient * self.share


class InPlace(Own):
    """Momentum in a tensor that stays, and is written in place."""

    def __init__(self, lr: Any = 0.1) -> None:
        super().__init__(lr)
        self.sums: dict[str, Any] = {}

    def changed(self, name: str, gradient: Any) -> Any:
        if name not in self.sums:
            self.sums[name] = self.zeros_like(gradient)
        total = self.sums[name] * 0.9 + gradient
        gradient.device.run("copy", total, self.sums[name])
        return total


def net(opt: optimizer.Optimizer, graph: bool = True, **options: Any) -> FeedForwardNet:
    found = FeedForwardNet("mse", device=device.new_cpu(kernels="numpy"))
    found.add(layers.Dense("dense", 4, input_sample_shape=(3,)))
    found.add(layers.Dense("scores", 3))
    found.compile(opt, graph=graph, **options)
    return found


def values(found: FeedForwardNet) -> list[bytes]:
    return [np.array(value).tobytes() for value in found.param_values()]


class Logging(Own):
    """It counts, and makes a table once; no operation goes by the former, and the latter stays."""

    table: Any = None

    def changed(self, name: str, gradient: Any) -> Any:
        self.calls += 1
        if self.table is None:
            self.table = {}
        return gradient * self.table.setdefault(name, 0.5)


class Beginning(Own):
    """A rate by hand: a step begins in Python, whether it is replayed or not."""

    def begin_step(self) -> None:
        self.calls += 1
        self.lr = 0.1 / self.calls
        super().begin_step()


class Scheduled:
    """A schedule with a number of its own, and draws."""

    def __init__(self) -> None:
        self.calls, self.random = 0, np.random.default_rng(8)

    def __call__(self, step: int) -> float:
        self.calls += 1
        return 0.1 * float(self.random.random()) / self.calls


class Steady(Regularizer):
    def __init__(self, strength: float = 0.5) -> None:
        self.strength = strength

    def apply(self, value: Any, gradient: Any, decay_mult: float = 1.0) -> None:
        gradient.device.run("add_scaled", value, gradient, alpha=self.strength)


def no_change(opt: Any) -> None: ...


def another_strength(opt: Any) -> None:
    opt.parts[0].strength = 0.25


FOLLOWED = [
    (Own, no_change),
    (Own, lambda opt: setattr(opt, "share", 0.3)),
    (Logging, no_change),
    (Beginning, no_change),
    (InPlace, no_change),
    (lambda: Own(Scheduled()), no_change),
    (lambda: Own(momentum=0.9, constraint=None, regularizer=Steady()), another_strength),
    (lambda: optimizer.SGD(0.1, regularizer=Steady()), another_strength),
]


@pytest.mark.parametrize("options", [{}, {"clip_global_norm": 1.0, "keep": ["dense"]}, {"accumulate": 2}], ids=str)
@pytest.mark.parametrize(("made", "change"), FOLLOWED)
def test_what_does_the_same_or_is_changed_from_outside_trains_to_equal_bits(made, change, options):
    found = []
    for graph in (True, False):
        opt = made()
        trained = net(opt, graph=graph, **options)
        losses = [float(trained.train_one_batch(X, X)[0]) for _ in range(4)]
        change(opt)
        losses += [float(trained.train_one_batch(X, X)[0]) for _ in range(3)]
        found.append((losses, values(trained), opt.step))
    assert found[0] == found[1]
    assert len(set(found[0][0])) > 3


def test_a_step_by_an_optimizer_of_the_users_is_recorded_once():
    opt = Logging()
    found = net(opt)
    found.train_one_batch(X, X)
    graph = found.training_graph
    for _ in range(3):
        found.train_one_batch(X, X)
    assert found.training_graph is graph
    assert opt.calls == 4  # of the four parameters, while it was recorded
