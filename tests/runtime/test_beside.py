"""Work on a stream of its own, over streams that are late: it comes behind what it needs, and is waited for."""

from __future__ import annotations

from typing import Any

import pytest

import waits
from late_cupy import LateCupy
from singa_lite.runtime.beside import Beside
from singa_lite.runtime.capture import CapturedReplay, Shared, Told

SEEDS = range(8)
STEPS = 6


class Alone:
    """Agrees with nobody else, or with one that says something else. told: what this process has said."""

    def __init__(self, *others: Any) -> None:
        self.others, self.said = others, list[Any]()

    def told(self, value: Any) -> Told:
        self.said.append(value)
        return Told(len(self.said), [value, *(other(value) for other in self.others)])


def doubled(seed: int, alike: Alone | None = None) -> CapturedReplay:
    """Each step adds 1, doubles beside other work, and adds 3."""
    cupy = LateCupy(seed)
    main, held, seen = cupy.cuda.Stream(non_blocking=True), [0], list[int]()

    def change(by: int, times: int = 1) -> None:
        held[0] = held[0] * times + by

    beside = Beside(cupy, main)
    begin, end = beside.pair(lambda stream: cupy.stream_of(stream).submit(lambda: change(0, 2)))
    launches = [
        lambda: main.submit(lambda: change(1)),
        begin if alike is None else Shared(begin, alike),
        lambda: main.submit(lambda: seen.append(0)),
        end,
        lambda: main.submit(lambda: change(3)),
    ]
    replay, wanted = CapturedReplay(main, launches, list("abcde")), 0
    for _ in range(STEPS):
        replay()
        wanted = 2 * (wanted + 1) + 3
    main.synchronize()
    assert held == [wanted]
    return replay


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_done_in_order_also_as_a_graph(seed):
    assert doubled(seed).is_captured


@pytest.mark.parametrize("site", waits.sites("beside.py"))
def test_a_wait_or_a_record_that_is_left_out_shows(site):
    assert waits.shows(site, [doubled], SEEDS)


def test_processes_that_agree_have_a_graph_each():
    same = Alone(lambda value: value)
    assert doubled(0, same).is_captured
    assert same.said[:3] == [(False, False, 0), (True, False, 0), True]
    assert set(same.said[3:]) == {(True, False, 2)}


def test_where_one_has_a_new_form_all_run_launch_by_launch():
    assert not doubled(0, Alone(lambda value: (False, False, 0))).is_captured


def test_graphs_that_were_not_made_together_are_made_anew():
    """Another process has a graph of the step 9: once one by one, then both make another."""
    other = Alone(lambda value: True if value is True else (True, True, 9))
    replay = doubled(0, other)
    assert replay.is_captured
    assert other.said[1:3] == [(True, False, 0), (True, True, 0)]


def test_where_one_cannot_capture_none_does():
    replay = doubled(0, Alone(lambda value: False if value is True else value))
    assert not replay.is_captured
    assert "process 1" in replay.cause
