"""Sets on disk by chunks: each is read once an epoch, few are held, and orders are those of all samples."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from data_nets import X, Y, classifier
from nets import state_of
from singa_lite.data.loading.loaded_samples import GrainReader, Windows
from singa_lite.data.loading.samples import rows

COUNT = 1003
RANDOM = np.random.default_rng(9)
WIDE = RANDOM.standard_normal((COUNT, 6)).astype("f")
IDS = RANDOM.integers(0, 3, COUNT)


class Counted(io.FileIO):
    """A file that counts the bytes that are read of it."""

    read_bytes = 0

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer)
        self.read_bytes += count
        return count


class Chunked:
    """An array read by slices, which notes them."""

    def __init__(self, values: np.ndarray, chunk: int | None) -> None:
        self.values, self.shape, self.dtype = values, values.shape, values.dtype
        self.chunks = None if chunk is None else (chunk, *values.shape[1:])
        self.read: list[int] = []

    def __getitem__(self, index: Any) -> np.ndarray:
        found = self.values[index]
        self.read.append(len(found))
        return found


def windows(nbytes: int, *chunks: int | None) -> tuple[Windows, dict[str, Any], list[Chunked]]:
    """Over WIDE and its like, of 24 bytes a sample each."""
    sets = [Chunked(WIDE + number, chunk) for number, chunk in enumerate(chunks)]
    arrays = {str(number): rows("x", each) for number, each in enumerate(sets)}
    for each in sets:
        each.read.clear()
    return Windows("fit", list(arrays.values()), nbytes), arrays, sets


@pytest.mark.parametrize("chunks", [(16,), (16, 24), (16, None), (7, 7)])
def test_each_chunk_is_read_once_and_few_are_held(chunks):
    nbytes = 300 * 24 * len(chunks)
    made, arrays, sets = windows(nbytes, *chunks)
    order = made.draw(np.random.default_rng(1))
    assert np.array_equal(np.sort(order), np.arange(COUNT)) and not np.array_equal(order[:16], np.sort(order[:16]))
    reader = GrainReader(made, arrays, order)
    for first in range(0, COUNT, 50):
        numbers = order[first : first + 50]
        taken = reader.take(numbers)
        for number, values in enumerate(taken.values()):
            assert np.array_equal(values, WIDE[numbers] + number)
        assert sum(len(piece["0"]) for piece in reader._held.values()) <= 300
    assert not reader._held
    for each in sets:
        assert sum(each.read) == COUNT


def test_a_set_that_fits_is_shuffled_as_an_array_is():
    made, _, _ = windows(COUNT * 24, 16)
    assert np.array_equal(made.draw(np.random.default_rng(3)), np.random.default_rng(3).permutation(COUNT))


def test_samples_of_far_chunks_come_together():
    made, _, _ = windows(200 * 24, 10)
    first = made.draw(np.random.default_rng(2))[:100]
    assert len(np.unique(first // 10)) == 10 and first.max() - first.min() > COUNT / 2


def test_chunks_that_are_too_large_are_told_and_read_in_pieces():
    with pytest.warns(UserWarning, match="wanted chunks of at most 25 samples.*received 500 samples"):
        made, arrays, _ = windows(100 * 24, 500)
    order = made.draw(np.random.default_rng(1))
    reader = GrainReader(made, arrays, order)
    for first in range(0, COUNT, 20):
        assert np.array_equal(reader.take(order[first : first + 20])["0"], WIDE[order[first : first + 20]])
        assert sum(len(piece["0"]) for piece in reader._held.values()) <= 100


@pytest.mark.parametrize("chunk", [32, None])
@pytest.mark.parametrize("shuffle", [True, False])
def test_an_epoch_of_a_file_reads_little_more_than_its_bytes(tmp_path: Path, chunk, shuffle):
    wide = RANDOM.integers(0, 255, (COUNT, 3, 16, 17), dtype=np.uint8)
    x = wide.astype("f") / 2048
    path = tmp_path / "set.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=x, chunks=None if chunk is None else (chunk, 3, 16, 17))
        file.create_dataset("y", data=IDS)
    with Counted(path, "r") as raw, h5py.File(raw, "r", rdcc_nbytes=0) as file:
        net = classifier((3, 16, 17))
        net.fit(file["x"], file["y"], 20, epochs=2, shuffle=shuffle, shuffle_window="1 MiB", verbose=False)
        assert x.nbytes + IDS.nbytes < raw.read_bytes / 2 < 1.05 * (x.nbytes + IDS.nbytes)


def test_windows_are_the_same_to_the_bit_with_prefetch_and_in_each_run(tmp_path: Path):
    with h5py.File(tmp_path / "set.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(4, 5))
    with h5py.File(tmp_path / "set.h5", "r") as file:
        nets = [classifier() for _ in range(3)]
        for net, prefetch in zip(nets, (0, 0, 3), strict=True):
            net.fit(file["x"], Y, 8, epochs=2, shuffle_window=16 * 20, prefetch=prefetch, verbose=False)
        assert state_of(nets[0]) == state_of(nets[1]) == state_of(nets[2])
