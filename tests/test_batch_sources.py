"""Batches of all sources: equal to those of arrays, made ahead in a thread, resumed to equal bits, or refused."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import skips
from data_nets import COUNT, SIZE, Loader, Numbered, Stateful, StopAt, X, Y, batches, classifier, noisy
from nets import state_of
from singa_lite import FeedForwardNet, GraphError, ShapeError, SnapshotError, data
from singa_lite.data.loading.data_set import DataSet, InTurn, Share, count_of
from singa_lite.errors import DataError, ParallelError
from singa_lite.fit import Callback, StopTraining
from singa_lite.snapshots.checkpoints import checkpoint
from singa_lite.training.loop import sources
from singa_lite.training.loop.means import MetricShard
from singa_lite.training.loop.rank_batches import RankBatches
from test_bucketed import net_of, of_tokens
from thread_ranks import ThreadRanks, on_ranks


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
    "a generator of float64": (
        lambda: ((x.astype("d"), y) for x, y in itertools.cycle(batches())),
        {"steps_per_epoch": 5},
    ),
    "a generator of lists": (lambda: ((x.tolist(), y) for x, y in itertools.cycle(batches())), {"steps_per_epoch": 5}),
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


# --- made ahead in a thread ---------------------------------------------------------------------------------


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("prefetch")]


@pytest.mark.parametrize("shuffle", [True, False])
def test_training_is_the_same_to_the_bit(tmp_path, shuffle):
    X.tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.float32, "r", shape=X.shape)
    outcomes = []
    for prefetch, x in ((0, X), (1, X), (3, mapped), (100, {"flat": X})):
        one = classifier()
        settings = {"batch_size": 6, "epochs": 2, "validation_data": (x, Y), "verbose": False}
        told = one.fit(x, Y, shuffle=shuffle, prefetch=prefetch, **settings)
        outcomes.append((state_of(one), told["loss"], told["val_loss"]))
    assert all(outcome == outcomes[0] for outcome in outcomes[1:])
    assert not threads()


@pytest.mark.parametrize("prefetch", [0, 1, 2])
def test_so_many_batches_are_made_ahead_and_no_more(prefetch):
    source, ahead = Numbered(), []

    class Noting(Callback):
        def on_batch(self, training):
            ahead.append(len(source.asked) - len(ahead) - 1)

    classifier().fit(source, prefetch=prefetch, shuffle=False, verbose=False, callbacks=Noting())
    assert max(ahead) <= prefetch and (max(ahead) > 0) == (prefetch > 0)


def test_the_thread_ends_with_an_error_of_the_step():
    class Broken(Callback):
        def on_batch(self, training):
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        classifier().fit(X, Y, batch_size=2, prefetch=2, verbose=False, callbacks=[Broken()])
    assert not threads()


# --- a source that refills what it gave ---------------------------------------------------------------------


class Refilled:
    """Batches by number and one after the other, all in the same few arrays. given: what a batch is made of them."""

    def __init__(self, count: int = 1, given: Any = lambda x, y: (x, y)) -> None:
        self.arrays = [(np.empty((SIZE, 5), "f"), np.empty(SIZE, "q")) for _ in range(count)]
        self.made = [given(*pair) for pair in self.arrays]

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> Any:
        place = number % len(self.arrays)
        for array, values in zip(self.arrays[place], batches()[number], strict=True):
            array[...] = values
        return self.made[place]

    def epoch(self, number: int = 0) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))


class OnlyIterated(Stateful):
    """A loader without numbers that says where it is, in a dict that it changes as it goes."""

    def __init__(self) -> None:
        self.source, self.state = Refilled(), {"done": 0}

    def __iter__(self) -> Iterator[Any]:
        for made in self.source.epoch():
            self.state["done"] += 1
            yield made

    def state_dict(self) -> dict[str, int]:
        return self.state


def as_tensors(x: np.ndarray, y: np.ndarray) -> Any:
    torch = skips.library("torch")
    return torch.from_numpy(x), torch.from_numpy(y)


def as_frames(x: np.ndarray, y: np.ndarray) -> Any:
    pandas = skips.library("pandas")
    return pandas.DataFrame(x, copy=False), pandas.Series(y, copy=False)


REFILLING: dict[str, tuple[Any, dict[str, Any]]] = {
    "an iterator": (lambda: Refilled().epoch(), {}),
    "epochs": (lambda: data.Epochs(Refilled().epoch), {"epochs": 2}),
    "a loader": (OnlyIterated, {"epochs": 2}),
    "dicts": (lambda: Refilled(1, lambda x, y: ({"flat": x}, [y][0])).epoch(), {}),
    "tensors of PyTorch": (lambda: Refilled(1, as_tensors).epoch(), {}),
    "tables of pandas": (lambda: Refilled(1, as_frames).epoch(), {}),
    "memory": (lambda: Refilled(1, lambda x, y: [memoryview(x), memoryview(y)]).epoch(), {}),
    "by number": (Refilled, {}),
    "by number, threads": (Refilled, {"workers": 3}),
    "by number, two in turn, threads": (lambda: Refilled(2), {"workers": 4}),
    "validation": (lambda: Refilled().epoch(), {"validation_data": None}),
}


@pytest.mark.parametrize("name", REFILLING)
def test_batches_in_refilled_arrays_are_those_without_prefetch(name):
    make, options = REFILLING[name]
    told = []
    for prefetch in (0, 3):
        one = classifier()
        given = {"shuffle": False, "verbose": False, "prefetch": prefetch, **options}
        if prefetch == 0:
            given.pop("workers", None)
        if "validation_data" in given:
            given["validation_data"] = data.Epochs(Refilled().epoch)
        told.append((one.fit(make(), **given)["loss"], state_of(one), one.evaluate(Refilled(), prefetch=prefetch)))
    assert told[0] == told[1]


def test_the_place_of_a_loader_is_that_behind_the_batch_that_was_used():
    places: list[Any] = []

    class Noting(Callback):
        def on_batch(self, training):
            places.append(training.progress.place)

    classifier().fit(OnlyIterated(), prefetch=3, verbose=False, callbacks=Noting())
    assert places == [{"done": 1}, {"done": 2}, {"done": 3}, {"done": 4}]


class OwnSet:
    """A set of a user's own on disk, which reads into one array. starts: of its chunks, None: it has none."""

    def __init__(self, starts: list[int] | None) -> None:
        self.shape, self.dtype, self.starts = X.shape, X.dtype, starts
        self.read = np.empty_like(X)

    def __getitem__(self, index: Any) -> np.ndarray:
        found = X[index]
        self.read[: len(found)] = found
        return self.read[: len(found)]


