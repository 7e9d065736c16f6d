"""Which of some processes ended first without a word: named by a program beside them, without any MPI."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from singa_lite.parallel import failures
from singa_lite.parallel.communicator import SingleProcess

pytestmark = pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="this system does not tell of other processes' ends; Linux does"
)


@pytest.fixture
def processes() -> Iterator[list[Any]]:
    """Three that wait for a line."""
    command = [sys.executable, "-I", "-S", "-c", "input()"]
    made = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(3)]
    yield made
    for each in made:
        each.kill()
        each.communicate()


def watching(processes: list[Any]) -> Any:
    """The program over ranks 4, 5 and 6 of 9, begun."""
    named = [f"{each.pid}:{rank}" for rank, each in enumerate(processes, 4)]
    watch = failures._WATCH.replace("else:\n", "else:\n    print('ready', flush=True)\n", 1)
    command = [sys.executable, "-I", "-S", "-c", watch, "9", "here", *named]
    made = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert made.stdout is not None
    made.stdout.readline()
    return made


def end(process: Any) -> None:
    """As what starts ranks does: others are ended when it knows of the first."""
    process.kill()
    process.wait()


def test_the_first_that_is_killed_is_named(processes: list[Any]):
    program = watching(processes)
    for place in (1, 0, 2):
        end(processes[place])
    message = program.communicate(timeout=20)[1]
    assert message.startswith(f"rank 5 of 9, process {processes[1].pid} on here, has ended without a word: it was kill")
    assert message.count("\n") == 1


def test_one_that_is_gone_before_it_is_watched_has_ended(processes: list[Any]):
    end(processes[2])
    assert "rank 6 of 9" in watching(processes).communicate(timeout=20)[1]


def test_nobody_is_blamed_behind_one_that_ended_by_itself(monkeypatch: pytest.MonkeyPatch):
    """Who ends by itself, or ends all by MPI, ends the program first; a process that it has forked does not."""
    watchdog = failures.Watchdog(SingleProcess())
    program = watchdog._program
    assert program is not None and program.poll() is None
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: 1)
        watchdog.end()
    assert program.poll() is None
    watchdog.end()
    watchdog.end()
    atexit.unregister(watchdog.end)
    assert program.returncode is not None


@pytest.mark.parametrize("missing", ["not there", "not allowed"])
def test_without_the_system_s_help_nobody_is_watched(missing: str, monkeypatch: pytest.MonkeyPatch):
    def refused(process: int) -> int:
        raise PermissionError("pidfd_open")

    if missing == "not there":
        monkeypatch.delattr(os, "pidfd_open")
    else:
        monkeypatch.setattr(os, "pidfd_open", refused)
    watchdog = failures.Watchdog(SingleProcess())
    assert watchdog._program is None
    watchdog.end()


def test_where_no_program_can_be_started_ranks_go_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert failures.Watchdog(SingleProcess())._program is None
    with failures.start_limit(1.0):
        pass
