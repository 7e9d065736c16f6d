"""Placement of bytes: the smallest arena, by a search that is held to brute force, and the check of what it finds."""

from __future__ import annotations

import random
import sys
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from placement_cases import (
    KNOWN,
    cut_rectangle,
    offsets_by_id,
    requests_of,
    small_problems,
    smallest_arena,
    training_step,
)
from singa_lite.compiler.placement import field as field_module
from singa_lite.compiler.placement import search as search_module
from singa_lite.compiler.placement.check import check
from singa_lite.compiler.placement.infeasible import conflict_set
from singa_lite.compiler.placement.planner import Layout, greedy, lowest_hole, orders, place, plan
from singa_lite.compiler.placement.problem import CapacityError, PlanError, Request, floor
from singa_lite.compiler.placement.search import Budget, decide
from singa_lite.compiler.placement.table import tabulate


def planned(requests, **limits):
    """The plan, checked."""
    result = plan(requests, **limits)
    check(requests, result.offsets, result.arena)
    return result


HARD, ARENA = KNOWN["above its floor of 5"]
STEP = training_step(1_500, 0)
HUGE = requests_of(*((k, k + 3, (7 + k % 5) * (2**62 + 1) + 1) for k in range(12)))
#: Name: requests, arena.
CASES = {
    **KNOWN,
    "nothing": ([], 0),
    "no bytes": (requests_of((0, 4, 0), (1, 2, 0, 64)), 0),
    "some of no bytes": (requests_of((0, 4, 10), (1, 3, 0), (1, 3, 5)), 15),
    "sizes that are no multiples": (requests_of((0, 2, 100, 64), (1, 3, 10, 64), (0, 3, 70, 64)), 128 + 64 + 70),
    # The hard part decides; the easy one next to it may take what that needs.
    "parts apart in time": ([*HARD, Request("a", 20, 22, 3), Request("b", 21, 24, 3)], ARENA),
    "a training step": (STEP, floor(STEP)),
    "beyond 64 bits": (HUGE, floor(HUGE)),
}


@pytest.mark.parametrize("name", CASES)
def test_known_answers(name):
    requests, arena = CASES[name]
    result = planned(requests)
    assert (result.arena, result.proved, result.floor) == (arena, True, floor(requests))


@given(small_problems())
@settings(max_examples=150)
def test_the_arena_is_the_smallest_and_a_capacity_is_enough_or_proved_not_to_be(requests):
    arena = smallest_arena(requests)
    result = planned(requests)
    assert (result.arena, result.proved) == (arena, True)
    assert list(result.offsets) == [request.id for request in requests]
    assert planned(requests, capacity=arena).arena <= arena
    if arena:
        with pytest.raises(CapacityError) as caught:
            plan(requests, capacity=arena - 1)
        assert caught.value.proved
        check(requests, caught.value.best.offsets, caught.value.best.arena)


def test_ids_that_are_not_unique_and_limits_below_zero_are_refused():
    with pytest.raises(PlanError, match="'a'"):
        plan([Request("a", 0, 1, 4), Request("a", 2, 3, 4)])
    for name, value in (("capacity", -1), ("seconds", -0.5), ("seconds", float("nan")), ("nodes", -1)):
        with pytest.raises(PlanError, match=name):
            plan(requests_of((0, 1, 4)), **{name: value})


def test_search_closes_the_gap_that_greedy_leaves():
    requests = cut_rectangle(80, seed=3)
    greedy = plan(requests, nodes=0)
    assert greedy.arena > greedy.floor and not greedy.proved and greedy.method.startswith("greedy by")
    found = planned(requests)
    assert (found.arena, found.proved, found.method) == (512, True, "search")


def test_the_search_is_repeatable_and_keeps_the_best_when_its_limits_are_used_up():
    requests = cut_rectangle(150, seed=9)
    first, second = (planned(requests, nodes=4_000, seconds=1e6) for _ in range(2))
    assert (first.offsets, first.arena) == (second.offsets, second.arena)
    assert first.arena <= planned(requests, nodes=0).arena
    planned(training_step(500, seed=0), seconds=0.0)
    with pytest.raises(CapacityError, match="may be") as caught:
        plan(requests, capacity=512, nodes=100)
    assert not caught.value.proved
    assert caught.value.best.arena > 512


