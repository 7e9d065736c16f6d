"""Ctrl-C inside a destructor, where Python ignores exceptions: the next operation raises it, and only that one."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any
from weakref import WeakSet, finalize

import numpy as np
import pytest

from kernel_sets import kernel_sets
from singa_lite import FeedForwardNet, Tensor, autograd, device, layers, loss, optimizer, tensor
from singa_lite.common.contexts import raise_ignored
from singa_lite.kernels.onednn_kernels.library import handles

HAS_ONEDNN = any(kernels.name == "onednn" for kernels in kernel_sets())
ON = device.new_cpu()
ONE = np.ones((2, 3), "f")


class At:
    """A tracer that raises an interrupt where a function of this name begins, once, as a signal would."""

    def __init__(self, name: str, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.name, self.error, self.came = name, error, False
        self._kept = self._enter  # as in `interrupts.Tracer`

    def _enter(self, frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code.co_qualname == self.name and not self.came:
            self.came = True
            raise self.error

    def during(self, work: Callable[[], Any]) -> None:
        """Do the work, out of which nothing may come."""
        before = sys.gettrace()
        gc.collect()
        gc.disable()  # what earlier tests left would die on the way, and an operation of the work's raise it
        raise_ignored()
        try:
            sys.settrace(self._kept)
            work()
        finally:
            sys.settrace(before)
            gc.enable()
        assert self.came, f"{self.name} was not called"


def operation() -> Tensor:
    return autograd.add(tensor.from_numpy(ONE, ON), tensor.from_numpy(ONE, ON))


def replayed_step() -> FeedForwardNet:
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(), seed=0)
    net.add(layers.Dense("dense", 3, input_sample_shape=(3,)))
    net.compile(optimizer.SGD(0.1))
    for _ in range(3):
        net.train_one_batch(ONE, ONE)
    return net


def left_generator() -> None:
    @contextmanager
    def block() -> Any:
        try:
            yield
        finally:
            ending()

    made = block()
    made.__enter__()


def ending() -> None:
    """What a generator calls that is dropped."""


class Own:
    """A user's object."""

    def __del__(self) -> None:
        pass


def weak() -> None:
    table, one = WeakSet(), Own()
    table.add(one)
    del one  # before the table


#: {a function that Python calls where something dies: what makes it do so}. All go by one hook of Python's.
CASES: dict[str, Callable[[Path], Any]] = {
    "Block.__del__": lambda path: operation(),
    "Pool.give": lambda path: operation(),
    "finalize.__call__": lambda path: finalize(Own(), ending),
    "Arena.leave": lambda path: replayed_step(),
    "WeakSet.__init__.<locals>._remove": lambda path: weak(),
    "ending": lambda path: left_generator(),
    "Own.__del__": lambda path: Own(),
}
if HAS_ONEDNN:
    CASES["Handle.__del__"] = lambda path: handles._new_memory_desc((2, 3), (3, 1), "float32")


@pytest.mark.parametrize("name", CASES)
def test_the_next_operation_raises_it(name, tmp_path):
    def work() -> None:
        CASES[name](tmp_path)
        gc.collect()

    At(name).during(work)
    with pytest.raises(KeyboardInterrupt):
        operation()
    np.testing.assert_array_equal(operation().array, ONE + 1)


def test_the_next_replay_raises_it_before_anything_changes():
    net = replayed_step()
    before = net.param_values()[0].array.copy()
    At("Block.__del__").during(operation)
    with pytest.raises(KeyboardInterrupt):
        net.train_one_batch(ONE, ONE)
    assert net.optimizer.step == 3 and not net.unfinished_at
    np.testing.assert_array_equal(net.param_values()[0].array, before)
    net.train_one_batch(ONE, ONE)


def test_so_does_the_exit_that_a_handler_of_a_signal_asks_for_also_at_a_replay():
    with ON.recording() as graph:
        kept = operation()
    graph.run()
    At("Block.__del__", SystemExit).during(operation)
    with pytest.raises(SystemExit):
        graph.run()
    graph.run()
    np.testing.assert_array_equal(kept.array, ONE + 1)


def test_other_errors_go_where_python_sends_them(monkeypatch):
    found = []
    monkeypatch.setattr(sys, "unraisablehook", found.append)
    operation()  # which has the hook that was set behind its own
    At("Own.__del__", OSError).during(Own)
    assert [given.exc_type for given in found] == [OSError]
    operation()


def test_it_is_the_thread_s_own():
    found: list[object] = []

    def work() -> None:
        At("Block.__del__").during(operation)
        try:
            operation()
        except KeyboardInterrupt:
            found.append("raised")
        found.append(operation())

    At("Block.__del__").during(operation)
    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert found[0] == "raised" and isinstance(found[1], Tensor)
    with pytest.raises(KeyboardInterrupt):
        operation()


def in_child(work: Callable[[], Any]) -> int:
    """The status of a child process that does the work: 0 where it comes to its end, 3 where that raises."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        work()
        os._exit(0)
    except BaseException:
        os._exit(3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_child_raises_its_own_and_not_its_parent_s():
    At("Block.__del__").during(operation)
    assert in_child(operation) == 0
    with pytest.raises(KeyboardInterrupt):
        operation()
    assert in_child(lambda: (At("Block.__del__").during(operation), operation())) == 3


def test_no_signal_of_a_timer_is_lost():
    """Wherever it comes, some operation ends; blocks are made and dropped all the time."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for number in range(30):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + number * 2e-5)
                until = time.monotonic() + 20
                while time.monotonic() < until:
                    operation()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
