"""Several processes train what one trains by the whole batch: the same on all ranks, in every run, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import rank_cases
from every_row import over_rows
from rank_programs import found_by

#: Cases, and how far results may lie from one process's: float32's rounding, which Adam's quotients magnify.
OF_PARTS = ("images", "statistics", "dropped", "bytes_sent", "stored_once", *rank_cases.STORED)
#: Adam's quotients of small gradients are no more alike than these.
OF_PARTS += ("each_optimizer", "each_optimizer_in_parts")
AS_ONE = {name: 3e-6 for name in rank_cases.CASES if name not in OF_PARTS}
AS_ONE |= {
    "adam": 2e-5,
    "sharded_adam": 2e-5,
    "tiles": 3e-5,
    "sharded_strips": 3e-5,
    "sharded_cut_rows": 3e-5,
    "synced": 1e-5,
}


@pytest.fixture(scope="module", params=[2, 3, pytest.param(4, marks=pytest.mark.nightly)])
def found(request, tmp_path_factory):
    """{case: of each rank {name: array}}, and how many ranks there are."""
    ranks = found_by(request.param, tmp_path_factory.mktemp("ranks"), *rank_cases.CASES)
    return request.param, {case: [_of(case, rank) for rank in ranks] for case in rank_cases.CASES}


def _of(case, found):
    return {name.removeprefix(f"{case}/"): array for name, array in found.items() if name.startswith(f"{case}/")}


#: What goes by the rank's own part of the batch.
OWN = ("arena", "state")


def alike(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one if name not in OWN)


def test_all_ranks_have_the_same_bits(found):
    def check(first, *others):
        assert first and all(alike(first, other) for other in others)

    over_rows(check, found[1].items())


def test_it_is_what_one_process_finds_by_the_whole_batch(found):
    count, cases = found

    def check(case, near):
        alone = rank_cases.CASES[case](None, count)
        names = [name for name in alone if name not in ("arena", "in_flight", "state")]
        assert names
        for name in names:
            np.testing.assert_allclose(cases[case][0][name], alone[name], near, near, err_msg=name)

    over_rows(check, ((case, (case, near)) for case, near in AS_ONE.items()))


#: Cases that differ in how a step is done, and not in a bit of what comes out.
EQUAL = [
    ("recorded", "recorded_again"),
    ("recorded", "eager"),
    ("recorded", "sharded"),
    ("recorded", "sharded_eager"),
    ("adam", "sharded_adam"),
    ("each_optimizer_in_parts", "each_optimizer"),
    ("stored_stochastic", "stored_eager"),
    ("thawed_whole", "thawed_in_parts"),
]


def test_recorded_or_not_and_with_state_in_parts_bits_are_equal(found):
    for one, other in EQUAL:
        first, second = found[1][one][0], found[1][other][0]
        assert all(np.array_equal(first[name], second[name]) for name in first), (one, other)


@pytest.mark.parametrize("case", ["stored_compensated", "stored_clipped", "stored_once"])
def test_stored_parameters_are_those_of_one_process(found, case):
    """Gradients differ by float32's rounding. By it few numbers have another nearest one, but chance has another mean
    of two neighbours alone.
    """
    count, cases = found
    for name, wanted in rank_cases.CASES[case](None, count).items():
        got = cases[case][0][name]
        if wanted.ndim < 2:
            np.testing.assert_allclose(got, wanted, 3e-6, 3e-6)
            continue
        off, last = (got - wanted).astype(float), np.exp2(np.floor(np.log2(np.maximum(abs(got), abs(wanted)))) - 7)
        assert np.all(np.abs(off) <= last) and np.array_equal(got.view("u4") & 0xFFFF, np.zeros(got.shape))
        if case == "stored_once":
            assert 0 < abs(off.sum()) < 5 * np.sqrt((last**2).sum() / 2)
        else:
            assert (off != 0).mean() < 0.01


def test_tiles_stay_tiles(found):
    """Beyond one process's peak lies what is under way, which has a limit."""
    count, cases = found
    alone, several = rank_cases.CASES["tiles"](None, count), cases["tiles"][0]
    assert 2e6 < several["in_flight"] <= 6e6
    assert several["arena"] <= alone["arena"] + 6_000_000


@pytest.mark.parametrize(("case", "more"), [("sharded_strips", 0), ("sharded_cut_rows", 23 * 50_000 * 4)])
def test_what_is_under_way_of_a_sharded_gradient_has_a_limit(found, case, more):
    """The gradient never exists whole where ranks have whole rows; without strips the others' parts would lie
    beside it.
    """
    count, cases = found
    alone, several = rank_cases.CASES[case](None, count), cases[case][0]
    assert several["in_flight"] <= 6e6
    assert several["arena"] <= alone["arena"] + more + 6_000_000


def test_a_sum_sends_each_element_there_and_back(found):
    count, cases = found
    parameters = sum(value.size for value in rank_cases.values(rank_cases.mlp()).values())
    assert cases["bytes_sent"][0]["sent"].tolist() == [rank_cases.STEPS * 2 * (count - 1) * 4 * parameters] * 2


def test_running_statistics_are_the_mean_of_all_ranks(found):
    """Each rank's own, by its share of the samples."""
    count, cases = found
    moved, parts = cases["statistics"][0], rank_cases.PARTS[:count]
    pieces = np.split(moved["batch"].astype(np.float64), np.cumsum(parts)[:-1])
    mean = np.average([piece.mean(axis=0) for piece in pieces], axis=0, weights=parts)
    variance = np.average([piece.var(axis=0, ddof=1) for piece in pieces], axis=0, weights=parts)
    np.testing.assert_allclose(moved["norm/running_mean"], 0.1 * mean, rtol=2e-6)
    np.testing.assert_allclose(moved["norm/running_var"], 0.9 + 0.1 * variance, rtol=2e-6)


def test_each_rank_drops_others_and_the_first_those_of_one_process(found):
    count, cases = found
    kept = cases["dropped"][0]["kept"]
    assert len({each.tobytes() for each in kept}) == count
    alone = rank_cases.dropped(None)
    assert np.array_equal(alone["kept"][0], kept[0])
    assert np.array_equal(alone["drop/random"], cases["dropped"][0]["drop/random"])


def test_each_rank_has_its_part_of_the_state(found):
    count, cases = found
    nbytes = [rank["state"] for rank in cases["sharded_adam"]]
    alone = rank_cases.sharded_adam(None, count)["state"]
    assert sum(nbytes) == alone
    assert max(nbytes) <= 1.04 * alone / count
