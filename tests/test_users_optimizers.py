"""Optimizers, regularizers and constraints of the user's: their code runs while a step is recorded, and not at replays.

Each either trains to the bits of a step whose operations are done at once, or is refused by the first batch.
"""

from __future__ import annotations

import sys
from itertools import count
from typing import Any

import numpy as np
import pytest

from singa_lite import FeedForwardNet, device, layers, optimizer, schedule, tensor
from singa_lite.errors import GraphError
from singa_lite.regularizer import Constraint, Regularizer

X = np.random.default_rng(5).normal(size=(5, 3)).astype("f")
RANDOM = np.random.default_rng(6)
SHARE, CALLS = 0.5, 0


class Own(optimizer.SGD):
    """SGD by another gradient, as `changed` gives it."""

    def __init__(self, lr: Any = 0.1, **options: Any) -> None:
        super().__init__(lr, **options)
        self.calls, self.share, self.by_name = 0, 1.0, dict[str, int]()

    def update(self, name: Any, value: Any, gradient: Any, rate: Any = None) -> None:
        super().update(name, value, self.changed(name, gradient), rate)

    def changed(self, name: str, gradient: Any) -> Any:
        return gradient * self.share


class Shrinking(Own):
    def changed(self, name: str, gradient: Any) -> Any:
        self.share *= 0.9
        return gradient * self.share


class Late(Own):
    """What it does after many calls, two of them do not show."""

    def changed(self, name: str, gradient: Any) -> Any:
        self.calls += 1
        return gradient * 0.5 if self.calls > 30 else gradient


class LateByName(Own):
    def changed(self, name: str, gradient: Any) -> Any:
        self.by_name[name] = self.by_name.get(name, 0) + 1
        return gradient * 0.5 if self.by_name[name] > 30 else gradient


class LateByGlobal(Own):
    def changed(self, name: str, gradient: Any) -> Any:
        global CALLS
        CALLS += 1
        return gradient * 0.5 if CALLS > 1000 else gradient


class OfClass(Own):
    seen = 0

    def changed(self, name: str, gradient: Any) -> Any:
        OfClass.seen += 1
        return gradient * 0.5 if self.seen > 1000 else gradient


class Iterated(Own):
    numbers = count()

    def changed(self, name: str, gradient: Any) -> Any:
        return gradient * 0.5 if next(self.numbers) > 1000 else gradient


class Noisy(Own):
    def changed(self, name: str, gradient: Any) -> Any:
        return gradient + tensor.from_numpy(RANDOM.normal(size=gradient.shape).astype("f"), gradient.device)


class Rarely(Own):
    """It goes by what is drawn, nearly always in the same way."""

    def changed(self, name: str, gradient: Any) -> Any:
        return gradient * 0.5 if RANDOM.random() < 1e-12 else gradient


class RarelyByModule(Own):
    def changed(self, name: str, gradient: Any) -> Any:
        return gradient * 0.5 if np.random.random() < 1e-12 else gradient  # noqa: NPY002 - as users write it


class ByStep(Own):
    def changed(self, name: str, gradient: Any) -> Any:
        if self.step == 4:
            self.weight_decay = 0.1
        return gradient


class SetsRate(Own):
    def changed(self, name: str, gradient: Any) -> Any:
        if name == "dense/bias":
            self.lr = 0.05
        return gradient


class Decaying(Own):
    def begin_step(self) -> None:
        super().begin_step()
        self.weight_decay = 0.01 * self.step


class SharedOut(Own):
    def begin_step(self) -> None:
        super().begin_step()
        self.share *= 0.9


class Rebinding(Own):
    """Momentum in a tensor that is another one at each call, where a replay would read the first one for ever."""

    def __init__(self, lr: Any = 0.1) -> None:
        super().__init__(lr)
        self.sums: dict[str, Any] = {}

    def changed(self, name: str, gradient: Any) -> Any:
        if name not in self.sums:
            self.sums[name] = self.zeros_like(gradient)
        self.sums[name] = self.sums[name] * 0.9 + gradient
        return self.sums[name] * 1.0


class InPlace(Rebinding):
    """The same in one that stays."""

    def changed(self, name: str, gradient: Any) -> Any:
        if name not in self.sums:
            self.sums[name] = self.zeros_like(gradient)
        total = self.sums[name] * 0.9 + gradient
        gradient.device.run("copy", total, self.sums[name])
        return total


class Rates(Own):
    def changed(self, name: str, gradient: Any) -> Any:
        return gradient * float(1 + self.lr)


class Pulling(Regularizer):
    def __init__(self) -> None:
        self.strength = 0.0

    def apply(self, value: Any, gradient: Any, decay_mult: float = 1.0) -> None:
        self.strength += 0.1
        gradient.device.run("add_scaled", value, gradient, alpha=self.strength)


class Jumping(Constraint):
    def apply(self, gradient: Any) -> None:
        gradient.device.run("clip_elements", gradient, threshold=float(RANDOM.random()))