# --- exact search


def placed_within(requests, capacity, budget=None):
    """Whether the search finds a placement, which is checked; False if it proves that there is none."""
    table = tabulate(requests)
    found = decide(table, capacity, budget or Budget())
    if found is None:
        return False
    check(requests, offsets_by_id(requests, table, found), capacity)
    return True


@given(small_problems())
@settings(max_examples=200)
def test_the_answer_is_that_of_brute_force(requests):
    arena = smallest_arena(requests)
    assert placed_within(requests, arena)
    if arena:
        assert not placed_within(requests, arena - 1)


@st.composite
def saturated(draw):
    """Requests that fill a capacity at every step; at each, some make way for others of the same sum."""
    capacity = draw(st.integers(5, 10))

    def pieces(total):
        while total:
            part = draw(st.integers(1, total))
            yield part
            total -= part

    live, rows = [(0, size) for size in pieces(capacity)], []
    steps = draw(st.integers(3, 8))
    for step in range(1, steps):
        live = draw(st.permutations(live))
        ending, live = live[: len(live) // 2 or 1], live[len(live) // 2 or 1 :]
        rows += [(start, step, size) for start, size in ending]
        live += [(step, size) for size in pieces(sum(size for _, size in ending))]
    return requests_of(*rows, *((start, steps, size) for start, size in live))


@given(saturated())
def test_small_fields_and_covered_spans_change_no_answer(requests):
    """Fields made for each part, and minima by covering blocks, are for large problems; so they are forced here."""
    capacity = floor(requests)
    wanted = placed_within(requests, capacity)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "RANKED_ANEW", 1)
        patch.setattr(field_module, "LISTED", 0)
        assert placed_within(requests, capacity) == wanted


@pytest.mark.parametrize(("count", "seed"), [(40, 0), (80, 2), (120, 4)])
def test_a_rectangle_cut_without_waste_is_put_together(count, seed):
    requests = cut_rectangle(count, seed)
    assert placed_within(requests, 512)
    assert not placed_within(requests, 511)


def test_a_field_that_falls_apart_is_ranked_anew():
    """Nodes, as in `RANKED_ANEW`: by the ranks of the whole, 16,000 nodes do not suffice here."""
    assert placed_within(cut_rectangle(200, seed=3), 512, Budget(8_000))


def test_a_request_in_nobodys_way_is_not_exchanged_in_a_proof():
    """A hard core and a saturated rectangle, alive with one small request: 8,796 nodes if all choices are tried."""
    core, arena = KNOWN["above its floor of 8"]
    beside = [
        Request(f"s{k}", q.start + 7, q.stop + 7, q.size) for k, q in enumerate(cut_rectangle(10, 0, 40, arena - 1))
    ]
    requests = [*core, *beside, Request("across", 0, 47, 3)]
    assert not placed_within(requests, arena + 2, Budget(5_000))
    assert placed_within(requests, arena + 3)


def test_a_step_deeper_than_the_stack_of_python():
    requests = training_step(2_000, seed=1)
    nested = requests_of(*((k, 4_000 - k, 1 + k % 7) for k in range(1_500)))
    assert len(nested) > sys.getrecursionlimit()
    assert placed_within(nested, floor(nested))
    assert placed_within(requests, floor(requests))


# --- greedy placement


@pytest.mark.parametrize(
    ("size", "alignment", "wanted"),
    [(5, 1, 0), (6, 1, 13), (7, 1, 13), (8, 1, 30), (4, 8, 0), (6, 4, 32), (6, 7, 14), (7, 15, 30)],
)
def test_the_lowest_hole(size, alignment, wanted):
    offsets, tops = np.array([5, 7, 8, 20]), np.array([10, 13, 9, 30])  # free: 0 to 5, 13 to 20, from 30
    assert lowest_hole(offsets, tops, size, alignment) == wanted
    none = np.array([], np.int64)
    assert lowest_hole(none, none, size, alignment) == 0


