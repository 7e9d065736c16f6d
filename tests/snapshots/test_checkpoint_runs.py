"""Runs as people start them: twice in a folder, several checkpoints, signals, other settings, threads that write."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread, Timer, current_thread, main_thread
from typing import Any

import numpy as np
import pytest

from nets import state_of
from resume_run import BATCH, NETS, Kill, Killed, act, data, fit, images, outcome, steps
from singa_lite import FeedForwardNet, SnapshotError, device, layers, loss, metric, optimizer, schedule
from singa_lite.fit import StopTraining, Training
from singa_lite.snapshots import Checkpoint, formats, latest, tree
from singa_lite.snapshots.checkpoints.background import HostCopy
from singa_lite.snapshots.checkpoints.folder import BEST, step_of
from singa_lite.tensor import to_numpy

posix = pytest.mark.skipif(os.name == "nt", reason="this system has no POSIX signals, locks and permissions")


@pytest.fixture(autouse=True)
def handlers_are_put_back() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_monitor_that_is_not_there_is_told_before_training_or_loses_no_epoch(tmp_path):
    net = images("SGD")
    with pytest.raises(ValueError, match="val_loss"):
        fit(net, "images", Checkpoint(tmp_path, monitor="val_loss"), validation_data=None)
    with pytest.raises(ValueError, match="'nothing'"):
        fit(net, "images", Checkpoint(tmp_path, monitor="nothing", mode="min"))
    assert net.optimizer.step == 0 and steps(tmp_path) == []
    with pytest.raises(ValueError, match="'nothing'"):
        fit(net, "images", act(on_epoch=print), Checkpoint(tmp_path, monitor="nothing", mode="min"))
    assert steps(tmp_path) == [5]


def test_a_run_may_go_on_with_a_validation_that_it_had_not(tmp_path):
    with pytest.raises(Killed):
        fit(images("SGD"), "images", Checkpoint(tmp_path), Kill(7), validation_data=None)
    net = images("SGD")
    fit(net, "images", Checkpoint(tmp_path, monitor="val_loss"), resume="auto")
    assert net.optimizer.step == 15 and (tmp_path / BEST).exists()


# --- folders ------------------------------------------------------------------------------------------------


@posix
def test_a_folder_serves_one_run_at_a_time(tmp_path):
    def second(training: Training) -> None:
        with pytest.raises(SnapshotError, match="another run"):
            fit(images("SGD"), "images", Checkpoint(tmp_path), resume="auto")
        raise Killed

    with pytest.raises(Killed):
        fit(images("SGD"), "images", act(on_batch=second), Checkpoint(tmp_path))
    fit(images("SGD"), "images", Checkpoint(tmp_path), epochs=1)
    assert steps(tmp_path) == [5]


def test_going_back_to_an_earlier_one_changes_nothing_where_later_ones_are(tmp_path):
    fit(images("SGD"), "images", Checkpoint(tmp_path, every_steps=5))
    net = images("SGD")
    before = state_of(net)
    earlier = tmp_path / f"checkpoint-{5:010}.h5"
    with pytest.raises(SnapshotError, match="checkpoint-0000000015"):
        fit(net, "images", Checkpoint(tmp_path), resume=earlier)
    assert state_of(net) == before
    fit(net, "images", Checkpoint(tmp_path / "branch"), resume=earlier)
    assert net.optimizer.step == 15


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "run").write_text("x")
    for resume in (None, "auto"):
        with pytest.raises(SnapshotError, match="run"):
            fit(images("SGD"), "images", Checkpoint(tmp_path / "run"), resume=resume)


def test_an_old_one_that_cannot_be_removed_does_not_end_the_training(tmp_path, monkeypatch):
    unlink = Path.unlink

    def refusing(path: Path, **options: Any) -> None:
        if path.name == f"checkpoint-{5:010}.h5":
            raise PermissionError(1, "not here")
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", refusing)
    with pytest.warns(UserWarning, match="not here"):
        fit(images("SGD"), "images", Checkpoint(tmp_path, keep=1))
    assert steps(tmp_path) == [15, 5]


def test_a_file_of_a_later_version_is_not_damaged(tmp_path, monkeypatch):
    with monkeypatch.context() as context:
        context.setattr(tree, "VERSION", 3)
        fit(images("SGD"), "images", Checkpoint(tmp_path), epochs=1)
    with pytest.raises(SnapshotError, match=r"version.* 3"):
        fit(images("SGD"), "images", Checkpoint(tmp_path), resume="auto")
    assert os.listdir(tmp_path) == [f"checkpoint-{5:010}.h5"]


def test_several_checkpoints_go_on_from_the_newest_of_all(tmp_path):
    def several() -> list[Checkpoint]:
        return [Checkpoint(tmp_path / "often", every_steps=1), Checkpoint(tmp_path / "seldom", every_steps=4)]

    for order, step in ((1, 7), (-1, 11)):
        with pytest.raises(Killed):
            fit(images("Adam"), "images", *several()[::order], Kill(step), resume="auto")
    net, whole = images("Adam"), images("Adam")
    assert outcome(net, fit(net, "images", *several(), resume="auto")) == outcome(whole, fit(whole, "images"))


@posix
def test_each_of_several_is_written_before_leaving(tmp_path):
    several = [Checkpoint(tmp_path / name, every_minutes=60, background=name == "b") for name in "ab"]
    with pytest.raises(SystemExit):
        fit(images("SGD"), "images", Kill(7, send(signal.SIGTERM)), *several)
    assert steps(tmp_path / "a") == steps(tmp_path / "b") == [7]


@pytest.mark.parametrize("resume", [True, 3, b"auto"])
def test_what_to_go_on_from_is_a_path(tmp_path, resume):
    with pytest.raises(TypeError, match="fit resume"):
        fit(images("SGD"), "images", Checkpoint(tmp_path), resume=resume)


# --- signals ------------------------------------------------------------------------------------------------


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


@posix
@pytest.mark.parametrize(
    ("number", "error", "background"),
    [(signal.SIGTERM, SystemExit, True), (signal.SIGTERM, SystemExit, False), (signal.SIGINT, KeyboardInterrupt, True)],
)
def test_the_step_is_finished_and_written(tmp_path, number, error, background):
    net, whole = images("Adam"), images("Adam")
    last = Checkpoint(tmp_path, every_minutes=60, background=background)
    with pytest.raises(error) as raised:
        fit(net, "images", Kill(7, send(number)), last)
    assert raised.value.args == ((143,) if number == signal.SIGTERM else (f"a checkpoint is in {tmp_path}",))
    assert steps(tmp_path) == [7] == [net.optimizer.step]
    again = images("Adam")
    assert outcome(again, fit(again, "images", last, resume="auto")) == outcome(whole, fit(whole, "images"))


@posix
def test_a_validation_is_left_and_done_anew(tmp_path):
    net, whole, seen = images("Adam"), images("Adam"), []

    def leave(training: Training) -> None:
        seen.append(training)
        if len(seen) == 2:
            send(signal.SIGTERM)()

    with pytest.raises(SystemExit):
        fit(images("Adam"), "images", act(on_validation_batch=leave), Checkpoint(tmp_path))
    assert len(seen) == 2
    assert outcome(net, fit(net, "images", Checkpoint(tmp_path), resume="auto")) == outcome(whole, fit(whole, "images"))


@posix
@pytest.mark.parametrize("after", [False, True])
def test_between_epochs_and_at_the_end(tmp_path, after):
    """Once written, a checkpoint is not written again to leave."""
    net, last = images("SGD"), Checkpoint(tmp_path)
    callbacks = [last, act(on_epoch=lambda training: send(signal.SIGTERM)())][:: 1 if after else -1]
    with pytest.raises(SystemExit):
        fit(net, "images", *callbacks, epochs=1)
    assert steps(tmp_path) == [5]


@posix
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


@posix
def test_ignored_signals_stay_ignored(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        fit(images("SGD"), "images", Kill(3, send(signal.SIGINT)), Checkpoint(tmp_path))
    finally:
        signal.signal(signal.SIGINT, before)
    assert steps(tmp_path)[0] == 15


def test_other_threads_leave_signals_alone(tmp_path):
    found: list[Any] = []
    look = act(on_batch=lambda training: found.append(signal.getsignal(signal.SIGTERM)))
    before = signal.getsignal(signal.SIGTERM)
    thread = Thread(target=fit, args=(images("SGD"), "images", Checkpoint(tmp_path), look))
    thread.start()
    thread.join()
    assert set(found) == {before} and len(found) == 15
    assert steps(tmp_path)[0] == 15


def test_an_error_puts_them_back(tmp_path):
    with pytest.raises(Killed):
        fit(images("SGD"), "images", Checkpoint(tmp_path), Kill(2))


@posix
@pytest.mark.parametrize("background", [False, True])
def test_a_signal_that_comes_with_an_error_is_obeyed(tmp_path, background):
    def both() -> None:
        send(signal.SIGTERM)()
        raise Killed("in the middle")

    with pytest.warns(UserWarning, match="in the middle"), pytest.raises(SystemExit) as raised:
        fit(images("SGD"), "images", Kill(7, both), Checkpoint(tmp_path, background=background))
    assert raised.value.args == (143,)


@posix
def test_a_child_process_has_the_signals_that_there_were(tmp_path):
    codes: list[int | None] = []

    def forking(training: Training) -> None:
        child = get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        time.sleep(0.1)
        child.terminate()
        child.join(20)
        codes.append(child.exitcode)
        child.kill()
        raise StopTraining

    fit(images("SGD"), "images", Checkpoint(tmp_path), act(on_batch=forking))
    assert codes == [-signal.SIGTERM]


# --- writing ------------------------------------------------------------------------------------------------


def test_the_last_one_is_tried_though_one_before_it_failed(tmp_path, monkeypatch):
    write = formats.write

    def failing(contents: Any, path: Path) -> None:
        if step_of(path) == 14:
            time.sleep(0.3)  # until the training is over
            raise SnapshotError("no space")
        write(contents, path)

    monkeypatch.setattr(formats, "write", failing)
    with pytest.warns(UserWarning, match="no space"):
        history = fit(images("SGD"), "images", Checkpoint(tmp_path, every_steps=14, background=True))
    assert len(history["loss"]) == 3 and steps(tmp_path)[0] == 15


# --- settings -----------------------------------------------------------------------------------------------


def test_a_schedule_is_asked_for_the_steps_that_are_taken_only(tmp_path):
    asked: list[int] = []
    rates = [0.1] * 15

    def rate(step: int) -> float:
        asked.append(step)
        return rates[step]

    net = images("SGD")
    net.compile(optimizer.SGD(rate), metric=metric.Accuracy())
    fit(net, "images", Checkpoint(tmp_path, every_steps=4))
    assert asked == list(range(15))
    fit(net, "images", resume=latest(tmp_path))
    assert asked == list(range(15))


def test_none_is_written_within_a_group_of_batches(tmp_path):
    written: list[list[int]] = []
    net = images("SGD")
    net.compile(optimizer.SGD(0.1), accumulate=4)
    note = act(on_batch=lambda training: written.append(steps(tmp_path)))
    fit(net, "images", Checkpoint(tmp_path, every_steps=1), note, epochs=1)
    assert written[:5] == [[], [], [], [1], [1]]


OTHERS = {
    "schedule": lambda: optimizer.SGD(schedule.Step(0.1, 5, 0.5), momentum=0.9),
    "rules": lambda: halving(),
    "momentum": lambda: optimizer.SGD(schedule.Step(0.1, 5), momentum=0.8),
}


def halving() -> optimizer.Optimizer:
    made = optimizer.SGD(schedule.Step(0.1, 5), momentum=0.9)
    made.register("*/bias", lr_mult=0.5)
    return made


def compiled(made: Any = None, measured: Any = None) -> Any:
    net = images("SGD")
    net.compile(made or optimizer.SGD(schedule.Step(0.1, 5), momentum=0.9), metric=measured or metric.Accuracy())
    return net


@pytest.mark.parametrize("what", OTHERS)
def test_settings_that_are_not_what_they_were_are_told(tmp_path, what):
    """Where warnings are errors, nothing is changed."""
    with pytest.raises(Killed):
        fit(compiled(), "images", Checkpoint(tmp_path, every_steps=1), Kill(3))
    net = compiled(OTHERS[what]())
    before = state_of(net)
    with warnings.catch_warnings(), pytest.raises(UserWarning, match=f"{what} was"):
        warnings.simplefilter("error")
        fit(net, "images", Checkpoint(tmp_path), resume="auto")
    assert state_of(net) == before
    with pytest.warns(UserWarning, match=f"{what} was "):
        fit(net, "images", Checkpoint(tmp_path), resume="auto")


def test_another_metric_in_the_middle_of_an_epoch_is_refused(tmp_path):
    with pytest.raises(Killed):
        fit(compiled(), "images", Checkpoint(tmp_path, every_steps=1), Kill(7))
    net = compiled(measured=metric.TopKAccuracy(2))
    before = state_of(net)
    with pytest.raises(SnapshotError, match=r"TopKAccuracy.*Acc"):
        fit(net, "images", Checkpoint(tmp_path), resume="auto")
    assert state_of(net) == before


# --- checkpoints that a thread writes: of the step they were taken at, one at a time, and nothing is lost ---------


def interrupt() -> None:
    raise KeyboardInterrupt


class Gate:
    """Writing that waits until it is opened. paths: in the order of writing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.paths, self.threads = Event(), [], set()
        self._write = formats.write
        monkeypatch.setattr(formats, "write", self.write)

    def write(self, contents: tree.Tree, path: Path) -> None:
        assert self.opened.wait(30)
        self.threads.add(current_thread() is main_thread())
        self.paths.append(step_of(path))
        self._write(contents, path)

    def open(self) -> None:
        self.opened.set()