@pytest.mark.parametrize("starts", [None, [0, 4, 9, 16]])
def test_a_set_that_reads_into_one_array(starts):
    options = {"batch_size": 6, "verbose": False, "shuffle": False}
    outcomes = []
    for x, prefetch in ((X, 0), (OwnSet(starts), 0), (OwnSet(starts), 3)):
        one = classifier()
        one.fit(x, Y, prefetch=prefetch, **options)
        outcomes.append(state_of(one))
    assert outcomes[0] == outcomes[1] == outcomes[2]


# --- a run that goes on -------------------------------------------------------------------------------------


def shuffled(epoch: int) -> Iterator[Any]:
    """Batches in an order of the epoch's own."""
    return (batches()[number] for number in np.random.default_rng([7, epoch]).permutation(5))


RESUMED: dict[str, tuple[Any, dict[str, Any]]] = {
    "a transform": (lambda: X, {"y": Y, "batch_size": 8, "transform": noisy}),
    "a transform, workers": (lambda: X, {"y": Y, "batch_size": 8, "transform": noisy, "workers": 2}),
    "by number": (Numbered, {}),
    "by number, some": (Numbered, {"steps_per_epoch": 4}),
    "epochs": (lambda: data.Epochs(shuffled), {}),
    "epochs, some": (lambda: data.Epochs(shuffled), {"steps_per_epoch": 4, "prefetch": 2}),
    "with a state": (Stateful, {}),
    "with a state, ahead": (Stateful, {"prefetch": 2}),
    "with a state, some": (Stateful, {"steps_per_epoch": 4}),
    "fewer steps": (lambda: X, {"y": Y, "batch_size": 8, "steps_per_epoch": 3}),
}


