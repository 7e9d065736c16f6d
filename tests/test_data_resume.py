"""Training on data of all kinds goes on from any checkpoint to equal bits, or says why it cannot."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from data_nets import Loader, Numbered, Stateful, X, Y, batches, classifier
from nets import state_of
from singa_lite import SnapshotError, data
from singa_lite.fit import Callback, StopTraining
from singa_lite.snapshots.checkpoints import checkpoint


def noisy(sample: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return sample + random.standard_normal(sample.shape).astype("f")


class StopAt(Callback):
    """Writes a checkpoint behind so many batches, and stops."""

    def __init__(self, count: int, path: Path) -> None:
        self.left, self.path = count, path

    def on_batch(self, training: Any) -> None:
        self.left -= 1
        if not self.left:
            checkpoint.save(training, self.path)
            raise StopTraining


def shuffled(epoch: int) -> Iterator[Any]:
    """Batches in an order of the epoch's own."""
    return (batches()[number] for number in np.random.default_rng([7, epoch]).permutation(5))


SOURCES: dict[str, tuple[Any, dict[str, Any]]] = {
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


def check(make: Any, options: dict[str, Any], path: Path, at: int) -> None:
    whole, stopped, resumed = classifier(), classifier(), classifier()
    options = {"epochs": 3, "verbose": False, **options}
    wanted = whole.fit(make(), **options)
    stopped.fit(make(), callbacks=StopAt(at, path), **options)
    history = resumed.fit(make(), resume=path, **options)
    assert state_of(resumed) == state_of(whole)
    assert history["loss"] == wanted["loss"] and history["accuracy"] == wanted["accuracy"]


@pytest.mark.parametrize("at", [3, 5, 7])
@pytest.mark.parametrize("name", SOURCES)
def test_it_goes_on_to_equal_bits(name, at, tmp_path):
    """From within an epoch of 5 batches, and from its end."""
    check(*SOURCES[name], tmp_path / "run.h5", at)


def test_windows_go_on_to_equal_bits(tmp_path):
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(4, 5))
    with h5py.File(tmp_path / "set.h5", "r") as file:
        options = {"y": Y, "batch_size": 8, "shuffle_window": 16 * 20, "transform": noisy}
        check(lambda: file["x"], options, tmp_path / "run.h5", 7)


#: {case: (source, options of the first run, steps that it does, options that it goes on with, words)}.
REFUSED: dict[str, tuple[Any, dict[str, Any], int, dict[str, Any], str]] = {
    "a loader within an epoch": (Loader, {}, 3, {}, "batch 3 of epoch 0"),
    "a generator": (lambda: itertools.cycle(batches()), {"steps_per_epoch": 4}, 7, {}, "itertools.cycle"),
    "other steps": (Numbered, {"steps_per_epoch": 4}, 3, {"steps_per_epoch": 3}, "steps 3, received 4"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_place_that_cannot_be_kept_is_said_and_changes_nothing(name, tmp_path):
    make, options, at, other, words = REFUSED[name]
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