@given(small_problems(most=9))
def test_every_order_gives_a_valid_placement(requests):
    table = tabulate(requests)
    if not len(table):
        return
    most = int((table.size + table.alignment).sum()) * table.unit
    for _, order in orders(table):
        assert sorted(order.tolist()) == list(range(len(table)))
        offsets = place(table, order, table.limits(most), Layout(table))
        check(requests, offsets_by_id(requests, table, offsets), table.arena(offsets))


def test_the_portfolio_takes_the_best_order_or_the_first_that_is_enough():
    table = tabulate(training_step(300, seed=4))
    limits = table.limits(int(table.size.sum()) * table.unit)
    arenas = {
        f"greedy by {name}": table.arena(place(table, order, limits, Layout(table))) for name, order in orders(table)
    }
    name, offsets = greedy(table, 0)
    assert table.arena(offsets) == arenas[name] == min(arenas.values())
    assert len(set(arenas.values())) > 1
    first, enough = greedy(table, 10**12)
    late, same = greedy(table, 0, deadline=0.0)
    assert first == late == next(iter(arenas))
    assert (same == enough).all()


# --- why a capacity does not suffice: sets from which no request can be left out


@given(small_problems())
def test_the_set_does_not_fit_but_without_any_one_it_does(requests):
    arena = smallest_arena(requests)
    assume(arena > 0)
    found = conflict_set(requests, arena - 1)
    assert found.irreducible
    assert smallest_arena(found.requests) >= arena
    for number in range(len(found.requests)):
        assert smallest_arena(found.requests[:number] + found.requests[number + 1 :]) < arena


@pytest.mark.parametrize(
    ("rows", "capacity", "ids", "step"),
    [
        (((0, 9, 10), (1, 3, 30), (2, 4, 45), (2, 3, 5), (5, 8, 40), (6, 7, 60), (6, 8, 7)), 80, ["r4", "r5"], 6),
        (((0, 3, 10), (1, 2, 90), (5, 6, 100)), 95, ["r2"], 5),
    ],
    ids=["the fewest of one step", "one that is too large"],
)
def test_a_load_that_is_too_much(rows, capacity, ids, step):
    found = conflict_set(requests_of(*rows), capacity)
    assert ([request.id for request in found.requests], found.irreducible, found.step) == (ids, True, step)


@pytest.mark.parametrize("name", ["above its floor of 5", "above its floor of 8"])
def test_a_set_that_no_single_step_explains(name):
    hard, arena = KNOWN[name]
    noise = [Request(f"noise{k}", 20 + k, 23 + k, 1) for k in range(9)]
    mixed = [*noise[:4], *hard, *noise[4:]]
    assert floor(mixed) < arena
    found = conflict_set(mixed, arena - 1)
    assert (found.requests, found.irreducible, found.step) == (tuple(hard), True, None)
    assert conflict_set(mixed, arena - 1, proved=True) == found


def test_the_set_of_a_whole_step_is_small():
    requests = training_step(2_000, seed=6)
    capacity = floor(requests) // 3
    found = conflict_set(requests, capacity)
    assert found.irreducible
    assert sum(request.size for request in found.requests[1:]) <= capacity < sum(r.size for r in found.requests)
    assert all(request.start <= found.step < request.stop for request in found.requests)


def test_what_is_no_such_capacity_or_is_not_decided_is_told():
    with pytest.raises(PlanError, match=f"{ARENA} bytes"):
        conflict_set(HARD, ARENA)
    with pytest.raises(CapacityError, match="may be"):
        conflict_set(cut_rectangle(200, seed=0), 512, seconds=0.0)
    found = conflict_set(HARD, ARENA - 1, proved=True, nodes=0)
    assert not found.irreducible
    with pytest.raises(CapacityError, match="proved"):
        plan(found.requests, capacity=ARENA - 1)


# --- the check of plans

REQUESTS = requests_of((0, 4, 10), (2, 6, 20, 8), (4, 8, 10), (3, 7, 0))
GOOD = {"r0": 0, "r1": 16, "r2": 3, "r3": 5}


def overlap(one: Request, other: Request, offsets: dict[str, int]) -> bool:
    return bool(
        one.start < other.stop
        and other.start < one.stop
        and offsets[one.id] < offsets[other.id] + other.size
        and offsets[other.id] < offsets[one.id] + one.size
        and one.size
        and other.size
    )