def check_resumed(make: Any, options: dict[str, Any], path: Path, at: int) -> None:
    whole, stopped, resumed = classifier(), classifier(), classifier()
    options = {"epochs": 3, "verbose": False, **options}
    wanted = whole.fit(make(), **options)
    stopped.fit(make(), callbacks=StopAt(at, path), **options)
    history = resumed.fit(make(), resume=path, **options)
    assert state_of(resumed) == state_of(whole)
    assert history["loss"] == wanted["loss"] and history["accuracy"] == wanted["accuracy"]


@pytest.mark.parametrize("at", [5, 7])
@pytest.mark.parametrize("name", RESUMED)
def test_it_goes_on_to_equal_bits(name, at, tmp_path):
    """From within an epoch of 5 batches, and from its end."""
    check_resumed(*RESUMED[name], tmp_path / "run.h5", at)


def test_windows_go_on_to_equal_bits(tmp_path):
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(4, 5))
    with h5py.File(tmp_path / "set.h5", "r") as file:
        options = {"y": Y, "batch_size": 8, "shuffle_window": 16 * 20, "transform": noisy}
        check_resumed(lambda: file["x"], options, tmp_path / "run.h5", 7)


#: {case: (source, options of the first run, steps that it does, options that it goes on with, words)}.
NOT_RESUMED: dict[str, tuple[Any, dict[str, Any], int, dict[str, Any], str]] = {
    "a loader within an epoch": (Loader, {}, 3, {}, "batch 3 of epoch 0"),
    "a generator": (lambda: itertools.cycle(batches()), {"steps_per_epoch": 4}, 7, {}, "itertools.cycle"),
    "other steps": (Numbered, {"steps_per_epoch": 4}, 3, {"steps_per_epoch": 3}, "steps 3, received 4"),
}


@pytest.mark.parametrize("name", NOT_RESUMED)
def test_a_place_that_cannot_be_kept_is_said_and_changes_nothing(name, tmp_path):
    make, options, at, other, words = NOT_RESUMED[name]
    path = tmp_path / "run.h5"
    classifier().fit(make(), epochs=3, verbose=False, callbacks=StopAt(at, path), **options)
    net = classifier()
    before = state_of(net)
    with pytest.raises(SnapshotError, match=words):
        net.fit(make(), epochs=3, verbose=False, resume=path, **(options | other))
    assert state_of(net) == before


