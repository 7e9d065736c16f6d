"""Ready-made batches: iterators, loaders, batches by number; what of them is refused, and how errors name a batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import skips
from data_nets import COUNT, SIZE, Loader, Numbered, Stateful, X, Y, batches, classifier
from nets import state_of
from singa_lite import FeedForwardNet, GraphError, ShapeError, data
from singa_lite.errors import DataError
from singa_lite.fit import Callback


def plain(epochs: int = 1) -> FeedForwardNet:
    """A net that took the batches one after the other, from arrays."""
    net = classifier()
    net.fit(X, Y, batch_size=SIZE, epochs=epochs, shuffle=False, verbose=False)
    return net


def epoch(number: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same batches in each epoch."""
    return iter(batches())


EPOCHS = 2
SOURCES: dict[str, tuple[Any, dict[str, Any]]] = {
    "a generator": (lambda: itertools.cycle(batches()), {"steps_per_epoch": 5}),
    "a loader": (Loader, {}),
    "a loader, steps": (Loader, {"steps_per_epoch": 5}),
    "a loader, shorter epochs": (Loader, {"steps_per_epoch": 2, "epochs": 5}),
    "by number": (Numbered, {}),
    "by number, threads": (Numbered, {"workers": 3}),
    "by number, prefetched": (Numbered, {"prefetch": 2}),
    "with a state": (Stateful, {}),
    "a loader, prefetched": (Loader, {"prefetch": 9}),
    "epochs": (lambda: data.Epochs(epoch), {}),
}


@pytest.mark.parametrize("name", SOURCES)
def test_batches_of_any_source_train_as_those_of_arrays(name):
    make, options = SOURCES[name]
    net = classifier()
    shuffle = {"shuffle": False} if name.startswith("by number") else {}
    history = net.fit(make(), **{"epochs": EPOCHS, "verbose": False, **shuffle, **options})
    assert state_of(net) == state_of(plain(EPOCHS))
    assert len(history["loss"]) == options.get("epochs", EPOCHS)


def test_batches_by_number_are_shuffled_by_batch_and_told_when_an_epoch_ends():
    source, again = Numbered(), Numbered()
    classifier().fit(source, epochs=3, verbose=False)
    classifier().fit(again, epochs=3, workers=2, verbose=False)
    rounds = [source.asked[start : start + 5] for start in (0, 5, 10)]
    assert all(sorted(each) == list(range(5)) for each in rounds) and len({tuple(each) for each in rounds}) > 1
    assert sorted(again.asked) == sorted(source.asked) and source.ended == 3


def test_an_iterator_is_asked_for_no_more_than_it_is_used():
    left = itertools.cycle(batches())
    net = classifier()
    for _ in range(2):
        net.fit(left, steps_per_epoch=3, prefetch=4, verbose=False)
    assert np.array_equal(next(left)[0], batches()[1][0])


def test_history_counts_the_samples_and_validation_takes_sources_too():
    net, arrays = classifier(), classifier()
    history = net.fit(Loader(), epochs=2, validation_data=Numbered(), verbose=False)
    wanted = arrays.fit(X, Y, SIZE, epochs=2, shuffle=False, validation_data=(X, Y), verbose=False)
    for entry in ("loss", "accuracy", "val_loss", "val_accuracy"):
        assert history[entry] == wanted[entry]
    steps = net.fit(Loader(), validation_data=itertools.cycle(batches()), validation_steps=2, verbose=False)
    assert len(steps["val_loss"]) == 1


def test_weights_of_samples_come_third():
    weights = np.linspace(0, 2, COUNT).astype("f")
    net, arrays = classifier(), classifier()
    three = [(x, y, weights[8 * number :][: len(x)]) for number, (x, y) in enumerate(batches())]
    net.fit(iter(three), verbose=False)
    arrays.fit(X, Y, SIZE, shuffle=False, sample_weight=weights, verbose=False)
    assert state_of(net) == state_of(arrays) != state_of(plain())
    assert net.evaluate(iter(three)) == arrays.evaluate(X, Y, SIZE, sample_weight=weights)


def test_evaluate_and_predict():
    net = classifier()
    assert net.evaluate(Loader()) == net.evaluate(X, Y, SIZE) == net.evaluate(Numbered(), workers=2)
    assert net.evaluate(itertools.cycle(batches()), steps=2) == net.evaluate(X[:16], Y[:16], SIZE)
    wanted = np.asarray(net.predict(X, SIZE))
    assert np.array_equal(net.predict(Loader()), wanted)
    assert np.array_equal(net.predict(x for x, _ in batches()), wanted)


@pytest.mark.peer
@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_loader_of_pytorch_as_it_is(workers):
    torch = skips.library("torch")
    pairs = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    dicts = [{"y": y, "flat": x} for x, y in zip(X, Y, strict=True)]
    for samples in (pairs, dicts):
        net = classifier()
        net.fit(torch.utils.data.DataLoader(samples, batch_size=SIZE, num_workers=workers), verbose=False)
        assert state_of(net) == state_of(plain())
    with pytest.raises(TypeError, match="DataLoader"):
        net.fit(pairs, verbose=False)


# --- batches that are dicts ---------------------------------------------------------------------------------