def ruled() -> optimizer.Optimizer:
    found = optimizer.SGD(0.1)
    found.register("dense/*", regularizer=Pulling())
    return found


def net(opt: optimizer.Optimizer, graph: bool = True, **options: Any) -> FeedForwardNet:
    found = FeedForwardNet("mse", device=device.new_cpu(kernels="numpy"))
    found.add(layers.Dense("dense", 4, input_sample_shape=(3,)))
    found.add(layers.Dense("scores", 3))
    found.compile(opt, graph=graph, **options)
    return found


def values(found: FeedForwardNet) -> list[bytes]:
    return [np.array(value).tobytes() for value in found.param_values()]


REFUSED: list[tuple[Any, str]] = [
    (Shrinking, "'scale' of layer 'scores'"),
    (Late, "calls of 'Late'"),
    (LateByName, "of by_name"),
    (LateByGlobal, "CALLS"),
    (OfClass, "seen that OfClass reads"),
    (Iterated, "itertools.count"),
    (Noisy, "constant"),
    (Rarely, "numpy.random"),
    (RarelyByModule, "numpy.random"),
    (ByStep, "reads step"),
    (SetsRate, "sets lr"),
    (Decaying, "weight_decay"),
    (SharedOut, "share"),
    (Rebinding, "'scale' of layer 'scores'"),
    (lambda: Rates(schedule.Step(0.1, 1000)), "lr beside a schedule"),
    (lambda: optimizer.SGD(0.1, regularizer=Pulling()), "'add_scaled' of layer 'scores'"),
    (ruled, "'add_scaled' of layer 'dense'"),
    (lambda: optimizer.Adam(0.1, constraint=Jumping()), "'clip_elements' of layer 'scores'"),
]
OTHERS = ({"clip_global_norm": 1.0}, {"micro_batches": 2}, {"accumulate": 2})


@pytest.mark.parametrize("place", range(len(REFUSED)), ids=[told for _, told in REFUSED])
def test_what_differs_between_steps_is_refused_and_nothing_has_changed(place):
    """In a plain step, and in one of another kind, by turns."""
    made, told = REFUSED[place]
    for options in ({}, OTHERS[place % len(OTHERS)]):
        opt = made()
        found = net(opt, **options)
        for _ in range(options.get("accumulate", 1) - 1):
            found.train_one_batch(X, X)
        before = values(found)
        with pytest.raises(GraphError, match=told):
            found.train_one_batch(X, X)
        assert values(found) == before
        assert (opt.step, opt.has_state) == (0, False) or "accumulate" in options
    net(made(), graph=False).train_one_batch(X, X)


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


class Reading(Own):
    def changed(self, name: str, gradient: Any) -> Any:
        return gradient * float(SHARE)


class ReadingClass(Own):
    factor = 0.5

    def changed(self, name: str, gradient: Any) -> Any:
        return gradient * self.factor


class Scheduled:
    """A schedule with a number of its own, and draws."""

    def __init__(self) -> None:
        self.calls, self.random = 0, np.random.default_rng(8)

    def __call__(self, step: int) -> float:
        self.calls += 1
        return 0.1 * float(self.random.random()) / self.calls


class Steady(Regularizer):
    def apply(self, value: Any, gradient: Any, decay_mult: float = 1.0) -> None:
        gradient.device.run("add_scaled", value, gradient, alpha=float(SHARE))


def no_change(opt: Any, monkeypatch: Any) -> None: ...


def another_number(opt: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SHARE", 0.25)


FOLLOWED = [
    (Own, no_change),
    (Own, lambda opt, patch: setattr(opt, "share", 0.3)),
    (Logging, no_change),
    (Beginning, no_change),
    (InPlace, no_change),
    (Reading, another_number),
    (ReadingClass, lambda opt, patch: patch.setattr(ReadingClass, "factor", 0.25)),
    (Rates, lambda opt, patch: setattr(opt, "lr", 0.02)),
    (lambda: Own(Scheduled()), no_change),
    (lambda: Own(momentum=0.9, constraint=None, regularizer=Steady()), another_number),
    (lambda: optimizer.SGD(0.1, regularizer=Steady()), another_number),
]


@pytest.mark.parametrize("options", [{}, {"clip_global_norm": 1.0, "keep": ["dense"]}, {"accumulate": 2}], ids=str)
@pytest.mark.parametrize(("made", "change"), FOLLOWED)
def test_what_does_the_same_or_is_changed_from_outside_trains_to_equal_bits(made, change, options, monkeypatch):
    found = []
    for graph in (True, False):
        with monkeypatch.context() as patch:
            opt = made()
            trained = net(opt, graph=graph, **options)
            losses = [float(trained.train_one_batch(X, X)[0]) for _ in range(4)]
            change(opt, patch)
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
    assert opt.calls == 4  # of the four parameters, while it was recorded; the call that was compared left no trace
