"""Work beside a training step: begun once with it, waited for before the first operation that writes what it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nets import state_of
from singa_lite import FeedForwardNet, OutOfMemoryError, ShapeError, device, layers, loss, metric, optimizer
from singa_lite.graph import Pause

RNG = np.random.default_rng(2)
X, LABELS = RNG.normal(size=(7, 5)).astype("f"), RNG.integers(0, 3, 7)
MOVING = {"norm: running_mean", "norm: running_var"}


def make(graph: bool = True) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device=device.new_cpu(), seed=6)
    net.add(layers.Dense("hidden", 4, input_sample_shape=(5,)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Dense("scores", 3))
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9), graph=graph)
    net.train_one_batch(X, LABELS)
    return net


def parameters(net: FeedForwardNet) -> list[Any]:
    return [tensor.block for tensor in net.parameters().values()]


def statistics(net: FeedForwardNet) -> list[Any]:
    return [tensor.block for tensor in net.states().values()]


def nothing(net: FeedForwardNet) -> list[Any]:
    return []


class Reader:
    """Something beside the next step, and what it sees when it is waited for."""

    def __init__(self, net: FeedForwardNet, blocks: Callable[[FeedForwardNet], Any] = parameters) -> None:
        self.net, self.blocks = net, blocks
        self.begun: dict[str, Any] = {}
        self.waited: list[dict[str, Any]] = []
        net.beside_next_step(self.begin)

    def begin(self) -> Pause:
        self.begun = state_of(self.net)
        return Pause(self.blocks(self.net), lambda: self.waited.append(state_of(self.net)))

    def changed(self, then: dict[str, Any] | None = None) -> set[str]:
        """What is otherwise when it is waited for the first time, or then."""
        then = self.waited[0] if then is None else then
        return {name for name in self.begun if self.begun[name] != then[name]} - {"step"}


#: (recorded, what is read, samples, checked, what has changed when it is waited for; None: all that a step changes).
CASES: dict[str, tuple[bool, Callable[[FeedForwardNet], Any], int, bool, set[str] | None]] = {
    "between forward and the first update": (True, parameters, 7, False, MOVING),
    "a new shape of batch": (True, parameters, 4, False, MOVING),
    "written at once": (True, statistics, 7, False, set()),
    "not recorded": (False, parameters, 7, False, set()),
    "memory of nobody": (True, nothing, 7, False, None),
    "checked memory": (True, parameters, 7, True, set()),
}


@pytest.mark.parametrize(("graph", "blocks", "samples", "checked", "wanted"), CASES.values(), ids=CASES)
def test_a_step_waits_before_it_writes_what_is_read(monkeypatch, graph, blocks, samples, checked, wanted):
    monkeypatch.setenv("SINGA_LITE_CHECKED", "1" if checked else "")
    net, plain = make(graph), make(graph)
    reader, before = Reader(net, blocks), state_of(net)
    net.evaluate(X, LABELS)
    net.predict(X)
    assert not reader.begun, "an evaluation is no training step"
    for one in (net, plain):
        one.train_one_batch(X[:samples], LABELS[:samples])
    assert reader.begun == before
    assert state_of(net) == state_of(plain)
    everything = reader.changed(state_of(net))
    assert everything > MOVING
    assert reader.changed() == (everything if wanted is None else wanted)
    count = len(reader.waited)
    net.train_one_batch(X, LABELS)
    assert len(reader.waited) == count, "for one step only"


def test_several_are_each_begun_and_waited_for():
    net = make()
    readers = [Reader(net, statistics), Reader(net, parameters)]
    net.train_one_batch(X, LABELS)
    assert all(reader.begun and not reader.changed() for reader in readers)


def test_a_step_that_fails_has_waited():
    net = make()
    reader = Reader(net)
    with pytest.raises(ShapeError):
        net.train_one_batch(X[:, :3], LABELS)
    assert not reader.begun, "that batch is no step"
    net.device.pool.set_limit(net.device.pool.used)
    with pytest.raises(OutOfMemoryError):
        net.train_one_batch(np.tile(X, (9999, 1)), np.tile(LABELS, 9999))
    assert reader.begun and reader.waited and not reader.changed()


def test_an_error_in_beginning_comes_out_before_the_step():
    def broken() -> Pause:
        raise MemoryError("no room for a copy")

    net = make()
    before = state_of(net)
    net.beside_next_step(broken)
    with pytest.raises(MemoryError, match="no room for a copy"):
        net.train_one_batch(X, LABELS)
    assert state_of(net) == before
    net.train_one_batch(X, LABELS)
