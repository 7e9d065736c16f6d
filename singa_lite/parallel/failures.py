"""Failures: an error that nobody catches on one rank ends all of them, and is told once."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from types import TracebackType

from singa_lite.common.errors import RankFailedError
from singa_lite.common.terminal import Unfailing
from singa_lite.parallel.communicator import Communicator

#: Seconds that a rank leaves to rank 0, which may have the same error, and to one that has failed, which knows more.
TO_FIRST, TO_FAILED = 0.5, 2.0
#: Seconds that mpiexec has to pass on what was printed: what it has not read when a job is aborted is lost.
TO_PASS_ON = 0.3


def end_together(communicator: Communicator) -> None:
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
