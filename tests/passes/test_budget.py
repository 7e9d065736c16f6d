"""The search: within any limit from the free floor down to the least, where more bytes never take more time."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from itertools import count, product
from math import inf
from random import Random

import pytest

from programs import Call, add, assert_same, copy, matmul, program, subtract, tanh, whole
from singa_lite.compiler.ir.program import Program, floor
from singa_lite.compiler.ir.time_model import seconds
from singa_lite.compiler.lower import Lowering, lower
from singa_lite.compiler.lower import _offsets as offsets_of
from singa_lite.compiler.placed import LimitError
from singa_lite.compiler.placement.problem import Request
from singa_lite.compiler.recompute.budget import estimated_slowdown, within_limit
from singa_lite.compiler.recompute.chain_cuts import cuts
from singa_lite.compiler.recompute.local_search import LocalSearch
from singa_lite.compiler.recompute.repeats import Repeater
from singa_lite.compiler.recompute.search import LargeSearch, Search
from singa_lite.compiler.recompute.stages import Stage
from singa_lite.compiler.share.in_place import in_place

INPUT, RESULT = whole(0, 16, 16), whole(1, 16, 16)


def chain(length: int, products: int = 0, skips: int = 0) -> Program:
    """A chain of values, and the way back, which reads them in turn.

    products: every so many-th is a product, of a weight that lasts; skips: every so many-th adds the value so many
    before it.
    """
    values, calls = [INPUT], list[Call]()
    for number in range(length):
        y, weight = whole(100 + number, 16, 16), whole(10_000 + number, 16, 16)
        if products and number % products == 0:
            calls.append(matmul(values[-1], weight, y))
        elif skips and number % skips == skips - 1:
            calls.append(add(values[-1], values[-skips], y))
        else:
            calls.append(tanh(values[-1], y))
        values.append(y)
    derivative = values[-1]
    for number, value in enumerate(reversed(values[1:-1])):
        after = whole(20_000 + number, 16, 16)
        calls.append(subtract(derivative, value, after))
        derivative = after
    calls.append(copy(derivative, RESULT))
    return program(*calls, held=[INPUT.block, RESULT.block, *range(10_000, 10_000 + length)])


PROGRAMS = {"plain": chain(18), "products": chain(17, products=3), "skips": chain(19, products=4, skips=6)}


@pytest.mark.parametrize("given", PROGRAMS.values(), ids=PROGRAMS)
def test_twenty_limits_are_kept_and_more_bytes_never_take_more_time(given):
    search = Search(given)
    free, least = search.free.floor, search.least.floor
    assert least < 0.5 * free
    limits = [least + (free - least) * share // 19 for share in range(20)]
    found = [search.cheapest(limit) or search.least for limit in limits]
    assert all(choice.floor <= limit for choice, limit in zip(found, limits, strict=True))
    times = [choice.seconds for choice in found]
    assert times == sorted(times, reverse=True)
    assert times[-1] == 0


@pytest.mark.parametrize("given", PROGRAMS.values(), ids=PROGRAMS)
def test_the_program_takes_and_costs_what_was_said_and_gives_equal_bits(given):
    """Whatever was asked before."""
    search = Search(given)
    for limit in (search.free.floor * share // 10 for share in (8, 3, 5)):
        choice = search.cheapest(limit)
        assert choice is not None
        assert choice == Search(given).cheapest(limit)
        made = search.program(choice.levels)
        assert floor(in_place(made)) == choice.floor
        assert choice.seconds > 0
        assert estimated_slowdown(made) > 0
        assert_same(given, made)


def test_no_limit_or_a_wide_one_changes_nothing():
    given = PROGRAMS["plain"]
    assert within_limit(given) is given
    wide = replace(given, target=replace(given.target, limit=floor(given)))
    assert within_limit(wide) is wide


def test_one_lowering_gives_each_limit_what_it_would_get_alone():
    """In any order of asking: the same instructions and offsets; and the same error where the limit is too small."""
    given = PROGRAMS["skips"]
    lowering = Lowering(given)
    free = lowering.unlimited()
    least = least_of(lowering, 0)
    for limit in (free.arena_bytes // 2, least, free.arena_bytes * 3 // 4, free.arena_bytes):
        shared, alone = lowering.within(limit), lower(limited(given, limit))
        assert shared.arena_bytes <= limit
        assert shared.planned == alone.planned
        assert (shared.offsets, shared.scratch, shared.gains) == (alone.offsets, alone.scratch, alone.gains)
    assert lowering.unlimited().planned == free.planned
    with pytest.raises(LimitError) as error:
        lower(limited(given, least - 1))
    assert error.value.least.arena_bytes == least == least_of(lowering, least - 1)


def test_a_placement_is_the_same_on_a_machine_that_takes_hours(monkeypatch):
    """By a clock that goes on by an hour whenever it is asked: processes that plan one step must get equal offsets."""
    draw = Random(0)
    starts = [draw.randrange(60) for _ in range(120)]
    spans = [(start, start + draw.randint(1, 30)) for start in starts]
    wanted = [Request(f"b{at}", *span, draw.randint(1, 50)) for at, span in enumerate(spans)]
    quick = offsets_of(wanted, 2_000, None)
    clock = count(0, 3600)
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    slow = offsets_of(wanted, 2_000, None)
    assert quick.method != "greedy by size"  # the first one that is tried
    assert (slow.offsets, slow.method) == (quick.offsets, quick.method)


def least_of(lowering: Lowering, limit: int) -> int:
    with pytest.raises(LimitError) as error:
        lowering.within(limit)
    return error.value.least.arena_bytes


def limited(given: Program, limit: int) -> Program:
    return replace(given, target=replace(given.target, limit=limit))


# --- cuts of chains


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
    local = LocalSearch(Repeater(given), seconds)
    limit = int(share * local.model.floor)
    choice = LargeSearch(local).cheapest(limit)
    assert choice is not None
    assert choice.floor <= limit
    made = Search(given).program(choice.levels)
    assert floor(in_place(made)) == choice.floor
    assert_same(given, made)


def test_a_twentieth_of_a_long_chain_in_less_than_two_more_forwards():
    """By Griewank and Walther's formula it takes 1.5."""
    search = Search(chain(405))
    choice = search.cheapest(search.free.floor // 20)
    assert choice is not None
    again = [i for i in search.program(choice.levels).instructions if i.repeats is not None]
    assert choice.floor <= search.free.floor // 20
    assert len(again) < 1.8 * 405