def test_it_is_of_its_step_and_the_next_one_waits_its_turn(tmp_path, monkeypatch):
    gate, last = Gate(monkeypatch), Checkpoint(tmp_path, every_steps=2, background=True, keep=9)

    def open_and_wait() -> None:
        gate.open()
        while last._saver.busy:
            time.sleep(0.001)

    fit(images("Adam"), "images", last, Kill(7, open_and_wait))
    assert gate.paths[:2] == [2, 8] and gate.paths[-1] == 15  # 4 and 6 were due while 2 was being written
    assert gate.threads == {False}
    net, wanted = images("Adam"), images("Adam")
    with pytest.raises(Killed):
        fit(wanted, "images", Kill(2))
    net.load(tmp_path / f"checkpoint-{2:010}.h5")
    assert state_of(net) == state_of(wanted)


@pytest.mark.parametrize("kind", ["images", "doubles"])
def test_a_step_waits_for_a_slow_copy_before_its_updates(tmp_path, monkeypatch, kind):
    begin = HostCopy.begin

    def slow(self: HostCopy, *args: Any) -> Any:
        copying = begin(self, *args)
        return copying._replace(finish=lambda: (time.sleep(0.2), copying.finish()))

    monkeypatch.setattr(HostCopy, "begin", slow)
    with pytest.raises(Killed):
        fit(NETS[kind]("Adam"), kind, Checkpoint(tmp_path, every_steps=4, background=True), Kill(6))
    net, wanted = NETS[kind]("Adam"), NETS[kind]("Adam")
    with pytest.raises(Killed):
        fit(wanted, kind, Kill(4))
    net.load(tmp_path / f"checkpoint-{4:010}.h5")
    assert state_of(net) == state_of(wanted)


