"""Exact search: the same answers as brute force, deep and large problems, and limits."""

from __future__ import annotations

import sys
import time
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement_cases import cut_rectangle, offsets_by_id, requests_of, small_problems, smallest_arena, training_step
from singa_lite.memory import floors as floors_module
from singa_lite.memory import search as search_module
from singa_lite.memory.check import check
from singa_lite.memory.floors import Floors
from singa_lite.memory.problem import floor
from singa_lite.memory.search import Budget, ExhaustedError, decide
from singa_lite.memory.table import tabulate


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
        patch.setattr(search_module, "SMALL", 1)
        patch.setattr(floors_module, "LISTED", 0)
        assert placed_within(requests, capacity) == wanted


@pytest.mark.parametrize(("count", "seed"), [(40, 0), (80, 2), (120, 4)])
def test_a_rectangle_cut_without_waste_is_put_together(count, seed):
    requests = cut_rectangle(count, seed)
    assert placed_within(requests, 512)
    assert not placed_within(requests, 511)


def test_a_step_deeper_than_the_stack_of_python():
    requests = training_step(2_000, seed=1)
    nested = requests_of(*((k, 4_000 - k, 1 + k % 7) for k in range(1_500)))
    assert len(nested) > sys.getrecursionlimit()
    assert placed_within(nested, floor(nested))
    assert placed_within(requests, floor(requests))


def test_nodes_and_time_are_limits_and_nodes_make_it_repeatable():
    table = tabulate(cut_rectangle(120, seed=4))
    for budget in (Budget(nodes=50), Budget(inf, time.perf_counter() - 1)):
        with pytest.raises(ExhaustedError):
            decide(table, 512, budget)
    first, second = (decide(table, 512, Budget(nodes=100_000)) for _ in range(2))
    assert (first == second).all()


def test_a_budget_gives_a_share():
    budget = Budget(nodes=10)
    assert budget.share(4) == Budget(4)
    assert budget.share(40) == Budget(6)
    with pytest.raises(ExhaustedError, match="1 nodes"):
        budget.share(1)
    with pytest.raises(ExhaustedError):
        budget.spend()


@pytest.mark.parametrize("listed", [0, 10**6])
@pytest.mark.parametrize("dtype", [np.int64, object])
def test_floors_are_minima_by_section(monkeypatch, listed, dtype):
    monkeypatch.setattr(floors_module, "LISTED", listed)
    draw = np.random.default_rng(7)
    first = draw.integers(0, 60, 41)
    stop = first + draw.integers(1, 30, 41)
    values = draw.integers(0, 1000, 41).astype(dtype)
    found = Floors(first, stop, 5000)(values)
    for section in range(stop.max()):
        live = values[(first <= section) & (section < stop)]
        assert found[section] == (live.min() if len(live) else 5000)
