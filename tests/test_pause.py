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


def make(graph: bool = True) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device=device.new_cpu(), seed=6)
    net.add(layers.Dense("hidden", 4, input_sample_shape=(5,)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Dense("scores", 3))
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9), graph=graph)
    net.train_one_batch(X, LABELS)
    return net


class Reader:
    """Something beside a step, and what it sees when it is waited for."""

    def __init__(self, net: FeedForwardNet, blocks: Callable[[FeedForwardNet], Any]) -> None:
        self.net, self.blocks = net, blocks
        self.begun: dict[str, bytes] = {}
        self.waited: list[dict[str, bytes]] = []

    def begin(self) -> Pause:
        self.begun = state_of(self.net)
        return Pause(self.blocks(self.net), lambda: self.waited.append(state_of(self.net)))


def parameters(net: FeedForwardNet) -> list[Any]:
    return [tensor.block for tensor in net.parameters().values()]


def statistics(net: FeedForwardNet) -> list[Any]:
    return [tensor.block for tensor in net.states().values()]


def nothing(net: FeedForwardNet) -> list[Any]:
    return []


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    return {name for name in before if before[name] != after[name]} - {"step"}


MOVING = {"norm: running_mean", "norm: running_var"}


def test_a_recorded_step_waits_between_forward_and_the_first_update():
    net = make()
    reader = Reader(net, parameters)
    net.beside_next_step(reader.begin)
    before = state_of(net)
    assert not reader.begun
    net.train_one_batch(X, LABELS)
    assert reader.begun == before
    assert changed(before, reader.waited[0]) == MOVING
    assert changed(before, state_of(net)) > MOVING
    count = len(reader.waited)
    net.train_one_batch(X, LABELS)
    assert len(reader.waited) == count, "for one step only"


@pytest.mark.parametrize("graph", [True, False])
def test_a_step_that_writes_it_at_once_waits_before_all_else(graph):
    net = make(graph)
    reader = Reader(net, statistics if graph else parameters)
    net.beside_next_step(reader.begin)
    net.train_one_batch(X, LABELS)
    assert not changed(reader.begun, reader.waited[0])


def test_memory_of_nobody_is_waited_for_in_the_end():
    net = make()
    reader = Reader(net, nothing)
    net.beside_next_step(reader.begin)
    net.train_one_batch(X, LABELS)
    assert reader.waited[0] == state_of(net)


def test_a_new_shape_of_batch_waits_too():
    net = make()
    reader = Reader(net, parameters)
    net.beside_next_step(reader.begin)
    net.train_one_batch(X[:4], LABELS[:4])
    assert changed(reader.begun, reader.waited[0]) == MOVING


def test_checked_memory_and_other_orders_give_the_same_bits(monkeypatch):
    monkeypatch.setenv("SINGA_LITE_CHECKED", "1")
    checked, plain = make(), make()
    reader = Reader(checked, parameters)
    checked.beside_next_step(reader.begin)
    for net in (checked, plain):
        net.train_one_batch(X, LABELS)
    assert not changed(reader.begun, reader.waited[0])
    assert state_of(checked) == state_of(plain)


def test_several_are_each_begun_and_waited_for():
    net = make()
    readers = [Reader(net, statistics), Reader(net, parameters)]
    for reader in readers:
        net.beside_next_step(reader.begin)
    net.train_one_batch(X, LABELS)
    assert all(reader.begun and not changed(reader.begun, reader.waited[0]) for reader in readers)


def test_a_step_that_fails_has_waited():
    net = make()
    reader = Reader(net, parameters)
    net.beside_next_step(reader.begin)
    with pytest.raises(ShapeError):
        net.train_one_batch(X[:, :3], LABELS)
    assert not reader.begun, "that batch is no step"
    net.device.pool.set_limit(net.device.pool.used)
    with pytest.raises(OutOfMemoryError):
        net.train_one_batch(np.tile(X, (9999, 1)), np.tile(LABELS, 9999))
    assert reader.begun and reader.waited and not changed(reader.begun, reader.waited[0])


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


def test_evaluation_does_not_begin_it():
    net = make()
    reader = Reader(net, parameters)
    net.beside_next_step(reader.begin)
    net.evaluate(X, LABELS)
    net.predict(X)
    assert not reader.begun
