"""Replay as one graph: warmed up, captured, launched; and what becomes of a step that cannot be captured."""

from __future__ import annotations

import warnings

import pytest

from singa_lite.runtime.capture import CapturedReplay, NotCapturable


class Stream:
    """A stream that notes. broken: names of work during whose capture CUDA breaks it off, which it says at the end."""

    def __init__(self, broken: tuple[str, ...] = ()) -> None:
        self.done: list[str] = []
        self.noted: list[str] | None = None
        self.broken = broken
        self.captures = 0

    def work(self, name: str):
        def launch() -> None:
            (self.done if self.noted is None else self.noted).append(name)

        return launch

    def waiting(self, name: str):
        def launch() -> None:
            if self.noted is not None:
                raise NotCapturable("it reads on the host")
            self.done.append(name)

        return launch

    def begin_capture(self) -> None:
        assert self.noted is None, "a capture was left open"
        self.noted = []
        self.captures += 1

    def end_capture(self) -> Graph:
        noted, self.noted = self.noted, None
        if set(noted) & set(self.broken):
            raise RuntimeError("operation failed due to a previous error during capture")
        return Graph(noted)


class Graph:
    def __init__(self, noted: list[str]) -> None:
        self.noted = noted

    def launch(self, stream: Stream) -> None:
        stream.done.append("+".join(self.noted))


def replay_of(stream: Stream, **launches) -> CapturedReplay:
    return CapturedReplay(stream, list(launches.values()), [f"{name!r} of layer 'l'" for name in launches])


def test_the_first_run_warms_up_the_second_captures_and_later_ones_are_one_launch():
    stream = Stream()
    replay = replay_of(stream, a=stream.work("a"), b=stream.work("b"))
    replay()
    assert (stream.done, replay.is_captured) == (["a", "b"], False)
    replay()
    assert (stream.done[2:], replay.is_captured, stream.captures) == (["a+b"], True, 1)
    replay()
    assert (stream.done[3:], stream.captures) == (["a+b"], 1)


def test_a_launch_that_refuses_is_named_and_the_launches_go_one_by_one():
    stream = Stream()
    replay = replay_of(stream, a=stream.work("a"), odd=stream.waiting("odd"), b=stream.work("b"))
    replay()
    with pytest.warns(UserWarning, match="'odd' of layer 'l': it reads on the host"):
        replay()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        replay()
    assert stream.done == ["a", "odd", "b"] * 3, "nothing is done twice, nothing is left out"
    assert replay.cause.startswith("'odd'")
    assert stream.noted is None


def test_the_cause_is_found_where_cuda_says_it_only_at_the_end():
    stream = Stream(broken=("b",))
    replay = replay_of(stream, a=stream.work("a"), b=stream.work("b"), c=stream.work("c"))
    replay()
    with pytest.warns(UserWarning, match="'b' of layer 'l'"):
        replay()
    assert stream.done == ["a", "b", "c"] * 2


def test_operations_that_can_be_captured_alone_only_are_said_so():
    class Together(Stream):
        def end_capture(self) -> Graph:
            noted, self.noted = self.noted, None
            if len(noted) > 1:
                raise RuntimeError("not both")
            return Graph(noted)

    stream = Together()
    replay = replay_of(stream, a=stream.work("a"), b=stream.work("b"))
    replay()
    with pytest.warns(UserWarning, match="not both"):
        replay()
    assert stream.done == ["a", "b"] * 2


def test_an_interrupt_while_capturing_ends_the_capture_and_comes_out():
    stream = Stream()
    interrupts = iter([False, True, False])

    def launch() -> None:
        if next(interrupts):
            raise KeyboardInterrupt
        stream.work("a")()

    replay = replay_of(stream, a=launch)
    replay()
    with pytest.raises(KeyboardInterrupt):
        replay()
    assert (stream.noted, replay.cause, replay.is_captured) == (None, "", False)
    replay()
    assert replay.is_captured


def test_a_first_run_that_fails_is_no_warm_up():
    stream = Stream()
    failures = iter([True, False, False])

    def launch() -> None:
        if next(failures):
            raise RuntimeError("no code for this")
        stream.work("a")()

    replay = replay_of(stream, a=launch)
    with pytest.raises(RuntimeError):
        replay()
    replay()
    assert not replay.is_captured
    replay()
    assert replay.is_captured
