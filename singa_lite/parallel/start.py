"""`parallel.mpi()`: who is in this job, how they train together, and how an error on one rank ends all of them.

A rank that hangs is named by the time limit of whoever waits for it (`mpi_communicator.py`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from types import TracebackType

from singa_lite.common.checks import check_choice, finite_above_zero, flag, integer
from singa_lite.common.errors import ParallelError, RankFailedError
from singa_lite.common.keywords import explains_keywords
from singa_lite.common.sizes import budget_size
from singa_lite.common.terminal import Unfailing
from singa_lite.parallel.communicator import Communicator, SingleProcess
from singa_lite.parallel.data_parallel import DataParallel

#: Set in each process by MPICH's and Open MPI's mpiexec, by PMIx, and by Slurm's srun with --mpi.
_STARTERS = ("PMI_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK")
#: Those of them, and others, that are the process's number.
_NUMBERS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")

#: Seconds that a rank leaves to rank 0, which may have the same error, and to one that has failed, which knows more.
TO_FIRST, TO_FAILED = 0.5, 2.0
#: Seconds that mpiexec has to pass on what was printed: what it has not read when a job is aborted is lost.
TO_PASS_ON = 0.3

#: The communicator that ends this process's job at an error, once there is one.
_ending: list[Communicator] = []

#: A program that waits for the end of its input for so many seconds, and else says why and kills the process.
_LIMIT = """
import os, select, signal, sys
process, seconds, text = sys.argv[1:]
if not select.select([0], [], [], float(seconds))[0]:
    try:
        sys.stderr.write(text)
    finally:  # there may be no standard error
        os.kill(int(process), signal.SIGKILL)
"""


@explains_keywords()
def mpi(
    *,
    bucket_bytes: int | str = "4 MB",
    in_flight_bytes: int | str = "32 MB",
    shard: str | None = None,
    sync: bool = False,
    check_every: int = 100,
    timeout: float = 300.0,
) -> DataParallel:
    """Returns the processes that mpiexec has started together, or this one alone where none has.

    bucket_bytes: gradients that are smaller are sent together, as many as are that large, and as half of
    in_flight_bytes is: the most bytes, of gradients and of what comes from the others, that sums have under way at a
    time, but for a larger gradient that is not made by tiles; a plan takes so many more. sync: whether batch
    normalisation goes by the samples of all ranks; else by each rank's own, and running statistics are the mean of all
    ranks'. shard: "state": each rank has its part of the optimizer's state alone, updates its part of each parameter
    and sends it to all; to equal bits; all ranks call `net.save` then. check_every: parameters are compared across
    ranks at the start and behind each so many steps. timeout: seconds that a rank waits for the others.

    ParallelError under mpiexec where mpi4py is missing; TypeError or ValueError for options that are none.

    >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
    >>> net.compile("adam", "mse", parallel=parallel.mpi())  # mpiexec -n 4 python script.py
    >>> net.parallel.size
    1
    """
    where = "parallel.mpi"
    seconds = finite_above_zero(f"{where} timeout", timeout)
    bucket = budget_size(f"{where} bucket_bytes", bucket_bytes)
    in_flight = budget_size(f"{where} in_flight_bytes", in_flight_bytes)
    options = (
        min(bucket, max(1, in_flight // 2)),  # what comes from the others lies beside it
        in_flight,
        None if shard is None else check_choice(f"{where} shard", shard, ("state",)),
        flag(f"{where} sync", sync),
        integer(f"{where} check_every", check_every, 1),
    )
    return DataParallel(_communicator(seconds), *options)


def _communicator(timeout: float) -> Communicator:
    if not any(name in os.environ for name in _STARTERS):
        return SingleProcess()
    try:
        with start_limit(timeout):
            from mpi4py import MPI
    except ImportError as error:
        raise ParallelError(
            f"parallel.mpi: wanted mpi4py, as this process was started by mpiexec, received {error}; pip install "
            '".[mpi]" brings it and MPICH'
        ) from error
    from singa_lite.parallel.mpi_communicator import MpiCommunicator

    if MPI.COMM_WORLD.Get_size() == 1:
        return SingleProcess()
    made = MpiCommunicator(MPI, timeout)
    if not _ending:
        _ending.append(made)
        abort_on_error(made)
    made.connect()
    return made


@contextlib.contextmanager
def start_limit(seconds: float) -> Iterator[None]:
    """Kills this process where what is done inside takes longer: MPI's beginning waits for all ranks in C, for ever.

    Without that where no program can be started, and where MPI has begun already.
    """
    from subprocess import PIPE, Popen  # here, as training in one process does not need it

    rank = next((os.environ[name] for name in _NUMBERS if name in os.environ), "?")
    message = (
        f"rank {rank}: wanted parallel.mpi() to be called by all ranks within {seconds:g} s, and MPI still waits for "
        "others: one has ended or hangs before its call; a longer limit is parallel.mpi(timeout=)\n"
    )
    program = None
    if sys.executable and os.name == "posix" and "mpi4py.MPI" not in sys.modules:
        command = [sys.executable, "-I", "-S", "-c", _LIMIT, str(os.getpid()), str(seconds), message]
        with contextlib.suppress(OSError):
            program = Popen(command, stdin=PIPE)
    try:
        yield
    finally:
        if program is not None:
            program.communicate()


def abort_on_error(communicator: Communicator) -> None:
    """From now on an error that is not caught is printed with the rank that had it, and then ends all processes.

    Without it the others would wait for that rank, until their limit, unless they run by `python -m mpi4py`, which
    says nothing of ranks.
    """
    before = sys.excepthook

    def print_and_abort(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
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

    sys.excepthook = print_and_abort
