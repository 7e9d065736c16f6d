"""Workers: each piece is done once, nobody is at work afterwards, and errors arrive."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from singa_lite.kernels import workers


class Slots:
    """So many slots that do `piece`, and note who did which."""

    def __init__(self, count: int, piece: Callable[[int], object]) -> None:
        self.done: list[list[int]] = [[] for _ in range(count)]
        self.threads: list[set[int]] = [set() for _ in range(count)]
        self.inside = 0
        self.piece = piece
        self.works = [lambda pieces, slot=slot: self.work(slot, pieces) for slot in range(count)]

    def work(self, slot: int, pieces: Iterator[int]) -> None:
        self.inside += 1
        try:
            for piece in pieces:
                self.threads[slot].add(threading.get_ident())
                self.piece(piece)
                self.done[slot].append(piece)
        finally:
            self.inside -= 1

    def all_done(self) -> list[int]:
        return sorted(piece for slot in self.done for piece in slot)


def meet(count: int) -> Callable[[int], object]:
    """A piece that ends once so many are being done at the same time."""
    barrier = threading.Barrier(count)
    return lambda piece: barrier.wait(30)


def test_each_piece_is_done_once_and_each_slot_by_one_thread():
    slots = Slots(3, lambda piece: time.sleep(0.001))
    workers.share(50, slots.works)
    assert slots.all_done() == list(range(50))
    assert all(len(idents) <= 1 for idents in slots.threads)
    assert slots.threads[0] == {threading.get_ident()}


def test_an_error_in_a_worker_arrives_and_no_further_piece_begins():
    caller, barrier = threading.get_ident(), threading.Barrier(2)

    def piece(number: int) -> None:
        if number < 2:
            barrier.wait(30)  # so that a worker has one of the first two
        if threading.get_ident() != caller:
            raise ValueError(f"piece {number}")
        if number >= 2:
            time.sleep(0.05)

    slots = Slots(2, piece)
    with pytest.raises(ValueError, match=r"piece \d"):
        workers.share(1000, slots.works)
    assert slots.inside == 0
    assert len(slots.all_done()) < 100
    workers.share(2, Slots(2, meet(2)).works)  # the worker is still there


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timer that sends signals")
def test_interrupts_again_and_again_wait_for_the_worker():
    caller, barrier = threading.get_ident(), threading.Barrier(2)

    def piece(number: int) -> None:
        barrier.wait(30)
        if threading.get_ident() == caller:
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.02)
        time.sleep(0.2)

    slots = Slots(2, piece)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            workers.share(2, slots.works)
        inside = slots.inside
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert inside == 0 and len(slots.all_done()) == 1


@pytest.mark.parametrize("at", range(1, 40, 3))
def test_an_interrupt_at_any_line_leaves_nobody_at_work(at):
    seen = 0

    def trace(frame, event, argument):
        nonlocal seen
        if frame.f_code.co_filename != workers.__file__:
            return None
        if event == "line":
            seen += 1
            if seen == at:
                raise KeyboardInterrupt
        return trace

    slots = Slots(2, lambda piece: time.sleep(0.002))
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        workers.share(4, slots.works)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    count = len(slots.all_done())
    assert slots.inside == 0
    time.sleep(0.01)
    assert len(slots.all_done()) == count
    workers.share(2, Slots(2, meet(2)).works)


def test_calls_of_several_threads_do_not_wait_for_each_other():
    met = meet(2)
    slots = [Slots(2, met if number < 2 else lambda piece: None) for number in range(4)]
    threads = [threading.Thread(target=workers.share, args=(6, each.works)) for each in slots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [each.all_done() for each in slots] == [list(range(6))] * 4


def test_a_call_within_a_piece_is_done():
    inner = Slots(2, lambda piece: None)
    workers.share(2, Slots(2, lambda piece: piece == 0 and workers.share(5, inner.works)).works)
    assert inner.all_done() == list(range(5))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork: run on Linux")
def test_a_child_process_has_workers_of_its_own():
    workers.share(2, Slots(2, meet(2)).works)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            workers.share(2, Slots(2, meet(2)).works)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
