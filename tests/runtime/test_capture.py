"""Replay as one graph: warmed up, captured, launched; with work beside it, with other processes, and where it fails."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import late_cupy
from late_cupy import LateCupy
from singa_lite.runtime.capture import CapturedReplay, Exchanged, NotCapturable, Shared
from singa_lite.runtime.side_stream import SideStream

SEEDS = range(8)
STEPS = 6


class Machine:
    """A late GPU, of which `run` makes a step of named pieces of work. done: what was done."""

    def __init__(self) -> None:
        self.cupy = LateCupy(0)
        self.stream, self.done = self.cupy.cuda.Stream(non_blocking=True), list[str]()

    def run(self, replay: CapturedReplay) -> str:
        """What a step did."""
        before = len(self.done)
        replay()
        self.stream.synchronize()
        return " ".join(self.done[before:])

    def replay(self, fails: Callable[[str, bool], Exception | None] = lambda name, noted: None) -> CapturedReplay:
        """Of a, b and c. fails: the error of a launch, by its name and whether it is only noted."""

        def launch(name: str) -> None:
            error = fails(name, self.stream.is_capturing())
            if error is not None:
                raise error
            self.stream.submit(lambda: self.done.append(name))

        launches = [lambda name=name: launch(name) for name in "abc"]
        return CapturedReplay(self.stream, launches, [f"{name!r} of layer 'l'" for name in "abc"])


def test_the_first_run_warms_up_the_second_captures():
    machine = Machine()
    replay = machine.replay()
    assert [(machine.run(replay), replay.is_captured) for _ in range(3)] == [
        ("a b c", False),
        ("a b c", True),
        ("a b c", True),
    ]


def waiting(name: str, noted: bool) -> Exception | None:
    return NotCapturable("it reads on the host") if noted and name == "b" else None


def assert_named(machine: Machine, replay: CapturedReplay, word: str) -> None:
    """The cause is told once, and launches go on one by one: nothing is done twice, nothing is left out."""
    assert machine.run(replay) == "a b c"
    with pytest.warns(UserWarning, match=word):
        assert machine.run(replay) == "a b c"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert machine.run(replay) == "a b c"
    assert not replay.is_captured and not machine.stream.is_capturing()


def test_a_launch_that_refuses_is_named():
    machine = Machine()
    assert_named(machine, machine.replay(waiting), "'b' of layer 'l': it reads on the host")


@pytest.mark.parametrize(
    ("breaks", "word"), [(lambda noted: "b" in noted, "'b' of layer 'l'"), (lambda noted: len(noted) > 1, "together")]
)
def test_the_cause_is_found_where_cuda_says_it_only_at_the_end(breaks, word, monkeypatch):
    machine, noted = Machine(), list[str]()
    end = machine.stream.end_capture

    def end_capture() -> Any:
        graph, names = end(), noted.copy()
        noted.clear()
        if breaks(names):
            raise RuntimeError("operation failed due to a previous error during capture")
        return graph

    monkeypatch.setattr(machine.stream, "end_capture", end_capture)
    assert_named(machine, machine.replay(lambda name, is_noted: noted.append(name) if is_noted else None), word)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("no code for this")])
def test_an_interrupt_while_capturing_and_a_first_run_that_fails_leave_nothing_open(error):
    machine = Machine()
    run = 1 if isinstance(error, RuntimeError) else 2  # an error in a capture is the cause of none
    errors: Iterator[Any] = iter([None] * 3 * (run - 1) + [None, error])
    replay = machine.replay(lambda name, noted: next(errors, None))
    for _ in range(run - 1):
        replay()
    with pytest.raises(type(error)):
        replay()
    assert (machine.stream.is_capturing(), replay.cause, replay.is_captured) == (False, "", False)
    machine.stream.synchronize()
    assert [machine.run(replay) for _ in range(2)] == ["a b c"] * 2
    assert replay.is_captured


# --- work on a stream of its own, over streams that are late: it comes behind what it needs, and is waited for


class Alone:
    """Agrees with nobody else, or with one that says something else. said: what this process has said."""

    def __init__(self, *others: Any) -> None:
        self.others, self.said = others, list[Any]()

    def agree(self, value: Any) -> Exchanged:
        self.said.append(value)
        return Exchanged(len(self.said), [value, *(other(value) for other in self.others)])


def doubled(seed: int, alike: Alone | None = None) -> CapturedReplay:
    """Each step adds 1, doubles beside other work, and adds 3."""
    cupy = LateCupy(seed)
    main, held, seen = cupy.cuda.Stream(non_blocking=True), [0], list[int]()

    def change(by: int, times: int = 1) -> None:
        held[0] = held[0] * times + by

    beside = SideStream(cupy, main)
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


def test_it_is_done_in_order_also_as_a_graph():
    assert all(doubled(seed).is_captured for seed in SEEDS)


@pytest.mark.parametrize("site", late_cupy.sites("side_stream.py"))
def test_a_wait_or_a_record_that_is_left_out_shows(site):
    assert late_cupy.shows(site, [doubled], SEEDS)


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
    assert doubled(0, other).is_captured
    assert other.said[1:3] == [(True, False, 0), (True, True, 0)]


def test_where_one_cannot_capture_none_does():
    replay = doubled(0, Alone(lambda value: False if value is True else value))
    assert not replay.is_captured
    assert "process 1" in replay.cause
