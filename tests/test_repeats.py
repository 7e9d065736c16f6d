"""Batches of a form that was trained before: nothing that a first batch is checked for is lost, no change is missed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nets import state_of
from singa_lite import FeedForwardNet, OutOfMemoryError, ShapeError, device, layers, loss, metric, optimizer
from singa_lite.common.value_checks import ClassIds
from singa_lite.errors import GraphError
from singa_lite.graph.graph import Pause

CLASSES = 3


def made(of: loss.Loss | None = None, metrics: object = None, graph: bool = True, **options: object) -> FeedForwardNet:
    net = FeedForwardNet(of or loss.SoftmaxCrossEntropy(), metrics or metric.Accuracy(), seed=3, **options)
    net.add(layers.Dense("hidden", 5, input_sample_shape=(4,)))
    net.add(layers.Activation("relu"))
    net.add(layers.Dense("scores", CLASSES))
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9), graph=graph)
    return net


def batch(size: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return draw.standard_normal((size, 4)).astype(np.float32), draw.integers(0, CLASSES, size)


def repeated(net: FeedForwardNet) -> FeedForwardNet:
    for seed in range(3):
        net.train_one_batch(*batch(seed=seed))
    return net


@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "u1", "u8"])
@pytest.mark.parametrize("classes", [3, 100, 128, 200, 300])
@pytest.mark.parametrize("ignored", [None, -1, 7])
def test_class_ids_are_told_from_others(dtype, classes, ignored):
    info, asked = np.iinfo(dtype), ClassIds(classes, ignored)
    for value in {0, classes - 1, classes, -1, -2, 7, info.min, info.max}:
        if info.min <= value <= info.max:
            ids = np.array([[0, 1], [value, 2]], dtype)
            assert asked(ids) == asked(ids.T) == (0 <= value < classes or value == ignored), value
    assert asked(np.empty((2, 0), dtype))


@pytest.mark.parametrize("wrong", [-1, CLASSES, -(2**63)])
def test_an_id_that_is_none_is_refused_as_in_a_first_batch(wrong):
    x, y = batch()
    bad = y.copy()
    bad[4] = wrong
    net = repeated(made())
    before, errors = state_of(net), []
    for one in (made(), net):
        with pytest.raises(ValueError) as caught:
            one.train_one_batch(x, bad)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    assert state_of(net) == before
    net.train_one_batch(x, y)


def embedded() -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=1)
    net.add(layers.Embedding("table", 7, 3, input_sample_shape=(2,)))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", CLASSES))
    net.compile(optimizer.SGD(lr=0.1))
    return net


class Even(loss.SoftmaxCrossEntropy):
    """Asks for more than its base."""

    def check_target(self, x_shape, dtype, target):
        super().check_target(x_shape, dtype, target)
        if isinstance(target, np.ndarray) and (target % 2).any():
            raise ValueError("wanted even ids")


IDS, EYE = np.array([[0, 6], [3, 2]]), np.eye(CLASSES, dtype=np.float32)
#: (net, a batch that it takes, one that it refuses, what the error names).
REFUSED: dict[str, tuple[Callable[[], FeedForwardNet], tuple[Any, Any], tuple[Any, Any], str]] = {
    "rows that are no weights": (made, (batch()[0], EYE[batch()[1]]), (batch()[0], 0 * EYE[batch()[1]]), "sum"),
    "an id above": (embedded, (IDS, [0, 2]), (np.array([[0, 6], [7, 2]]), [0, 2]), "received 7 in sample 1"),
    "an id below": (embedded, (IDS, [0, 2]), (np.array([[0, 6], [-1, 2]]), [0, 2]), "received -1 in sample 1"),
    "by a check of one's own": (
        lambda: made(Even()),
        (batch()[0], batch()[1] // 2 * 2),
        (batch()[0], np.ones(6, int)),
        "even",
    ),
    "another dtype": (made, batch(), (batch()[0].astype(np.float64), batch()[1]), "float64"),
}


@pytest.mark.parametrize(("make", "good", "bad", "words"), REFUSED.values(), ids=REFUSED)
def test_each_batch_is_looked_at(make, good, bad, words):
    net = make()
    for _ in range(3):
        net.train_one_batch(*good)
    before = state_of(net)
    with pytest.raises((TypeError, ValueError), match=words):
        net.train_one_batch(*bad)
    assert state_of(net) == before


def test_metrics_that_are_exchanged_or_renamed_are_followed():
    net = repeated(made(metrics=[metric.Accuracy(), metric.TopKAccuracy(2)]))
    net.metric = [net.metric[0], metric.TopKAccuracy(1)]
    assert [*net.train_one_batch(*batch())[1]] == ["accuracy", "top_1_accuracy"]
    net.metric[0].name = "right"
    assert [*net.train_one_batch(*batch())[1]] == ["right", "top_1_accuracy"]


def test_a_batch_in_another_form_is_converted():
    net, (x, y) = repeated(made()), batch()
    forms = [(x, y[:, None].astype(np.float32))]
    for order in ("C", "F"):
        forms += [(np.asarray(x, ">f4", order=order), y), (np.asarray(x, order=order), y)]
    for given in forms:
        expected = float(net.evaluate_one_batch(x, y)[0])
        assert float(net.train_one_batch(*given)[0]) == pytest.approx(expected)


def test_the_place_of_a_batch_is_given_back_when_a_longer_one_comes():
    net = repeated(made())
    net.train_one_batch(*batch(400))
    for seed in range(3):
        results = net.train_one_batch(*batch(400, seed))
        results = net.train_one_batch(*batch(6, seed))
    used = net.device.pool.used
    for seed in range(3):
        results = net.train_one_batch(*batch(400, seed))
        results = net.train_one_batch(*batch(6, seed))
    assert net.device.pool.used == used
    del results


def test_a_schedule_that_uses_the_net_within_a_step():
    """What it does takes the place of the batch, and bytes where the step was bound."""
    net, twin, given = made(), made(), batch()
    for each in (net, twin):
        repeated(each)

    def rate(step: int) -> float:
        assert net.unfinished_at == ""
        net.evaluate_one_batch(*batch(50 * step))
        return 0.1

    net.optimizer.lr = rate
    for _ in range(3):
        assert float(net.train_one_batch(*given)[0]) == float(twin.train_one_batch(*given)[0])
    assert state_of(net) == state_of(twin)


def test_a_forward_by_hand_and_who_reads_parameters_are_seen_between_two_batches():
    net, given = repeated(made()), batch()
    net.forward(True, given[0])
    net.train_one_batch(*given)
    with pytest.raises(GraphError, match="wanted forward"):
        net.backward(np.ones((6, CLASSES), np.float32))
    begun: list[str] = []

    def begin() -> Pause:
        begun.append("begun")
        return Pause({value.block for value in net.param_values()}, lambda: begun.append("waited for"))

    net.beside_next_step(begin)
    net.train_one_batch(*given)
    assert begun[:2] == ["begun", "waited for"]


def test_an_optimizer_that_another_net_was_compiled_with_is_refused():
    net = repeated(made())
    net.optimizer.restore_step(0)
    net.optimizer.state.clear()
    other = made()
    other.compile(net.optimizer)
    with pytest.raises(GraphError, match="one that another net was compiled with"):
        net.train_one_batch(*batch())


def test_a_metric_over_an_epoch_gets_the_scores_and_targets_of_each_batch():
    net, twin = made(metrics=metric.ConfusionMatrix()), made(metrics=metric.ConfusionMatrix(), graph=False)
    for seed in range(4):
        given = batch(seed=seed)
        for each in (net, twin):
            each.train_one_batch(*given)
        assert net.observed is not None and twin.observed is not None
        (found,), (wanted,) = net.observed.statistics.values(), twin.observed.statistics.values()
        assert np.array_equal(found, wanted)


# --- work beside a training step, waited for before what it reads is written

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