NAMED = {
    "layers": ({"flat": X}, {"out": Y}),
    "usual names": ({"x": X}, {"y": Y}),
    "other usual names": ({"inputs": X}, {"labels": Y}),
    "layer and usual name": ({"flat": X}, {"target": Y}),
    "a dict below": ({"inputs": {"flat": X}}, {"targets": {"out": Y}}),
}


@pytest.mark.parametrize("name", NAMED)
def test_batches_may_be_dicts(name):
    x, y = NAMED[name]
    net, arrays = classifier(), classifier()
    net.fit(iter([x | y]), prefetch=2, verbose=False)
    arrays.fit(X, Y, COUNT, shuffle=False, verbose=False)
    assert state_of(net) == state_of(arrays)
    assert net.evaluate(iter([x | y])) == net.evaluate(X, Y, COUNT)
    weights = {"sample_weight": np.linspace(0, 1, COUNT, dtype="f")}
    wanted = net.evaluate(X, Y, COUNT, sample_weight=weights["sample_weight"])
    assert net.evaluate(iter([x | weights | y])) == wanted
    for given in (x, x | y):
        assert np.array_equal(net.predict(iter([given])), net.predict(X, COUNT))


# --- what is refused ----------------------------------------------------------------------------------------


class Short(Numbered):
    """Without a batch."""

    def __len__(self) -> int:
        return 0


#: {case: (source, options of fit, error, words)}.
REFUSED: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "targets beside": (lambda: iter(batches()), {"y": Y}, TypeError, "list_iterator"),
    "batch size": (Loader, {"batch_size": 4}, ValueError, "batch_size.*4"),
    "transform": (Loader, {"transform": abs}, ValueError, "transform"),
    "workers": (Loader, {"workers": 2}, ValueError, "workers"),
    "workers of arrays": (lambda: X, {"y": Y, "workers": 2}, ValueError, "workers"),
    "no number of workers": (Loader, {"workers": "2"}, TypeError, "workers"),
    "epochs of an iterator": (lambda: iter(batches()), {"epochs": 2}, ValueError, "steps_per_epoch"),
    "no steps": (Loader, {"steps_per_epoch": 0}, ValueError, "steps_per_epoch"),
    "no batch": (Short, {}, DataError, "len"),
    "nothing": (lambda: iter([]), {}, DataError, "epoch 0"),
    "an entry too many": (lambda: iter([{"flat": X, "y": Y, "z": Y}]), {}, GraphError, "'z'"),
    "a dict of others": (lambda: iter([{"image": X, "y": Y}]), {}, GraphError, "'flat'.*'image'"),
    "no inputs": (lambda: iter([{"y": Y}]), {}, GraphError, "'y'"),
    "no targets": (lambda: iter([{"flat": X}]), {}, TypeError, "'flat'"),
    "no pair": (lambda: iter([X]), {}, TypeError, "ndarray"),
    "three": (lambda: iter([(X, Y, Y, Y)]), {}, TypeError, "tuple of 4"),
    "steps of arrays": (lambda: X, {"y": Y, "steps_per_epoch": 9}, ValueError, "2.*9"),
    "unshuffled steps": (lambda: X, {"y": Y, "steps_per_epoch": 1, "shuffle": False}, ValueError, "shuffle"),
    "window": (lambda: X, {"y": Y, "shuffle_window": "x"}, ValueError, "shuffle_window"),
    "wrong shapes": (lambda: iter([(X[:, :4], Y)]), {}, ShapeError, r"\(5,\).*\(37, 4\)"),
    "unknown input": (lambda: iter([({"b": X}, Y)]), {}, GraphError, "'flat'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_changes_nothing(name):
    make, options, error, words = REFUSED[name]
    net = classifier()
    before = state_of(net)
    with pytest.raises(error, match=words):
        net.fit(make(), verbose=False, **options)
    assert state_of(net) == before


def test_errors_say_which_batch_and_leave_the_net_as_before_it():
    net, three = classifier(), classifier()

    def failing() -> Iterator[Any]:
        yield from batches()[:3]
        raise OSError("the disk is gone")

    for x, y in batches()[:3]:
        three.train_one_batch(x, y)
    for prefetch in (0, 2):
        net = classifier()
        with pytest.raises(OSError, match="the disk is gone") as caught:
            net.fit(failing(), prefetch=prefetch, verbose=False)
        assert caught.value.__notes__ == ["fit: batch 3 of epoch 0, both counted from 0"]
        assert state_of(net) == state_of(three)
    net = classifier()
    with pytest.raises(ShapeError, match=r"received \(3, 4\)") as wrong:
        net.fit(iter([*batches()[:2], (X[:3, :4], Y[:3])]), verbose=False)
    assert wrong.value.__notes__ == ["fit: batch 2 of epoch 0, both counted from 0"]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_generator_that_ends_early(prefetch):
    net = classifier()
    with pytest.raises(DataError, match="epoch 1"):
        net.fit(iter(batches()), steps_per_epoch=4, epochs=2, prefetch=prefetch, verbose=False)
    assert state_of(net) == state_of(plain())


def test_fewer_steps_than_an_array_has_end_an_epoch():
    seen: list[int] = []

    class Seen(Callback):
        def on_batch(self, training: Any) -> None:
            seen.append(training.progress.mean.count)

    history = classifier().fit(X, Y, SIZE, epochs=3, steps_per_epoch=2, callbacks=Seen(), verbose=False)
    assert seen == [8, 16] * 3 and len(history["loss"]) == 3 and COUNT > 16
