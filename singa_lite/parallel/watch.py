"""Watch: which ranks of this machine have ended, whether they could say so or not.

A file that all of them have open holds a byte for each. A rank that ends by itself marks it; where one is gone without
a mark, a program beside them (`watcher.py`) tells of it, and marks it. Who waits for others reads the marks. The file
has no name any more when training begins, and is gone with the processes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from singa_lite.parallel import watcher
from singa_lite.parallel.communicator import Communicator


class Watch:
    """The marks of the ranks on this machine. file: a descriptor; ranks: of each byte; own: which byte is this one's;
    program: what watches them, where this process has started it.
    """

    def __init__(self, file: int, ranks: Sequence[int], own: int, program: subprocess.Popen[bytes] | None) -> None:
        self._file, self._ranks, self._own, self._program = file, ranks, own, program
        self._process = os.getpid()
        atexit.register(self.end)

    def end(self) -> None:
        """This process ends by itself, and says why if there is something to say."""
        if os.getpid() != self._process:  # one that it has forked
            return
        with contextlib.suppress(OSError):  # where the script has closed all files
            os.pwrite(self._file, watcher.ENDS, self._own)
        if self._program is not None:
            self._program.returncode = 0  # it waits for this end, so that nobody waits for its own

    def lost(self) -> list[int]:
        """Ranks that have ended without a word."""
        return list(self._marked(watcher.LOST))

    def ended(self) -> list[int]:
        """Ranks that have ended by themselves."""
        return list(self._marked(watcher.ENDS))

    def _marked(self, mark: bytes) -> Iterator[int]:
        marks = os.pread(self._file, len(self._ranks), 0)
        return (rank for rank, byte in zip(self._ranks, marks, strict=True) if byte == mark[0])


def watched(communicator: Communicator) -> Watch | None:
    """Have the ranks of this machine watched from now on; all ranks call it. None where they cannot be."""
    doing = "parallel.mpi()"
    can = bool(sys.executable) and _can_be_told_of_ends()
    told = communicator.gathered((_machine(), os.getpid()) if can else (None, 0), doing)
    machines, numbers = zip(*told, strict=True)
    here = [rank for rank, machine in enumerate(machines) if can and machine == machines[communicator.rank]]
    is_first = here[:1] == [communicator.rank]
    path = _create_marks(len(here)) if is_first else ""
    paths = communicator.gathered(path, doing)
    file = _opened(str(paths[here[0]])) if here else -1
    found = communicator.gathered(file >= 0, doing)
    if path:
        os.unlink(path)
    if not here or not all(found[rank] for rank in here):
        return None
    named = [f"{numbers[rank]}:{rank}" for rank in here]
    program = _started(file, communicator.size, named) if is_first else None
    return Watch(file, here, here.index(communicator.rank), program)


def _can_be_told_of_ends() -> bool:
    """Whether the system has, and allows, what the program waits by."""
    if not hasattr(os, "pidfd_open"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def _machine() -> tuple[str, int]:
    """Equal where processes' numbers are of the same processes: of one system, and in one container."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return platform.node(), 0


def _create_marks(count: int) -> str:
    """A file of so many processes' marks; "" where there can be none."""
    try:
        file, path = tempfile.mkstemp(prefix="singa_lite-ranks-")
    except OSError:
        return ""
    with open(file, "wb") as marks:
        marks.write(watcher.LIVES * count)
    return path


def _opened(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR)
    except OSError:
        return -1


def _started(file: int, size: int, named: Sequence[str]) -> subprocess.Popen[bytes] | None:
    """The program lives in a session of its own, so that what ends the ranks does not end it before it can tell."""
    command = [sys.executable, "-I", "-S", watcher.__file__, str(file), str(size), platform.node(), *named]
    nothing = subprocess.DEVNULL
    try:
        return subprocess.Popen(command, stdin=nothing, stdout=nothing, pass_fds=[file], start_new_session=True)
    except OSError:
        return None  # then nobody is told of those who are lost