def test_a_good_plan_passes():
    check(REQUESTS, GOOD, 36)
    check([], {}, 0)


@pytest.mark.parametrize(
    ("change", "arena", "message"),
    [
        ({"r0": 7}, 36, "overlap: .*'r0' and 'r1'.* 16 to 17"),
        ({"r2": 7}, 36, "overlap: .*'r1' and 'r2'.* steps 4 to 8"),
        ({"r2": 20}, 36, "overlap: .*'r1' and 'r2'.* 20 to 30"),
        ({"r1": 17}, 40, "alignment: .*'r1'.* 8 bytes.* 17"),
        ({}, 35, "bounds: .*'r1'.* 35 bytes.* 16 to 36"),
        ({"r2": -1}, 36, "bounds: .*'r2'.* -1 to 9"),
        ({"r3": 37}, 36, "bounds: .*'r3'"),
        ({"r9": 0}, 36, "ids: .*'r9'"),
    ],
)
def test_a_bad_plan_is_refused_by_name(change, arena, message):
    with pytest.raises(PlanError, match=f"^{message}"):
        check(REQUESTS, GOOD | change, arena)


def test_offsets_and_requests_are_of_the_same_ids():
    with pytest.raises(PlanError, match="'r0', 'r1', 'r2' and 1 more"):
        check(REQUESTS, {}, 36)
    with pytest.raises(PlanError, match="'a'"):
        check([Request("a", 0, 1, 4), Request("a", 3, 4, 4)], {"a": 0}, 4)


@given(small_problems(most=8), st.data())
def test_it_refuses_just_what_comparing_all_pairs_refuses(requests, data):
    most = max((request.size for request in requests), default=0)
    offsets = {one.id: data.draw(st.integers(0, 2)) * most // one.alignment * one.alignment for one in requests}
    if any(overlap(a, b, offsets) for a, b in combinations(requests, 2)):
        with pytest.raises(PlanError, match="overlap"):
            check(requests, offsets, 4 * most)
    else:
        check(requests, offsets, 4 * most)


def test_one_wrong_offset_among_thousands_is_found():
    requests = training_step(3_000, seed=8)
    result = plan(requests)
    check(requests, result.offsets, result.arena)
    found = 0
    for request in random.Random(0).sample(requests, 20):
        moved = result.offsets | {request.id: max(result.offsets[request.id] - 64, 0)}
        if any(overlap(request, other, moved) for other in requests if other is not request):
            found += 1
            with pytest.raises(PlanError, match="overlap"):
                check(requests, moved, result.arena)
        else:
            check(requests, moved, result.arena)
    assert found > 5


# --- requests, live bytes and the floor


@pytest.mark.parametrize(
    ("start", "stop", "size", "alignment", "message"),
    [
        (3, 3, 8, 1, "3 to 3"),
        (5, 2, 8, 1, "5 to 2"),
        (-1, 2, 8, 1, "-1 to 2"),
        (0, 1, -8, 1, "size -8"),
        (0, 1, 8, 0, "alignment 0"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(start, stop, size, alignment, message):
    with pytest.raises(PlanError, match=f"'x': .*{message}"):
        Request("x", start, stop, size, alignment)


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ((), 0),
        (((0, 9, 0),), 0),
        (((0, 2, 3), (2, 4, 5), (1, 3, 10)), 15),  # 3 + 10 in step 1, 10 + 5 in step 2
        (((0, 1, 10, 8), (0, 1, 10, 8)), 26),  # 16 and, on top, 10
        (((0, 1, 16, 8), (0, 1, 9, 8), (0, 1, 8, 8)), 16 + 8 + 9),  # the 9 bytes on top
        (((0, 1, 10, 8), (0, 1, 10, 4)), 12 + 10),  # 4 is what all offsets are multiples of
        (((0, 1, 10, 64), (0, 1, 10, 1)), 20),  # nothing is known of all offsets
        (((0, 1, 2**70), (0, 1, 1)), 2**70 + 1),
    ],
)
def test_floor(rows, wanted):
    assert floor(requests_of(*rows)) == wanted


@given(small_problems(most=5))
def test_no_arena_is_below_the_floor(requests):
    assert floor(requests) <= smallest_arena(requests)
