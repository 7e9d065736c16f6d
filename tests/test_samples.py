"""Data sets on disk: each batch reads its own samples and nothing else; and what is looked at before the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from nets import state_of
from singa_lite import FeedForwardNet, GraphError, ShapeError, device, layers, loss, metric, optimizer
from singa_lite.errors import DataError
from singa_lite.training.samples import rows

RNG = np.random.default_rng(5)
COUNT = 37
X = RNG.standard_normal((COUNT, 5)).astype("f")
Y = RNG.integers(0, 3, COUNT)


def classifier(**options: Any) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device.new_cpu(), seed=2)
    net.add(layers.Dense("hidden", 7, input_sample_shape=(5,)))
    net.add(layers.Dropout("drop"))
    net.add(layers.Dense("out", 3))
    net.compile(optimizer.SGD(lr=0.5, momentum=0.5), **options)
    return net


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


def test_evaluation_and_prediction_read_each_sample_once(stored, read):
    net = classifier()
    assert net.evaluate(stored["x"], stored["y"], batch_size=8) == net.evaluate(X, Y, batch_size=8)
    assert samples_read(read, "/x") == COUNT + 1 and samples_read(read, "/y") == COUNT + 1 + 8
    read.clear()
    np.testing.assert_array_equal(net.predict(stored["x"], batch_size=8), net.predict(X, batch_size=8))
    assert samples_read(read, "/x") == COUNT + 1


def test_a_validation_set_is_read_by_batches_too(stored, read):
    net, plain = classifier(), classifier()
    history = net.fit(X, Y, epochs=2, validation_data=(stored["x"], stored["y"]), batch_size=8, verbose=False)
    assert samples_read(read, "/x") == 2 * COUNT + 1 and max(count for _, count in read) == 8
    assert (
        history["val_loss"]
        == plain.fit(X, Y, epochs=2, validation_data=(X, Y), batch_size=8, verbose=False)["val_loss"]
    )


def test_one_batch_of_an_hdf5_set_is_its_own(stored):
    net, plain = classifier(), classifier()
    net.train_one_batch(stored["x"], stored["y"])
    plain.train_one_batch(X, Y)
    assert state_of(net) == state_of(plain)


def test_nothing_is_read_of_a_set_that_does_not_fit(stored, read):
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu())
    net.add(layers.Dense("out", 3, input_sample_shape=(4,)))
    net.compile(optimizer.SGD(lr=0.1))
    for call in (net.train_one_batch, net.fit, net.evaluate):
        with pytest.raises(ShapeError, match=r"'out'.*\('n', 4\), received \(37, 5\)"):
            call(stored["x"], stored["y"])
    assert not read


@pytest.mark.parametrize("order", [[3, 1, 2], [5], [9, 9, 0], [36, 0, 18, 1]])
def test_samples_come_in_the_order_asked_for(stored, order):
    found = rows("x", stored["x"]).take(np.array(order))
    np.testing.assert_array_equal(found, X[order])


class Lying:
    """Says a shape that it does not have."""

    shape, dtype = (COUNT, 5), np.dtype("f")

    def __getitem__(self, index: Any) -> np.ndarray:
        return X[:3]


def test_a_set_that_gives_another_number_of_samples():
    net = classifier()
    before = state_of(net)
    with pytest.raises(ShapeError, match=r"'hidden': wanted 1 samples of \(37, 5\), received \(3, 5\)"):
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
    with h5py.File(path) as file, pytest.raises(DataError, match=r"set\.h5: .*input of layer 'hidden': wanted"):
        net.fit(file["x"], Y, batch_size=8, shuffle=False, verbose=False, **options)


def test_a_mapped_set_is_not_copied(tmp_path):
    X.tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.float32, "r", shape=X.shape)
    found = rows("x", mapped)
    assert not found.held
    assert np.shares_memory(found.take(slice(3, 9)), mapped)
    assert not np.shares_memory(found.take(slice(3, 9), copy=True), mapped)


# --- what is looked at before the first step ----------------------------------------------------------------

LATE = Y.copy()
LATE[30] = 3


class Counting:
    """A net's training steps, counted."""

    def __init__(self, net: FeedForwardNet) -> None:
        self.steps, self.train = 0, net.train_one_batch
        net.train_one_batch = self.note

    def note(self, x: Any, y: Any) -> Any:
        self.steps += 1
        return self.train(x, y)


