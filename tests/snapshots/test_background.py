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
from resume_run import BATCH, NETS, Kill, Killed, data, fit, images, outcome
from singa_lite import FeedForwardNet, SnapshotError, device, layers, loss, optimizer
from singa_lite.fit import Callback, Training
from singa_lite.snapshots import Checkpoint, formats, net_tree, tree
from singa_lite.snapshots.checkpoints.background import HostCopy, Work, Writer
from singa_lite.snapshots.checkpoints.folder import checkpoints, step_of
from singa_lite.tensor import to_numpy
from snapshot_nets import make_net, set_all, trained


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
        fit(images("Adam"), "images", Checkpoint(tmp_path, every_steps=5, background=True), Kill(killed_at))
    assert [step_of(file) for file in checkpoints(tmp_path)] == [5][: killed_at - 4]
    net, whole = images("Adam"), images("Adam")
    resumed = fit(net, "images", Checkpoint(tmp_path, background=True), resume="auto")
    assert outcome(net, resumed) == outcome(whole, fit(whole, "images"))


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
    assert not checkpoints(tmp_path)


def interrupt() -> None:
    raise KeyboardInterrupt


def test_best_and_last_ones_wait_for_the_one_under_way(tmp_path, monkeypatch):
    gate = Gate(monkeypatch)
    last = Checkpoint(tmp_path, every_steps=4, monitor="loss", background=True)
    fit(images("Adam"), "images", last, Kill(4, gate.open))
    assert gate.paths[:2] == [4, 5] and gate.paths[-1] == 15


def test_errors_of_the_thread_come_at_the_next_step(tmp_path, monkeypatch):
    gate, last = Gate(monkeypatch), Checkpoint(tmp_path, every_steps=2, background=True)
    monkeypatch.setattr(gate, "_write", broken)

    def open_and_wait() -> None:
        gate.open()
        while last._saver.busy:
            time.sleep(0.001)

    net = images("SGD")
    with pytest.raises(SnapshotError, match="no space"):
        fit(net, "images", last, Kill(6, open_and_wait))
    assert net.optimizer.step == 7
    assert not checkpoints(tmp_path)


def broken(*_: Any) -> None:
    raise SnapshotError("no space")


def test_a_writer_does_one_thing_at_a_time():
    writer, gate, done = Writer(background=True), Event(), []
    writer.start(lambda: done.append(gate.wait(30)))
    assert writer.busy and not done
    gate.set()
    writer.start(lambda: done.append("second"))
    writer.wait()
    assert done == [True, "second"] and not writer.busy
    writer.start(broken)
    with pytest.raises(SnapshotError, match="no space"):
        writer.wait()
    writer.wait()  # told once
    writer.close()


def copied_now(copy: HostCopy, net: Any) -> tree.Tree:
    copying = copy.begin(net_tree.of_net(net), net_tree.tensors(net))
    copying.finish()
    return copying.contents


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_copy_is_of_now_in_any_layout_and_its_memory_serves_again(dtype):
    net, copy = trained("Adam", dtype=dtype, on=device.new_cpu()), HostCopy()
    contents = net_tree.of_net(net)
    wanted = {path: lazy.fetch() for path, lazy in contents.arrays.items()}
    copying = copy.begin(contents, net_tree.tensors(net))
    assert copying.read_later == {net.parameters()[name].block for name in net.parameters()} | {
        tensor.block for slots in net.optimizer.state.values() for tensor in slots.values()
    }
    copying.finish()
    copied = copying.contents
    held = {path: id(array) for path, array in copy._arrays.items()}
    step = net.optimizer.step
    set_all(net, 9)
    assert copied.attributes["step"] == step
    for path, array in wanted.items():
        found = copied.arrays[path].fetch()
        assert (found.shape, found.dtype, found.flags.c_contiguous) == (array.shape, array.dtype, True)
        np.testing.assert_array_equal(found, array)
    again = copied_now(copy, net)
    assert {path: id(array) for path, array in copy._arrays.items()} == held
    assert all((lazy.fetch() == 9).all() for lazy in again.arrays.values())
    assert sum(array.nbytes for array in copy._arrays.values()) == sum(lazy.nbytes for lazy in again.arrays.values())


def test_another_net_gets_another_copy():
    copy = HostCopy()
    for net in (make_net(), make_net(dtype="float64")):
        found = copied_now(copy, net)
        for path, lazy in net_tree.of_net(net).arrays.items():
            np.testing.assert_array_equal(found.arrays[path].fetch(), lazy.fetch())


def test_a_step_does_not_wait_for_a_copy_that_was_never_begun(tmp_path, monkeypatch):
    """Ctrl-C between the note that something reads parameters, and the thread that does."""
    start, calls = Writer.start, []

    def interrupted(writer: Writer, work: Work) -> None:
        calls.append(work)
        if len(calls) == 2:  # the first one tries the folder
            raise KeyboardInterrupt
        start(writer, work)

    monkeypatch.setattr(Writer, "start", interrupted)
    net = images("SGD")
    with pytest.raises(KeyboardInterrupt):
        fit(net, "images", Checkpoint(tmp_path, every_steps=1, background=True))
    assert len(calls) == 2


def test_who_goes_on_after_an_interrupt_waits_for_what_was_being_written(tmp_path, monkeypatch):
    """Else it would find nothing to go on from, and then, as it begins, a checkpoint of a later step."""
    net = images("SGD")
    wanted = outcome(net, fit(net, "images"))
    gate = Gate(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fit(images("SGD"), "images", Checkpoint(tmp_path, every_steps=3, background=True), Kill(4, interrupt))
    assert not checkpoints(tmp_path)
    Timer(0.2, gate.open).start()
    again, steps = images("SGD"), Steps()
    history = fit(again, "images", steps, Checkpoint(tmp_path, background=True), resume="auto")
    assert steps.seen[0] == 4
    assert outcome(again, history) == wanted


class Steps(Callback):
    """Which steps a run did."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_batch(self, training: Training) -> None:
        self.seen.append(training.net.optimizer.step)


class Fork(Callback):
    """A child process trains the net after each batch. statuses: of the children; None: one hung."""

    def __init__(self) -> None:
        self.statuses: list[int | None] = []

    def on_batch(self, training: Training) -> None:
        child = os.fork()
        if not child:
            try:
                training.net.train_one_batch(np.ones((3, 500), "f"), np.ones((3, 700), "f"))
                os._exit(0)
            finally:
                os._exit(1)
        self.statuses.append(status_of(child))


def status_of(child: int) -> int | None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_child_trains_while_its_parent_has_one_written(tmp_path):
    """It waits for no thread of its parent's."""
    net, forks = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(), seed=0), Fork()
    net.add(layers.Dense("dense", 700, input_sample_shape=(500,)))
    net.compile(optimizer.SGD(0.1))
    last = Checkpoint(tmp_path, every_steps=1, background=True)
    net.fit(np.ones((60, 500), "f"), np.ones((60, 700), "f"), 4, verbose=False, callbacks=[last, forks])
    assert forks.statuses == [0] * 15
    assert checkpoints(tmp_path)
