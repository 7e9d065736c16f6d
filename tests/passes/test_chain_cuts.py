"""Cuts of chains: as cheap as the best of all schedules of tiny chains, in any number of levels, to equal bits."""

from __future__ import annotations

from functools import cache
from itertools import product
from math import inf

import pytest

from programs import assert_same
from singa_lite.passes.chain_cuts import cuts
from singa_lite.passes.descent import Descent
from singa_lite.passes.in_place import in_place
from singa_lite.passes.large import Large
from singa_lite.passes.program import floor
from singa_lite.passes.repeats import Repeater
from singa_lite.passes.search import Search
from singa_lite.passes.stages import Stage
from singa_lite.passes.time_model import seconds
from test_budget import PROGRAMS, chain


def links(sizes: list[int], costs: list[int]) -> list[Stage]:
    """Stages of one value each, which is their end; backward takes nothing beside."""
    numbers = range(len(sizes))
    return [Stage((n,), (n,), (), sizes[n], sizes[n], 0, costs[n], 0, 0) for n in numbers]


def least_cost(sizes: list[int], costs: list[int], limit: int) -> float:
    """Of what is made again, by trying all: what is there is forgotten or kept at each making, as one likes."""
    last = len(sizes) - 1

    @cache
    def cost(there: frozenset[int], wanted: int) -> float:
        if wanted < 0:
            return 0
        if wanted in there:
            return cost(frozenset(v for v in there if v < wanted), wanted - 1)
        start = max((v for v in there if v < wanted), default=-1)
        made = range(start + 1, wanted + 1)
        best = inf
        for keep in product((False, True), repeat=len(made) - 1):
            now = there | {wanted} | {v for v, kept in zip(made, keep, strict=False) if kept}
            if sum(sizes[v] for v in now) <= limit:
                best = min(best, sum(costs[v] for v in made) + cost(now, wanted))
        return best

    starts = product((False, True), repeat=last)
    kept = [frozenset(v for v in range(last) if keep[v]) for keep in starts]
    return min(cost(one, last - 1) for one in kept if sum(sizes[v] for v in one) <= limit)


def cost_of(costs: list[int], depths: dict[int, int]) -> int:
    return sum(costs[block] * depth for block, depth in depths.items())


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
@pytest.mark.parametrize("costs", [[1] * 8, [1, 5, 2, 1, 7, 1, 3, 1]], ids=["equal", "unequal"])
def test_a_tiny_chain_costs_what_the_best_schedule_costs(costs, limit):
    """Ends of stages take a byte each; the last one's is not gone back to."""
    found = cuts(links([1] * 8, costs), limit)
    assert found is not None
    assert cost_of(costs, found) == least_cost([1] * 8, costs, limit)


def test_sizes_count_and_what_cannot_be_is_told():
    sizes, costs = [1, 3, 1, 2, 1, 4, 1, 1], [1, 2, 3, 1, 2, 3, 1, 2]
    for limit in (4, 6):
        found = cuts(links(sizes, costs), limit)
        assert found is not None
        assert cost_of(costs, found) == least_cost(sizes, costs, limit)
    assert cuts(links(sizes, costs), 2) is None
    assert cuts([], 5) is None


@pytest.mark.parametrize("share", [0.6, 0.5])
@pytest.mark.parametrize("name", [*PROGRAMS, "long"])
def test_cut_programs_take_what_was_said_and_give_equal_bits(name, share):
    """Values that skips carry along are kept together with those that they go beside."""
    given = chain(60) if name == "long" else PROGRAMS[name]
    repeater = Repeater(given)
    descent = Descent(repeater, seconds)
    limit = int(share * descent.sketch.floor)
    choice = Large(repeater, descent).within(limit)
    assert choice is not None
    assert choice.floor <= limit
    made = Search(given).program(choice.levels)
    assert floor(in_place(made)) == choice.floor
    assert_same(given, made)


def test_a_twentieth_of_a_long_chain_in_less_than_two_more_forwards():
    """By Griewank and Walther's formula it takes 1.5."""
    search = Search(chain(405))
    choice = search.within(search.free.floor // 20)
    again = [i for i in search.program(choice.levels).instructions if i.repeats is not None]
    assert choice.floor <= search.free.floor // 20
    assert len(again) < 1.8 * 405