ROWS = np.eye(3, dtype="f")[Y]
DATA: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "a label in the last batch": (X, LATE, ValueError, r"from 0 to 2, received 3 at \[30\] of the target"),
    "a label of another dtype": (X, LATE.astype(">u2"), ValueError, r"received 3 at \[30\]"),
    "weights in the last batch": (X, np.where(np.arange(COUNT)[:, None] == 30, -1, ROWS), ValueError, r"at \[30, 0\]"),
    "no labels": (X, None, TypeError, "target of layer 'out': wanted an array .*, received None"),
    "too few": (X, Y[:-1], ShapeError, "as many targets as samples, received 36 for 37"),
    "too many": (X[:-1], Y, ShapeError, "as many targets as samples, received 37 for 36"),
    "labels in two columns": (X, np.stack([Y, Y], 1), ShapeError, r"ids of shape \(37,\) or rows .*received \(37, 2\)"),
    "no whole numbers": (X, np.where(np.arange(COUNT) == 30, 0.5, Y), ValueError, r"received 0.5 at \[30\]"),
    "samples of another shape": (X[:, :4], Y, ShapeError, r"'hidden'.*\('n', 5\), received \(37, 4\)"),
    "complex samples": (X.astype("F"), Y, TypeError, "received.* complex64"),
    "another name": ({"hiden": X}, Y, GraphError, r"inputs of the net: wanted a dict for \['hidden'\]"),
    "a name too many": ({"hidden": X, "out": X}, Y, GraphError, "inputs of the net: wanted a dict for"),
    "targets by another name": (X, {"hidden": Y}, GraphError, r"targets of the net: wanted a dict for \['out'\]"),
    "no sample": (X[:0], Y[:0], ShapeError, "at least one sample"),
}


@pytest.mark.parametrize("where", ["fit", "fit validation_data", "evaluate"])
@pytest.mark.parametrize(("x", "y", "error", "words"), DATA.values(), ids=DATA.keys())
def test_data_are_checked_before_the_first_step(where, x, y, error, words):
    net = classifier()
    seen, before = Counting(net), state_of(net)
    with pytest.raises(error, match=words) as caught:
        if where == "evaluate":
            net.evaluate(x, y, batch_size=8)
        elif where == "fit":
            net.fit(x, y, batch_size=8, verbose=False)
        else:
            net.fit(X, Y, batch_size=8, verbose=False, validation_data=(x, y))
    assert seen.steps == 0 and state_of(net) == before
    assert str(caught.value).startswith((f"{where}: ", "SoftmaxCrossEntropy: "))


def test_labels_on_disk_are_looked_at_in_their_turn(tmp_path):
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file["y"], file["first"] = LATE, np.roll(LATE, -30)
        net = classifier()
        seen = Counting(net)
        with pytest.raises(ValueError, match="received 3"):
            net.fit(X, file["first"], batch_size=8, shuffle=False, verbose=False)
        assert seen.steps == 0  # it is in the first batch
        with pytest.raises(ValueError, match="received 3"):
            net.fit(X, file["y"], batch_size=8, shuffle=False, verbose=False)
        assert seen.steps == 4 and net.optimizer.step == 3  # a step that is refused does not count


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


@pytest.mark.parametrize("count", [1, 36, 37])
def test_targets_are_looked_at_in_pieces_of_whole_batches(count):
    found = rows("y", np.zeros((count, 2**18), np.int8))
    pieces = [range(count)[piece] for piece in found.slices_to_check(3)]
    assert [place for piece in pieces for place in piece] == list(range(count))
    assert all(len(piece) == 3 for piece in pieces[:-1])
    assert len(list(rows("y", np.zeros(count, int)).slices_to_check(3))) == 1
