"""Which rank has which elements of the optimizer's state, known before the first batch."""

from __future__ import annotations

import numpy as np
import pytest

from singa_lite import tensor
from singa_lite.compiler.ranks.in_pieces import cuts_of
from singa_lite.errors import GraphError
from singa_lite.kernels.collective import parts_of
from singa_lite.parallel.gradients.ownership import Ownership

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
    assert made.own_part("b/weight") == slice(750, 1500)
    assert made.parts("c/weight") == [slice(0, 211), slice(211, 350)]  # 219 of 438 behind 8 elements
    assert made.own_part("c/bias") == slice(7, 7)


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
