"""`parallel.mpi()`: who is in this job, and how they train together."""

from __future__ import annotations

import os

from singa_lite.common.checks import check_choice, finite_above_zero, flag, integer
from singa_lite.common.errors import ParallelError
from singa_lite.common.keywords import explains_keywords
from singa_lite.common.sizes import budget_size
from singa_lite.parallel.communicator import Communicator, SingleProcess
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.parallel.failures import Watchdog, abort_on_error, start_limit

#: Set in each process by MPICH's and Open MPI's mpiexec, by PMIx, and by Slurm's srun with --mpi.
_STARTERS = ("PMI_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK")

#: The watchdog of this process's job, once there is one.
_watchdogs: list[Watchdog] = []


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
    if not _watchdogs:
        abort_on_error(made)
    made.connect()
    if not _watchdogs:
        _watchdogs.append(Watchdog(made))
    made.before_abort = _watchdogs[0].end
    return made
