"""Turns: one thread at a time, also for one turn within another, whatever ends the work."""

from __future__ import annotations

from threading import Event, Thread

import pytest

from singa_lite.common.contexts import StepLock


class Refused(Exception):
    """What a turn answers that does not wait."""


def busy(turn: StepLock, until: Event) -> Thread:
    """A thread that has the turn until then."""
    begun = Event()

    def work() -> None:
        begun.set()
        until.wait()

    thread = Thread(target=turn.run, args=(work,))
    thread.start()
    begun.wait()
    return thread


@pytest.mark.parametrize("taken", ["first", "second"])
@pytest.mark.parametrize("waits", [True, False], ids=["waits", "refuses"])
def test_two_turns_are_those_of_one_thread(taken, waits):
    turns = {name: StepLock(None if waits else Refused) for name in ("first", "second")}
    free, done = Event(), []
    other = busy(turns[taken], free)
    try:
        if not waits:
            with pytest.raises(Refused):
                turns["first"].run(turns["second"].run, done.append, 1)
            assert not done
            return
        waiting = Thread(target=turns["first"].run, args=(turns["second"].run, done.append, 1))
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive() and not done
    finally:
        free.set()
        other.join()
    waiting.join()
    assert done == [1]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_both_are_free_when_the_work_has_ended_however_it_did(error):
    first, second = StepLock(Refused), StepLock(Refused)

    def fail() -> None:
        raise error("of the work's own")

    with pytest.raises(error, match="of the work's own"):
        first.run(second.run, fail)
    assert first.run(second.run, int, 7) == second.run(first.run, int, 7) == 7


def test_inside_either_of_them_both_may_be_taken_again():
    first, second = StepLock(Refused), StepLock(Refused)
    assert first.run(second.run, first.run, second.run, int, 7) == 7
    assert first.run(second.run, second.run, first.run, int, 7) == 7
    assert first.run(first.run, second.run, int, 7) == 7
    assert second.run(first.run, second.run, int, 7) == 7
