"""What of each batch one of several processes takes: together all samples once, in the order of one process."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import pytest

from data_nets import Numbered, X, Y, classifier
from sample_changes import noisy
from singa_lite.errors import DataError, ParallelError
from singa_lite.training import sources
from singa_lite.training.data_set import DataSet, count_of
from singa_lite.training.means import Part
from singa_lite.training.shares import InTurn, Share
from singa_lite.training.turns import Turns
from test_bucketed import net_of, of_tokens
from thread_ranks import ThreadRanks, on_ranks


def data_of(net: Any, x: Any, y: Any, **options: Any) -> DataSet:
    loading = sources.checked_loading("fit", options.pop("workers", 0), options.pop("window", None))
    return sources.data_set("fit", net, net._objective(), x, y, options.pop("size", None), loading, **options)


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
        turns = Turns(ranks, given.through(), given)  # type: ignore[arg-type]  # as much as it asks for
        for batch in turns:
            turns.told(Part(count_of(batch[0]), 1.0, 1.0, {}, None))
            seen[ranks.rank].append(count_of(batch[0]))

    other, own = on_ranks(2, one)
    assert isinstance(own, OSError) and str(own) == "the disk is gone"
    assert isinstance(other, ParallelError) and "rank 1 of 2 failed: OSError: the disk is gone" in str(other)
    assert seen == [[8, 8], [8, 8]]


def test_a_rank_without_any_batch_says_so():
    def one(ranks: ThreadRanks) -> Any:
        given = data_of(classifier(), iter([(X[:4], Y[:4])] if ranks.rank else []), None)
        return list(Turns(ranks, given.through(), given))  # type: ignore[arg-type]  # as much as it asks for

    own, other = on_ranks(2, one)
    assert isinstance(own, DataError)
    assert isinstance(other, ParallelError) and "rank 0 of 2" in str(other) and "DataError" in str(other)
