"""Sequences of unequal lengths: what data.bucketed yields, and nets that train on fewer steps than their longest."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from nets import bits, state_of
from singa_lite import FeedForwardNet, GraphError, ShapeError, data, device, layers, loss, metric, optimizer
from singa_lite.data.bucketed import best_boundaries
from singa_lite.snapshots.checkpoints.callback import Checkpoint

IDS, TIME, DIM = 23, 12, 6
RNG = np.random.default_rng(5)
LENGTHS = [3, 11, 1, 7, 7, 2, 9, 4, 4, 5, 11, 6, 1, 3, 8, 2, 10, 5, 4, 3, 6]
X = [RNG.integers(0, IDS, length) for length in LENGTHS]
Y = [RNG.integers(0, IDS, length) for length in LENGTHS]


def of_tokens(**options: Any) -> data.Bucketed:
    given = {"batch_size": 4, "boundaries": [3, 7, 11], "ignore_index": -1} | options
    return data.bucketed(X, Y, given.pop("batch_size"), **given)


def net_of(steps: int = TIME, **compiling: Any) -> Any:
    net = FeedForwardNet(
        loss.SoftmaxCrossEntropy(-1, ignore_index=-1), metric.Accuracy(-1, ignore_index=-1), device.new_cpu(), seed=3
    )
    net.add(layers.Embedding("table", IDS, DIM, mask_zero=True, input_sample_shape=(steps,)))
    net.add(layers.LearnedPositions("positions", TIME))
    net.add(layers.SinusoidalPositions("waves"))
    net.add(layers.TransformerBlock("block", 3, True, rotary=True, dropout=0.1))
    net.add(layers.Residual("beside", [layers.RMSNormalization("norm"), layers.Dense("same", DIM)]))
    net.add(layers.TimeDistributed("each", layers.Dense("scores", IDS)))
    net.compile(optimizer.Adam(0.01), **compiling)
    return net


# --- what it yields -----------------------------------------------------------------------------------------


def test_batches_are_padded_and_hold_each_sequence_once():
    buckets = of_tokens()
    for batches in (list(buckets), list(buckets.epoch(3))):
        assert len(batches) == len(buckets) == 6
        assert {x.shape for x, _ in batches} == set(buckets.forms) == {(4, 3), (4, 7), (4, 11), (1, 11)}
        found = []
        for x, y in batches:
            assert x.dtype == y.dtype == np.int64
            for row, target in zip(x, y, strict=True):
                length = int((target != -1).sum())
                assert (target[:length] != -1).all() and not row[length:].any()
                found.append((row[:length].tolist(), target[:length].tolist()))
        assert sorted(found) == sorted((x.tolist(), y.tolist()) for x, y in zip(X, Y, strict=True))


def test_what_is_left_of_a_bucket_goes_into_the_next_longer_one():
    texts = [np.full(length, length) for length in (1, 2, 1, 4, 1, 3)]
    batches = [x.tolist() for x, _ in data.bucketed(texts, texts, 2, boundaries=[2, 4])]
    assert batches == [[[1, 0], [2, 2]], [[1, 0], [1, 0]], [[4, 4, 4, 4], [3, 3, 3, 0]]]
    batches = [x.tolist() for x, _ in data.bucketed(texts, texts, 3, boundaries=[2, 4])]
    assert batches == [[[1, 0], [2, 2], [1, 0]], [[1, 0, 0, 0], [4, 4, 4, 4], [3, 3, 3, 0]]]


def test_an_epoch_has_an_order_of_its_own_and_the_same_each_time():
    first, again, next_one, other = (
        [x.tolist() for x, _ in of_tokens(seed=seed).epoch(number)] for seed, number in ((1, 0), (1, 0), (1, 1), (2, 0))
    )
    assert first == again
    assert first != next_one and first != other


def test_targets_of_sequences_come_with_them():
    buckets = data.bucketed(X, np.arange(len(X)), 5, padding=2)
    for x, y in buckets.epoch(0):
        for row, number in zip(x, y, strict=True):
            assert row.tolist() == [*X[number], *[2] * (x.shape[1] - len(X[number]))]


def test_batches_of_so_many_tokens_have_more_of_the_short_sequences():
    buckets = data.bucketed(X, Y, batch_tokens=25, boundaries=[3, 7, 11])
    assert buckets.sizes == (8, 3, 2)
    assert all(x.size <= 25 for x, _ in buckets)
    assert sum((y != -100).sum() for _, y in buckets) == sum(LENGTHS)
    positions = sum(x.size for x, _ in buckets)
    assert buckets.padded == pytest.approx(1 - sum(LENGTHS) / positions)


def test_chosen_lengths_have_the_least_padding():
    for seed in range(20):
        random = np.random.default_rng(seed)
        lengths, count = random.integers(1, 14, 25), int(random.integers(1, 5))

        def padding(ends: Any, lengths: Any = lengths) -> int:
            return int(sum(ends[np.searchsorted(ends, each)] - each for each in lengths))

        sizes = np.unique(lengths)
        tried = itertools.combinations(sizes[:-1], min(count, len(sizes)) - 1)
        assert padding(best_boundaries(lengths, count)) == min(padding(np.array([*ends, sizes[-1]])) for ends in tried)


# --- nets over fewer steps ----------------------------------------------------------------------------------


def test_a_shorter_batch_gives_what_a_net_of_that_length_gives():
    whole, short = net_of(fuse=False), net_of(5, fuse=False)
    x = RNG.integers(1, IDS, (3, 5))
    for _ in range(2):
        assert float(whole.train_one_batch(x, x)[0]) == float(short.train_one_batch(x, x)[0])
    assert bits(whole.predict(x)) == bits(short.predict(x))
    assert whole.forward(False, x).shape == (3, 5, IDS)


def test_each_form_is_recorded_once_and_every_mode_ends_with_equal_bits():
    buckets, results = of_tokens(), []
    for options in ({}, {"graph": False}, {"memory_budget": "200 kB"}):
        net = net_of(fuse=False, **options)
        history = net.fit(buckets, epochs=2, validation_data=buckets, verbose=False, prefetch=len(results))
        results.append((state_of(net), history["loss"], history["val_accuracy"]))
        forms = [(kind, form[0][2]) for kind, form in net.recorded_forms]
        wanted = [(kind, form) for kind in ("train", "evaluate") for form in buckets.forms]
        assert sorted(forms) == ([] if "graph" in options else sorted(wanted))
    assert results[0] == results[1] == results[2]
    assert net.evaluate(buckets)[1] == results[2][2][-1]


@pytest.mark.parametrize(
    "sizes", [{"batch_size": 4}, pytest.param({"batch_size": None, "batch_tokens": 25}, marks=pytest.mark.nightly)]
)
def test_a_run_that_is_resumed_ends_with_equal_bits(tmp_path, sizes):
    buckets = of_tokens(**sizes)
    whole = net_of()
    history = whole.fit(buckets, epochs=2, verbose=False)
    begun = net_of()
    begun.fit(buckets, epochs=1, verbose=False, callbacks=[Checkpoint(tmp_path, every_steps=4, keep=9)])
    for file in sorted(tmp_path.glob("*.h5")):
        resumed = net_of()
        assert resumed.fit(buckets, epochs=2, verbose=False, resume=file)["loss"] == history["loss"]
        assert state_of(resumed) == state_of(whole)
    with pytest.raises(OSError, match="buckets"):
        net_of().fit(of_tokens(**sizes, boundaries=[3, 8, 11]), epochs=2, verbose=False, resume=file)


def test_targets_of_sequences_train_a_net_whose_output_has_no_time():
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device.new_cpu(), seed=3)
    net.add(layers.Embedding("table", IDS, DIM, input_sample_shape=(TIME,)))
    net.add(layers.GRU("last", 3))
    net.add(layers.Dense("scores", 4))
    net.compile(optimizer.SGD(0.1))
    buckets = data.bucketed(X, np.arange(len(X)) % 4, 4)
    first = net.evaluate(buckets)[0]
    net.fit(buckets, epochs=5, verbose=False)
    assert net.evaluate(buckets)[0] < first


# --- bad input ----------------------------------------------------------------------------------------------


#: {case: (inputs, targets, options, error, words)}.
BAD: dict[str, tuple[Any, Any, dict[str, Any], type[Exception], str]] = {
    "none": ([], [], {}, ShapeError, "none"),
    "text": ("text", "text", {}, TypeError, "sequences.*str"),
    "an empty one": ([[1], []], [0, 1], {}, ShapeError, "sequence 1"),
    "a table": ([[1], [[2]]], [0, 1], {}, ShapeError, "sequence 1"),
    "floats": ([[1], [0.5]], [0, 1], {}, TypeError, "sequence 1.*float64"),
    "bools": ([[1], [True]], [0, 1], {}, TypeError, "sequence 1.*bool"),
    "too few targets": (X, X[:-1], {}, ShapeError, "21.*20"),
    "a short target": (X, [*X[:-1], [1]], {}, ShapeError, "target 20"),
    "few numbers": (X, np.arange(3), {}, ShapeError, "21.*3"),
    "one number": (X, 3, {}, ShapeError, "shape"),
    "no size": (X, Y, {"batch_size": None}, ValueError, "neither"),
    "both sizes": (X, Y, {"batch_tokens": 30}, ValueError, "both"),
    "few tokens": (X, Y, {"batch_size": None, "batch_tokens": 10}, ValueError, "10"),
    "size 0": (X, Y, {"batch_size": 0}, ValueError, "batch_size"),
    "short boundaries": (X, Y, {"boundaries": [3, 7]}, ValueError, "11 of number 1.* 7"),
    "falling boundaries": (X, Y, {"boundaries": [7, 3, 11]}, ValueError, "boundaries"),
    "no boundaries": (X, Y, {"boundaries": 0}, ValueError, "boundaries"),
    "boundaries of text": (X, Y, {"boundaries": "8"}, TypeError, "boundaries"),
    "negative padding": (X, Y, {"padding": -1}, ValueError, "padding"),
    "padding beyond the dtype": ([np.array([1], np.int8)], [0], {"padding": 128}, ValueError, "padding.*127"),
    "half an index": (X, Y, {"ignore_index": 0.5}, TypeError, "ignore_index"),
    "seed": (X, Y, {"seed": -1}, ValueError, "seed"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_sequences_are_refused(name):
    x, y, options, error, words = BAD[name]
    with pytest.raises(error, match=words):
        data.bucketed(x, y, **{"batch_size": 4, **options})


#: {case: (what fit is given, error, words)}.
UNFIT: dict[str, tuple[Any, type[Exception], str]] = {
    "targets beside": (lambda: (of_tokens(), Y), ValueError, "fit y"),
    "a batch size": (lambda: (of_tokens(), None, 4), ValueError, "fit batch_size"),
    "longer than the net": (lambda: (of_tokens(boundaries=[7, 13]),), ShapeError, "12 steps"),
    "another index": (lambda: (of_tokens(ignore_index=-2),), ValueError, "ignore_index=-2"),
    "an id": (lambda: (data.bucketed([*X, [1, IDS]], [*Y, [1, 1]], 4),), ValueError, "23 in sample 21, position 1"),
    "a target": (lambda: (data.bucketed([*X, [1, 2]], [*Y, [1, IDS]], 4),), ValueError, "target 21.*23"),
    "forms": (lambda: (of_tokens(batch_size=2, boundaries=range(1, 13)),), ValueError, "SINGA_LITE_STEPS"),
    "no buckets": (lambda: (X, Y), ValueError, "equal lengths"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_net_refuses_what_does_not_fit_before_anything_changes(name):
    make, error, words = UNFIT[name]
    net = net_of()
    before = state_of(net)
    given = make()
    validation = given[0] if isinstance(given[0], data.Bucketed) else None
    with pytest.raises(error, match=words):
        net.fit(*given, validation_data=validation, verbose=False)
    assert state_of(net) == before


def test_a_layer_that_takes_one_length_alone_is_named():
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), seed=3)
    net.add(layers.Embedding("table", IDS, DIM, input_sample_shape=(TIME,)))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 4))
    net.compile(optimizer.SGD(0.1))
    with pytest.raises(ShapeError, match="'flat' takes that many steps and no fewer"):
        net.fit(data.bucketed(X, np.zeros(len(X), int), 4), verbose=False)
    with pytest.raises(ShapeError, match=r"wanted a batch of samples \(12,\)"):
        net.train_one_batch(np.zeros((3, 5), int), np.zeros(3, int))
    net.fit(data.bucketed(X, np.zeros(len(X), int), 4, boundaries=[TIME]), verbose=False)


def test_a_net_of_numbers_takes_no_buckets():
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(), seed=3)
    net.add(layers.Dense("scores", 4, input_sample_shape=(TIME,)))
    net.compile(optimizer.SGD(0.1))
    with pytest.raises(GraphError, match="one input of ids"):
        net.fit(of_tokens(), verbose=False)
    with pytest.raises(ShapeError, match=r"wanted a batch of samples \(12,\)"):
        net.predict(np.zeros((3, 5), np.float32))
