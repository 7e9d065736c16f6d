"""SIGTERM and Ctrl-C in this process: what leaves, what is written, and that handlers are put back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest

from resume_run import Kill, Killed, fit, images, outcome, steps
from singa_lite.fit import Callback, Training
from singa_lite.snapshots import Checkpoint, formats

pytestmark = pytest.mark.skipif(os.name == "nt", reason="this system has no POSIX signals")


@pytest.fixture(autouse=True)
def handlers_are_put_back() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_the_step_is_finished_and_written(tmp_path, number, error, background):
    net, whole = images("Adam"), images("Adam")
    last = Checkpoint(tmp_path, every_minutes=60, background=background)
    with pytest.raises(error) as raised:
        fit(net, "images", Kill(7, send(number)), last)
    assert raised.value.args == ((143,) if number == signal.SIGTERM else (f"a checkpoint is in {tmp_path}",))
    assert steps(tmp_path) == [7] == [net.optimizer.step]
    again = images("Adam")
    assert outcome(again, fit(again, "images", last, resume="auto")) == outcome(whole, fit(whole, "images"))


class InValidation(Callback):
    seen = 0

    def on_validation_batch(self, training: Training) -> None:
        self.seen += 1
        if self.seen == 2:
            send(signal.SIGTERM)()


def test_a_validation_is_left_and_done_anew(tmp_path):
    net, whole, left = images("Adam"), images("Adam"), InValidation()
    with pytest.raises(SystemExit):
        fit(images("Adam"), "images", left, Checkpoint(tmp_path))
    assert left.seen == 2
    assert outcome(net, fit(net, "images", Checkpoint(tmp_path), resume="auto")) == outcome(whole, fit(whole, "images"))


class AtEpoch(Callback):
    def on_epoch(self, training: Training) -> None:
        send(signal.SIGTERM)()


@pytest.mark.parametrize("after", [False, True])
def test_between_epochs_and_at_the_end(tmp_path, after):
    """Once written, a checkpoint is not written again to leave."""
    net, last = images("SGD"), Checkpoint(tmp_path)
    callbacks = [last, AtEpoch()] if after else [AtEpoch(), last]
    with pytest.raises(SystemExit):
        fit(net, "images", *callbacks, epochs=1)
    assert steps(tmp_path) == [5]


def test_a_second_one_interrupts_at_once(tmp_path, monkeypatch):
    def twice() -> None:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            send(number)()

    net = images("SGD")
    with pytest.raises(KeyboardInterrupt):
        fit(net, "images", Kill(3, twice), Checkpoint(tmp_path))
    assert not steps(tmp_path)

    write = formats.write

    def interrupted(contents: Any, path: Any) -> None:
        send(signal.SIGINT)()
        write(contents, path)

    monkeypatch.setattr(formats, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(images("SGD"), "images", Kill(3, send(signal.SIGINT)), Checkpoint(tmp_path))
    assert not list(tmp_path.iterdir())


def test_ignored_signals_stay_ignored(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        fit(images("SGD"), "images", Kill(3, send(signal.SIGINT)), Checkpoint(tmp_path))
    finally:
        signal.signal(signal.SIGINT, before)
    assert steps(tmp_path)[0] == 15


def test_other_threads_leave_signals_alone(tmp_path):
    found: list[Any] = []

    class Look(Callback):
        def on_batch(self, training: Training) -> None:
            found.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = Thread(target=fit, args=(images("SGD"), "images", Checkpoint(tmp_path), Look()))
    thread.start()
    thread.join()
    assert set(found) == {before} and len(found) == 15
    assert steps(tmp_path)[0] == 15


def test_an_error_puts_them_back(tmp_path):
    with pytest.raises(Killed):
        fit(images("SGD"), "images", Checkpoint(tmp_path), Kill(2))
