"""Which rank has which elements of the optimizer's state, known before the first batch; and what was not sent."""

from __future__ import annotations

import numpy as np
import pytest

from singa_lite import FeedForwardNet, SnapshotError, layers, loss, optimizer, tensor
from singa_lite.compiler.ranks.in_pieces import cuts_of
from singa_lite.errors import GraphError
from singa_lite.kernels.collective import parts_of
from singa_lite.parallel import DataParallel
from singa_lite.parallel.communicator import SingleProcess
from singa_lite.parallel.gradients.ownership import Ownership
from singa_lite.snapshots.checkpoints import rests
from singa_lite.snapshots.tree import LazyArray, Tree

SIZES = {"a/weight": 600, "a/bias": 30, "b/weight": 1500, "b/bias": 50, "c/weight": 350, "c/bias": 7, "c/scale": 1}


def parameters(sizes: dict[str, int]) -> dict[str, tensor.Tensor]:
    return {name: tensor.from_numpy(np.zeros(size, np.float32)) for name, size in sizes.items()}


@pytest.mark.parametrize("ranks", [1, 3, 4, 1000])
@pytest.mark.parametrize("bucket_bytes", [1, 1500, 10**6])
def test_each_element_is_of_one_rank_and_each_has_as_many(ranks: int, bucket_bytes: int):
    owned = np.zeros(ranks, int)
    made = Ownership(ranks, 0, parameters(SIZES), SIZES, bucket_bytes)
    for name, size in SIZES.items():
        parts = made.parts(name)
        assert np.concatenate([np.arange(size)[part] for part in parts]).tolist() == list(range(size))
        owned += [part.stop - part.start for part in parts]
    assert owned.max() <= sum(SIZES.values()) / ranks + len(made.buckets)


def test_it_goes_by_the_walk_back_and_buckets_end_where_they_are_full():
    made = Ownership(2, 1, parameters(SIZES), SIZES, 2000)
    names = [[member.name for member in bucket.members] for bucket in made.buckets]
    small = ["c/scale", "c/bias", "c/weight", "b/bias", "a/bias"]
    assert sorted(names, key=len) == [["b/weight"], ["a/weight"], small]
    assert made.own("b/weight") == slice(750, 1500)
    assert made.parts("c/weight") == [slice(0, 211), slice(211, 350)]  # 219 of 438 behind 8 elements
    assert made.own("c/bias") == slice(7, 7)


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_strips_of_all_parts_are_divided_as_the_whole_is(ranks: int):
    for size in range(20, 90):
        parts = parts_of(size, ranks)
        for width in (1, 2, 3, 5):
            seen = np.zeros(size, int)
            for strip in cuts_of(parts, width):
                sizes = [cut.stop - cut.start for cut in strip]
                assert sizes == [part.stop - part.start for part in parts_of(sum(sizes), ranks)]
                for cut in strip:
                    seen[cut] += 1
            assert (seen == 1).all()


def test_what_does_not_train_has_buckets_of_its_own():
    made = Ownership(2, 0, parameters(SIZES), {"a/bias", "c/bias"}, 10**6)
    trains, _ = made.buckets
    assert [member.name for member in trains.members] == ["c/bias", "a/bias"]
    with pytest.raises(GraphError, match="'d/w'"):
        made.parts("d/w")


class Few(SingleProcess):
    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


def of(rank: int, size: int) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy())
    net.add(layers.Dense("dense", 3, input_sample_shape=(4,)))
    net.compile(optimizer.SGD(0.1), parallel=DataParallel(Few(rank, size), 1000, 10**5, None, "bfloat16", False, 100))
    return net


def tree(arrays: dict[str, np.ndarray]) -> Tree:
    return Tree({path: LazyArray(a.shape, a.dtype, a.copy) for path, a in arrays.items()}, path="some.h5")


def test_what_was_not_sent_stays_in_all():
    """As many ranks have each its own again; others have equal shares of what all had."""
    kept = np.arange(36, dtype=np.float32).reshape(3, 4, 3)
    file = tree({f"training/rests/{rank}/dense/weight": kept[rank] for rank in range(3)})
    for size in (2, 3, 4):
        found = []
        for rank in range(size):
            net = of(rank, size)
            net.together.rest_of("dense/bias", net.parameters()["dense/bias"]).copy_from_numpy(np.ones(3, np.float32))
            rests.check(net, file)
            rests.restore(net, file)
            assert not np.array(net.together.rests["dense/bias"]).any()
            found.append(np.array(net.together.rests["dense/weight"]))
        np.testing.assert_allclose(sum(found), kept.sum(axis=0), rtol=1e-6)
        assert (size == 3) == np.array_equal(found, kept[: len(found)])


@pytest.mark.parametrize("path", ["0/dense/other", "x/dense/weight", "0/dense/bias"])
def test_an_entry_that_does_not_fit_is_named(path: str):
    with pytest.raises(SnapshotError, match=f"some.h5.*{path}"):
        rests.check(of(0, 2), tree({f"training/rests/{path}": np.zeros((4, 3), np.float32)}))
