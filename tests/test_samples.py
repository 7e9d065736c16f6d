"""Data sets on disk: each batch reads its own samples and nothing else; and what is looked at before the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from data_nets import COUNT, X, Y, classifier
from nets import state_of
from singa_lite import FeedForwardNet, GraphError, ShapeError, device, layers, loss, optimizer
from singa_lite.errors import DataError


@pytest.fixture
def stored(tmp_path: Path) -> Any:
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(4, 5), compression="gzip")
        file.create_dataset("y", data=Y)
    with h5py.File(tmp_path / "set.h5", "r") as file:
        yield file


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """(set, samples) of each reading of an HDF5 set."""
    noted: list[tuple[str, int]] = []
    plain = h5py.Dataset.__getitem__

    def noting(self: Any, index: Any, *rest: Any) -> Any:
        found = plain(self, index, *rest)
        noted.append((self.name, len(found)))
        return found

    def whole(self: Any, *rest: Any, **options: Any) -> Any:
        raise AssertionError("the whole set is read")

    monkeypatch.setattr(h5py.Dataset, "__getitem__", noting)
    monkeypatch.setattr(h5py.Dataset, "__array__", whole)
    return noted


def samples_read(noted: list[tuple[str, int]], name: str) -> int:
    return sum(count for found, count in noted if found == name)


# --- what is read -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_epoch_reads_each_sample_of_an_hdf5_set_once(stored, read, shuffle, prefetch):
    net, plain = classifier(), classifier()
    options: Any = {"batch_size": 8, "epochs": 2, "shuffle": shuffle, "verbose": False}
    net.fit(stored["x"], stored["y"], prefetch=prefetch, **options)
    beforehand = {"/x": 1, "/y": 1 + 8}  # a first sample of each, and the first batch's labels
    for name, first in beforehand.items():
        assert samples_read(read, name) == first + 2 * COUNT
        assert max(count for found, count in read[4:] if found == name) == 4  # a chunk at a time
    plain.fit(X, Y, **options)
    assert state_of(net) == state_of(plain)


def test_evaluation_prediction_and_validation_read_each_sample_once(stored, read):
    net, plain = classifier(), classifier()
    assert net.evaluate(stored["x"], stored["y"], batch_size=8) == net.evaluate(X, Y, batch_size=8)
    assert samples_read(read, "/x") == COUNT + 1 and samples_read(read, "/y") == COUNT + 1 + 8
    read.clear()
    np.testing.assert_array_equal(net.predict(stored["x"], batch_size=8), net.predict(X, batch_size=8))
    assert samples_read(read, "/x") == COUNT + 1
    read.clear()
    options: Any = {"epochs": 2, "batch_size": 8, "verbose": False}
    history = net.fit(X, Y, validation_data=(stored["x"], stored["y"]), **options)
    assert samples_read(read, "/x") == 2 * COUNT + 1 and max(count for _, count in read) == 8
    assert history["val_loss"] == plain.fit(X, Y, validation_data=(X, Y), **options)["val_loss"]


def test_nothing_is_read_of_a_set_that_does_not_fit(stored, read):
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu())
    net.add(layers.Dense("out", 3, input_sample_shape=(4,)))
    net.compile(optimizer.SGD(lr=0.1))
    for call in (net.train_one_batch, net.fit, net.evaluate):
        with pytest.raises(ShapeError, match=r"'out'.*\('n', 4\), received \(37, 5\)"):
            call(stored["x"], stored["y"])
    assert not read


class Lying:
    """Says a shape that it does not have."""

    shape, dtype = (COUNT, 5), np.dtype("f")

    def __getitem__(self, index: Any) -> np.ndarray:
        return X[:3]


def test_a_set_that_gives_another_number_of_samples():
    net = classifier()
    before = state_of(net)
    with pytest.raises(ShapeError, match=r"'flat'.*\(3, 5\)"):
        net.fit(Lying(), Y, verbose=False)
    assert state_of(net) == before


@pytest.mark.parametrize("options", [{}, {"prefetch": 2}, {"transform": lambda sample, random: sample}])
def test_a_damaged_chunk_names_its_file(tmp_path, options):
    path = tmp_path / "set.h5"
    with h5py.File(path, "w") as file:
        chunk = file.create_dataset("x", data=X, chunks=(4, 5), compression="gzip").id.get_chunk_info(8)
        start, stop = chunk.byte_offset + 5, chunk.byte_offset + chunk.size
    content = bytearray(path.read_bytes())
    content[start:stop] = b"?" * (stop - start)
    path.write_bytes(content)
    net = classifier()
    with h5py.File(path) as file, pytest.raises(DataError, match=r"set\.h5: .*input of layer 'flat'"):
        net.fit(file["x"], Y, batch_size=8, shuffle=False, verbose=False, **options)


# --- what is looked at before the first step ----------------------------------------------------------------

LATE = Y.copy()
LATE[30] = 3


ROWS = np.eye(3, dtype="f")[Y]
DATA: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "a label in the last batch": (X, LATE, ValueError, r"3 at \[30\] of the target"),
    "weights in the last batch": (X, np.where(np.arange(COUNT)[:, None] == 30, -1, ROWS), ValueError, r"\[30, 0\]"),
    "too few": (X, Y[:-1], ShapeError, "36 for 37"),
    "too many": (X[:-1], Y, ShapeError, "37 for 36"),
    "no whole numbers": (X, np.where(np.arange(COUNT) == 30, 0.5, Y), ValueError, r"0.5 at \[30\]"),
    "samples of another shape": (X[:, :4], Y, ShapeError, r"'flat'.*\(37, 4\)"),
    "another name": ({"falt": X}, Y, GraphError, "'flat'"),
    "a name too many": ({"flat": X, "out": X}, Y, GraphError, "'flat'"),
    "targets by another name": (X, {"flat": Y}, GraphError, "'out'"),
}


@pytest.mark.parametrize("name", DATA)
def test_data_are_checked_before_the_first_step(name):
    x, y, error, words = DATA[name]
    net = classifier()
    before = state_of(net)
    calls = {
        "fit: ": lambda: net.fit(x, y, batch_size=8, verbose=False),
        "fit validation_data: ": lambda: net.fit(X, Y, batch_size=8, verbose=False, validation_data=(x, y)),
        "evaluate: ": lambda: net.evaluate(x, y, batch_size=8),
    }
    for where, call in calls.items():
        with pytest.raises(error, match=words) as caught:
            call()
        assert state_of(net) == before
        assert str(caught.value).startswith((where, "SoftmaxCrossEntropy: "))


def test_labels_on_disk_are_looked_at_in_their_turn(tmp_path):
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["y"], file["first"] = LATE, np.roll(LATE, -30)
        for name, steps in (("first", 0), ("y", 3)):  # a step that is refused does not count
            net = classifier()
            with pytest.raises(ValueError, match="3"):
                net.fit(X, file[name], batch_size=8, shuffle=False, verbose=False)
            assert net.optimizer.step == steps


def test_a_criterion_of_ones_own_sees_whole_batches_only():
    class Even(loss.SquaredError):
        def check_target(self, x_shape, dtype, target):
            super().check_target(x_shape, dtype, target)
            if x_shape[0] % 6:
                raise ShapeError(f"wanted an even batch, received {x_shape}")

    net = FeedForwardNet(Even(), device=device.new_cpu())
    net.add(layers.Dense("out", 3, input_sample_shape=(5,)))
    net.compile(optimizer.SGD(lr=0.1))
    net.fit(X[:36], ROWS[:36], batch_size=6, verbose=False)
    with pytest.raises(ShapeError, match=r"even batch, received \(37, 3\)"):
        net.fit(X, ROWS, batch_size=6, verbose=False)
