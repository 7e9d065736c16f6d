"""Items made ahead in a thread: the same ones in the same order, errors where they belong, and no thread left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import skips
from data_nets import Stateful, classifier
from nets import state_of
from singa_lite import FeedForwardNet, data
from singa_lite.fit import Callback

RNG = np.random.default_rng(4)
X, LABELS = RNG.normal(size=(23, 5)).astype("f"), RNG.integers(0, 3, 23)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("prefetch")]


# --- in fit -------------------------------------------------------------------------------------------------


def net() -> FeedForwardNet:
    return classifier((5,))


@pytest.mark.parametrize("shuffle", [True, False])
def test_training_is_the_same_to_the_bit(tmp_path, shuffle):
    X.tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.float32, "r", shape=X.shape)
    outcomes = []
    for prefetch, x in ((0, X), (1, X), (3, mapped), (100, {"flat": X})):
        one = net()
        settings = {"batch_size": 6, "epochs": 2, "validation_data": (x, LABELS), "verbose": False}
        told = one.fit(x, LABELS, shuffle=shuffle, prefetch=prefetch, **settings)
        outcomes.append((state_of(one), told["loss"], told["val_loss"]))
    assert all(outcome == outcomes[0] for outcome in outcomes[1:])
    assert not threads()


def test_the_thread_ends_with_an_error_of_the_step():
    class Broken(Callback):
        def on_batch(self, training):
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        net().fit(X, LABELS, batch_size=2, prefetch=2, verbose=False, callbacks=[Broken()])
    assert not threads()


@pytest.mark.parametrize("prefetch", [-1, 1.5, "two", None])
def test_what_is_no_count(prefetch):
    with pytest.raises((ValueError, TypeError), match="fit prefetch"):
        net().fit(X, LABELS, prefetch=prefetch, verbose=False)


# --- a source that refills what it gave ---------------------------------------------------------------------

SIZE = 5


def batch(number: int) -> tuple[np.ndarray, np.ndarray]:
    return X[number * SIZE : (number + 1) * SIZE], LABELS[number * SIZE : (number + 1) * SIZE]


class Refilled:
    """Batches by number and one after the other, all in the same few arrays. given: what a batch is made of them."""

    def __init__(self, count: int = 1, given: Any = lambda x, y: (x, y)) -> None:
        self.arrays = [(np.empty((SIZE, 5), "f"), np.empty(SIZE, "q")) for _ in range(count)]
        self.made = [given(*pair) for pair in self.arrays]

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> Any:
        place = number % len(self.arrays)
        for array, values in zip(self.arrays[place], batch(number), strict=True):
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
        one = net()
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

    net().fit(OnlyIterated(), prefetch=3, verbose=False, callbacks=Noting())
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
        one = net()
        one.fit(x, LABELS, prefetch=prefetch, **options)
        outcomes.append(state_of(one))
    assert outcomes[0] == outcomes[1] == outcomes[2]
