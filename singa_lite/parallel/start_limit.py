"""A limit for MPI's own beginning: it waits for all ranks, where no line of Python runs and nobody says for whom.

A rank that fails or hangs before it comes to `parallel.mpi()` would hold up the others for ever. A small program beside
each of them ends it, and so the job, at the time limit.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

#: Waits for the end of its input for so many seconds, and else says why and ends the process.
_PROGRAM = """
import os, select, signal, sys
process, seconds, text = sys.argv[1:]
if not select.select([0], [], [], float(seconds))[0]:
    try:
        sys.stderr.write(text)
    finally:  # there may be no standard error
        os.kill(int(process), signal.SIGKILL)
"""
#: Where those who start processes tell them their number.
_NUMBERS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """What is done inside ends this process where it takes longer; without that where no program can be started, and
    where MPI has begun already.
    """
    has_begun = "mpi4py.MPI" in sys.modules
    program = _started(seconds) if sys.executable and os.name == "posix" and not has_begun else None
    try:
        yield
    finally:
        if program is not None and program.stdin is not None:
            program.stdin.close()
            program.wait()


def _started(seconds: float) -> subprocess.Popen[bytes] | None:
    rank = next((os.environ[name] for name in _NUMBERS if name in os.environ), "?")
    text = (
        f"rank {rank}: wanted parallel.mpi() to be called by all ranks within {seconds:g} s, and MPI still waits for "
        "others: one has ended or hangs before its call; a longer limit is parallel.mpi(timeout=)\n"
    )
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(os.getpid()), str(seconds), text]
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE)
    except OSError:
        return None