class EpochsEnd(Callback):
    """A checkpoint at the first epoch's end."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_epoch(self, training: Any) -> None:
        checkpoint.save(training, self.path)
        raise StopTraining


def test_a_loader_goes_on_from_an_epochs_end_and_says_what_it_cannot_know(tmp_path):
    whole, resumed = classifier(), classifier()
    whole.fit(Loader(), epochs=2, verbose=False)
    classifier().fit(Loader(), epochs=2, verbose=False, callbacks=EpochsEnd(tmp_path / "run.h5"))
    with pytest.warns(UserWarning, match="Loader"):
        resumed.fit(Loader(), epochs=2, verbose=False, resume=tmp_path / "run.h5")
    assert state_of(resumed) == state_of(whole)


def test_a_state_that_does_not_fit(tmp_path):
    class Other(Stateful):
        def load_state_dict(self, state: Any) -> None:
            raise KeyError("given")

    path = tmp_path / "run.h5"
    classifier().fit(Stateful(), verbose=False, callbacks=StopAt(2, path))
    net = classifier()
    before = state_of(net)
    with pytest.raises(SnapshotError, match="KeyError"):
        net.fit(Other(), verbose=False, resume=path)
    assert state_of(net) == before


# --- shares of several processes ----------------------------------------------------------------------------


def data_of(net: Any, x: Any, y: Any, **options: Any) -> DataSet:
    loading = sources.checked_loading("fit", options.pop("workers", 0), options.pop("window", None))
    return sources.data_set("fit", net, net.trainer.objective(), x, y, options.pop("size", None), loading, **options)


def kinds(path: Any) -> dict[str, Any]:
    """What makes a data set: arrays, one on disk in chunks, transformed samples, sequences in buckets."""
    with h5py.File(path / "x.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(3, 5))
    opened = h5py.File(path / "x.h5")
    return {
        "arrays": lambda: data_of(classifier(), X, Y, size=7),
        "chunks": lambda: data_of(classifier(), opened["x"], Y, size=7, window=600),
        "a transform": lambda: data_of(classifier(), X, Y, size=7, transform=noisy),
        "workers": lambda: data_of(classifier(), X, Y, size=7, transform=noisy, workers=2),
        "buckets": lambda: data_of(net_of(), of_tokens(), None),
    }


@pytest.mark.parametrize("kind", ["arrays", "chunks", "a transform", "workers", "buckets"])
@pytest.mark.parametrize("ranks", [1, 3, 8])
@pytest.mark.parametrize("shares", [Share, InTurn])
def test_all_ranks_together_have_each_batch(kind: str, ranks: int, shares: type[Share], tmp_path: Any):
    make = kinds(tmp_path)[kind]
    whole = make()
    order, start, ahead = whole.draw(np.random.default_rng(3)), 2, 2
    wanted = list(whole.through(order, start, 0, 1, 77))
    found = []
    for rank in range(ranks):
        one = make()
        one.divide(shares(rank, ranks))
        assert one.count == whole.count and one.batch_size == whole.batch_size
        found.append(list(one.through(order, start, ahead, 1, 77)))
        sizes = {0 if batch is None else count_of(batch[0]) for batch in found[-1]}
        assert len(sizes) <= 3 and one.forms <= whole.forms
        empty = one.without_samples()
        assert [part.shape[0] for part in empty] == [0, 0]
        assert [part.ndim for part in empty] == [part.ndim for part in wanted[0]]
        assert empty[1].dtype == wanted[0][1].dtype
    for number, batch in enumerate(wanted):
        parts = [each[number] for each in found if each[number] is not None]
        assert len(parts) == (1 if shares is InTurn else min(ranks, count_of(batch[0])))
        for at in (0, 1):
            np.testing.assert_array_equal(np.concatenate([part[at] for part in parts]), batch[at])


# --- coming to batches together -----------------------------------------------------------------------------


def test_an_error_in_one_rank_s_data_ends_all_behind_the_batch_before():
    class Failing(Numbered):
        def __getitem__(self, number: int) -> Any:
            if number == 2:
                raise OSError("the disk is gone")
            return super().__getitem__(number)

    seen: list[list[int]] = [[], []]

    def one(ranks: ThreadRanks) -> Any:
        given = data_of(classifier(), Failing() if ranks.rank else Numbered(), None)
        turns = RankBatches(ranks, given.through(), given)  # type: ignore[arg-type]  # as much as it asks for
        for batch in turns:
            turns.gather_shards(MetricShard(count_of(batch[0]), 1.0, 1.0, {}, None))
            seen[ranks.rank].append(count_of(batch[0]))

    other, own = on_ranks(2, one)
    assert isinstance(own, OSError) and str(own) == "the disk is gone"
    assert isinstance(other, ParallelError) and "rank 1 of 2 failed: OSError: the disk is gone" in str(other)
    assert seen == [[8, 8], [8, 8]]


def test_a_rank_without_any_batch_says_so():
    def one(ranks: ThreadRanks) -> Any:
        given = data_of(classifier(), iter([(X[:4], Y[:4])] if ranks.rank else []), None)
        return list(RankBatches(ranks, given.through(), given))  # type: ignore[arg-type]  # as much as it asks for

    own, other = on_ranks(2, one)
    assert isinstance(own, DataError)
    assert isinstance(other, ParallelError) and "rank 0 of 2" in str(other) and "DataError" in str(other)
