"""Checkpoints that a thread writes: of the step they were taken at, one at a time, and nothing is lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from threading import Event, Timer, current_thread, main_thread
from typing import Any

import numpy as np
import pytest

from nets import state_of
from resume_run import BATCH, NETS, Kill, Killed, data, fit, images, outcome, steps
from singa_lite import FeedForwardNet, device, layers, loss, optimizer
from singa_lite.fit import Callback, Training
from singa_lite.snapshots import Checkpoint, formats, tree
from singa_lite.snapshots.checkpoints.background import HostCopy
from singa_lite.snapshots.checkpoints.folder import step_of
from singa_lite.tensor import to_numpy


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


class Halving(Callback):
    """Changes what is trained, after each step."""

    def on_batch(self, training: Training) -> None:
        bias = training.net.parameters()["dense/bias"]
        bias.copy_from_numpy(to_numpy(bias) / 2)


def test_what_callbacks_change_after_it_is_in_it(tmp_path):
    whole, net = images("SGD"), images("SGD")
    wanted = outcome(whole, fit(whole, "images", Halving()))
    with pytest.raises(Killed):
        callbacks = Checkpoint(tmp_path, every_steps=3, background=True), Halving(), Kill(8)
        fit(images("SGD"), "images", *callbacks)
    again = Checkpoint(tmp_path, background=True), Halving()
    assert outcome(net, fit(net, "images", *again, resume="auto")) == wanted


def test_it_ends_with_the_training(tmp_path):
    """What was due, and never begun as an interrupt came, is not written by a later step of the net."""
    net = images("SGD")
    with pytest.raises(KeyboardInterrupt):
        fit(net, "images", Checkpoint(tmp_path, every_steps=3, background=True), Kill(3, interrupt))
    net.train_one_batch(*(part[:BATCH] for part in data("images")))
    assert not steps(tmp_path)


def interrupt() -> None:
    raise KeyboardInterrupt


class Steps(Callback):
    """Which steps a run did."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_batch(self, training: Training) -> None:
        self.seen.append(training.net.optimizer.step)


def test_who_goes_on_after_an_interrupt_waits_for_what_was_being_written(tmp_path, monkeypatch):
    """Else it would find nothing to go on from, and then, as it begins, a checkpoint of a later step."""
    net = images("SGD")
    wanted = outcome(net, fit(net, "images"))
    gate = Gate(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fit(images("SGD"), "images", Checkpoint(tmp_path, every_steps=3, background=True), Kill(4, interrupt))
    assert not steps(tmp_path)
    Timer(0.1, gate.open).start()
    again, done = images("SGD"), Steps()
    history = fit(again, "images", done, Checkpoint(tmp_path, background=True), resume="auto")
    assert done.seen[0] == 4
    assert outcome(again, history) == wanted


class Fork(Callback):
    """A child process trains the net after each batch. statuses: of the children, which an alarm ends if they hang."""

    def __init__(self) -> None:
        self.statuses: list[int] = []

    def on_batch(self, training: Training) -> None:
        child = os.fork()
        if not child:
            signal.alarm(20)
            try:
                training.net.train_one_batch(np.ones((3, 500), "f"), np.ones((3, 700), "f"))
                os._exit(0)
            finally:
                os._exit(1)
        self.statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_child_trains_while_its_parent_has_one_written(tmp_path):
    """It waits for no thread of its parent's."""
    net, forks = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(), seed=0), Fork()
    net.add(layers.Dense("dense", 700, input_sample_shape=(500,)))
    net.compile(optimizer.SGD(0.1))
    last = Checkpoint(tmp_path, every_steps=1, background=True)
    net.fit(np.ones((32, 500), "f"), np.ones((32, 700), "f"), 4, verbose=False, callbacks=[last, forks])
    assert forks.statuses == [0] * 8
    assert steps(tmp_path)
