"""Who of some processes ended first, and whether it could say so: told by a program beside them, without any MPI."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from singa_lite.parallel import watcher
from singa_lite.parallel.communicator import SingleProcess
from singa_lite.parallel.watch import Watch, watched

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


@pytest.fixture
def marks(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "marks"
    path.write_bytes(watcher.LIVES * 3)
    file = os.open(path, os.O_RDWR)
    yield file
    os.close(file)


def watching(marks: int, processes: list[Any]) -> threading.Thread:
    """The program, begun; ranks 4, 5 and 6 of 9."""
    named = [f"{each.pid}:{rank}" for rank, each in enumerate(processes, 4)]
    made = threading.Thread(target=watcher.main, args=(str(marks), "9", "here", *named))
    made.start()
    time.sleep(0.2)
    return made


def end(process: Any) -> None:
    """As what starts ranks does: others are ended when it knows of the first."""
    process.kill()
    process.wait()


def test_the_first_that_is_killed_is_named_and_marked(processes: list[Any], marks: int, capsys: Any):
    thread = watching(marks, processes)
    for place in (1, 0, 2):
        end(processes[place])
    thread.join(20)
    assert os.pread(marks, 3, 0) == b".x."
    told = capsys.readouterr().err
    assert told.startswith(f"rank 5 of 9, process {processes[1].pid} on here, has ended without a word: it was killed")
    assert told.count("\n") == 1


def test_nobody_is_blamed_behind_one_that_ended_by_itself(processes: list[Any], marks: int, capsys: Any):
    thread = watching(marks, processes)
    os.pwrite(marks, watcher.ENDS, 2)
    end(processes[2])
    end(processes[0])
    thread.join(20)
    assert os.pread(marks, 3, 0) == b"..e" and not capsys.readouterr().err


def test_nobody_is_blamed_whom_another_s_end_has_ended(processes: list[Any], marks: int, capsys: Any):
    """Who ends all by MPI is the last to be gone."""
    thread = watching(marks, processes)
    os.pwrite(marks, watcher.ENDS, 2)
    end(processes[0])
    thread.join(20)
    assert os.pread(marks, 3, 0) == b"..e" and not capsys.readouterr().err


def test_one_that_is_gone_before_it_is_watched_has_ended(processes: list[Any], marks: int, capsys: Any):
    end(processes[2])
    watching(marks, processes).join(20)
    assert os.pread(marks, 3, 0) == b"..x" and "rank 6 of 9" in capsys.readouterr().err


def test_a_rank_reads_who_has_ended(marks: int):
    watch = Watch(marks, [4, 5, 6], 1, None)
    atexit.unregister(watch.end)
    assert (watch.lost(), watch.ended()) == ([], [])
    os.pwrite(marks, watcher.LOST, 2)
    watch.end()
    assert (watch.lost(), watch.ended()) == ([6], [5])


def test_it_is_set_up_by_a_process_alone_too():
    watch = watched(SingleProcess())
    assert watch is not None and watch.lost() == [] and watch.ended() == []