@pytest.mark.parametrize("killed_at", [4, 5, 6])
def test_at_an_epoch_s_end_and_from_the_next_one_s_beginning(tmp_path, killed_at):
    """The one after 5 steps, an epoch, is copied when the next epoch's first step begins."""
    with pytest.raises(Killed):
        fit(images("SGD"), "images", Checkpoint(tmp_path, every_steps=5, background=True), Kill(killed_at))
    assert steps(tmp_path) == [5][: killed_at - 4]


def test_what_callbacks_change_after_it_is_in_it(tmp_path):
    def halve(training: Training) -> None:
        bias = training.net.parameters()["dense/bias"]
        bias.copy_from_numpy(to_numpy(bias) / 2)

    whole, net, halving = images("SGD"), images("SGD"), act(on_batch=halve)
    wanted = outcome(whole, fit(whole, "images", halving))
    with pytest.raises(Killed):
        callbacks = Checkpoint(tmp_path, every_steps=3, background=True), halving, Kill(8)
        fit(images("SGD"), "images", *callbacks)
    again = Checkpoint(tmp_path, background=True), halving
    assert outcome(net, fit(net, "images", *again, resume="auto")) == wanted


def test_it_ends_with_the_training(tmp_path):
    """What was due, and never begun as an interrupt came, is not written by a later step of the net."""
    net = images("SGD")
    with pytest.raises(KeyboardInterrupt):
        fit(net, "images", Checkpoint(tmp_path, every_steps=3, background=True), Kill(3, interrupt))
    net.train_one_batch(*(part[:BATCH] for part in data("images")))
    assert not steps(tmp_path)


