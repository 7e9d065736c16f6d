"""Ends of a job: a rank that fails, dies, or does not begin ends all ranks, with one message that names it.

A rank that hangs is named by the time limit of whoever waits for it (`mpi_communicator.py`).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from singa_lite.common.errors import RankFailedError
from singa_lite.common.terminal import Unfailing
from singa_lite.parallel.communicator import Communicator

if TYPE_CHECKING:
    from subprocess import Popen

#: Seconds that a rank leaves to rank 0, which may have the same error, and to one that has failed, which knows more.
TO_FIRST, TO_FAILED = 0.5, 2.0
#: Seconds that mpiexec has to pass on what was printed: what it has not read when a job is aborted is lost.
TO_PASS_ON = 0.3
#: As in `subprocess`.
PIPE, NOTHING = -1, -3
#: Where those who start processes tell them their number.
_NUMBERS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")

#: Waits for the end of its input for so many seconds, and else says why and kills the process.
_LIMIT = """
import os, select, signal, sys
process, seconds, text = sys.argv[1:]
if not select.select([0], [], [], float(seconds))[0]:
    try:
        sys.stderr.write(text)
    finally:  # there may be no standard error
        os.kill(int(process), signal.SIGKILL)
"""
#: Says which of some processes ended first, as the kernel tells of ends in their order.
_WATCH = """
import os, select, sys
size, host, *ranks = sys.argv[1:]
ends, names = select.epoll(), {}
for process, rank in (each.split(":") for each in ranks):
    try:
        descriptor = os.pidfd_open(int(process))
    except ProcessLookupError:
        first = process, rank
        break
    names[descriptor] = process, rank
    ends.register(descriptor, select.EPOLLIN)
else:
    while not (found := ends.poll(maxevents=1)):
        pass
    first = names[found[0][0]]
sys.stderr.write(
    f"rank {first[1]} of {size}, process {first[0]} on {host}, has ended without a word: it was killed, as the system "
    "does where memory runs out, or has crashed\\n"
)
"""


def _start_program(text: str, *arguments: str, stdin: int, stdout: int | None = None, session: bool = False) -> Any:
    """Returns a Python program beside this one, None where no program can be started. session: in one of its own."""
    from subprocess import Popen  # here, as training in one process does not need it

    command = [sys.executable, "-I", "-S", "-c", text, *arguments]
    try:
        return Popen(command, stdin=stdin, stdout=stdout, start_new_session=session)
    except OSError:
        return None


@contextlib.contextmanager
def start_limit(seconds: float) -> Iterator[None]:
    """Kills this process where what is done inside takes longer: MPI's beginning waits for all ranks in C, for ever.

    Without that where no program can be started, and where MPI has begun already.
    """
    rank = next((os.environ[name] for name in _NUMBERS if name in os.environ), "?")
    message = (
        f"rank {rank}: wanted parallel.mpi() to be called by all ranks within {seconds:g} s, and MPI still waits for "
        "others: one has ended or hangs before its call; a longer limit is parallel.mpi(timeout=)\n"
    )
    program = None
    if sys.executable and os.name == "posix" and "mpi4py.MPI" not in sys.modules:
        program = _start_program(_LIMIT, str(os.getpid()), str(seconds), message, stdin=PIPE)
    try:
        yield
    finally:
        if program is not None and program.stdin is not None:
            program.stdin.close()
            program.wait()


class ProcessPlace(NamedTuple):
    """Place of a rank's process: its system and container, "" where no ends are told there, and its number."""

    machine: str
    process: int

    @classmethod
    def of_this_process(cls) -> ProcessPlace:
        """Returns this process's place."""
        try:
            os.close(os.pidfd_open(os.getpid()))
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            return cls(f"{boot} {os.stat('/proc/self/ns/pid').st_ino}" if sys.executable else "", os.getpid())
        except (AttributeError, OSError):  # not Linux 5.3 or later, or not allowed
            return cls("", os.getpid())


class Watchdog:
    """A program on each machine that names the first of its ranks to end without a word; all ranks make one together.

    Who starts the ranks ends all of them when one is killed, so that none of them can name it.
    """

    def __init__(self, communicator: Communicator) -> None:
        doing, own = "parallel.mpi()", ProcessPlace.of_this_process()
        places = [each for each in communicator.gathered(own, doing) if isinstance(each, ProcessPlace)]
        here = [rank for rank, each in enumerate(places) if own.machine and each.machine == own.machine]
        self._program: Popen[bytes] | None = None
        self._process, self._descriptor = os.getpid(), -1
        if here[:1] == [communicator.rank]:
            named = [f"{places[rank].process}:{rank}" for rank in here]
            size, host = str(communicator.size), platform.node()
            self._program = _start_program(_WATCH, size, host, *named, stdin=NOTHING, stdout=NOTHING, session=True)
        numbers = communicator.gathered(self._program and self._program.pid, doing)
        if here and isinstance(number := numbers[here[0]], int):
            self._descriptor = os.pidfd_open(number)
            atexit.register(self.end)

    def end(self) -> None:
        """End the program: this process ends by itself, and says why if there is something to say."""
        if os.getpid() != self._process or self._descriptor < 0:  # a process that this one has forked
            return
        with contextlib.suppress(OSError):  # it has ended, or the script has closed all files
            signal.pidfd_send_signal(self._descriptor, signal.SIGTERM)
        if self._program is not None:
            self._program.wait()


def abort_on_error(communicator: Communicator) -> None:
    """From now on an error that is not caught is printed with the rank that had it, and then ends all processes.

    Without it the others would wait for that rank, until their limit, unless they run by `python -m mpi4py`, which
    says nothing of ranks.
    """
    before = sys.excepthook

    def ended(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if communicator.rank:
            time.sleep(TO_FIRST)  # an error that all have is told by rank 0
        if isinstance(error, RankFailedError):
            time.sleep(TO_FAILED)
        errors = Unfailing(sys.stderr)  # all are ended, whatever becomes of the text
        head = f"rank {communicator.rank} of {communicator.size}:\n"
        if before is sys.__excepthook__:  # all at once, as another rank may end this one meanwhile
            errors.write(head + "".join(traceback.format_exception(kind, error, trace)))
        else:
            errors.write(head)
            before(kind, error, trace)
        errors.flush()
        time.sleep(TO_PASS_ON)
        communicator.abort("", 128 + signal.SIGINT if issubclass(kind, KeyboardInterrupt) else 1)

    sys.excepthook = ended
