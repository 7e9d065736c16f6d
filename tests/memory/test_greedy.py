"""Greedy placements: valid in each order, into holes, and quick to come to the floor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from placement_cases import offsets_by_id, requests_of, small_problems, training_step
from singa_lite.memory.check import check
from singa_lite.memory.greedy import Layout, greedy, lowest_hole, orders, place
from singa_lite.memory.problem import floor
from singa_lite.memory.table import tabulate


@pytest.mark.parametrize(
    ("size", "alignment", "wanted"),
    [(5, 1, 0), (6, 1, 13), (7, 1, 13), (8, 1, 30), (4, 8, 0), (6, 4, 32), (6, 7, 14), (7, 15, 30)],
)
def test_the_lowest_hole(size, alignment, wanted):
    offsets, tops = np.array([5, 7, 8, 20]), np.array([10, 13, 9, 30])  # free: 0 to 5, 13 to 20, from 30
    assert lowest_hole(offsets, tops, size, alignment) == wanted
    none = np.array([], np.int64)
    assert lowest_hole(none, none, size, alignment) == 0


def test_placing_ends_at_the_first_that_is_above_its_limit():
    table = tabulate(requests_of((0, 2, 10), (1, 3, 20)))
    assert place(table, np.array([0, 1]), table.limits(30), Layout(table)) is not None
    assert place(table, np.array([0, 1]), table.limits(29), Layout(table)) is None


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


def test_a_step_of_thousands_of_requests_comes_to_its_floor():
    requests = training_step(5_000, 1)
    table = tabulate(requests)
    _, offsets = greedy(table, floor(requests))
    assert table.arena(offsets) == floor(requests)
    check(requests, offsets_by_id(requests, table, offsets), floor(requests))


def test_conflicts_are_counted():
    table = tabulate(requests_of((0, 3, 1), (2, 5, 1), (4, 6, 1), (0, 6, 1), (6, 7, 1)))
    assert table.conflicts.tolist() == [3, 4, 3, 4, 1]  # itself among them