def test_who_goes_on_after_an_interrupt_waits_for_what_was_being_written(tmp_path, monkeypatch):
    """Else it would find nothing to go on from, and then, as it begins, a checkpoint of a later step."""
    net = images("SGD")
    wanted = outcome(net, fit(net, "images"))
    gate = Gate(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fit(images("SGD"), "images", Checkpoint(tmp_path, every_steps=3, background=True), Kill(4, interrupt))
    assert not steps(tmp_path)
    Timer(0.1, gate.open).start()
    again, seen = images("SGD"), []
    done = act(on_batch=lambda training: seen.append(training.net.optimizer.step))
    history = fit(again, "images", done, Checkpoint(tmp_path, background=True), resume="auto")
    assert seen[0] == 4
    assert outcome(again, history) == wanted


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_child_trains_while_its_parent_has_one_written(tmp_path):
    """It waits for no thread of its parent's; an alarm ends it if it hangs."""
    statuses: list[int] = []

    def fork(training: Training) -> None:
        child = os.fork()
        if not child:
            signal.alarm(20)
            try:
                training.net.train_one_batch(np.ones((3, 500), "f"), np.ones((3, 700), "f"))
                os._exit(0)
            finally:
                os._exit(1)
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(), seed=0)
    net.add(layers.Dense("dense", 700, input_sample_shape=(500,)))
    net.compile(optimizer.SGD(0.1))
    last = Checkpoint(tmp_path, every_steps=1, background=True)
    net.fit(np.ones((32, 500), "f"), np.ones((32, 700), "f"), 4, verbose=False, callbacks=[last, act(on_batch=fork)])
    assert statuses == [0] * 8
    assert steps(tmp_path)
