"""NCCL: sums between GPUs by cupy.cuda.nccl, whose communicator is made by way of MPI, and whose failures end a wait.

What it does with numbers: an element is added up in one place, and the sum goes to all ranks from there, so that all
have the same bits. In which order the ranks' terms are added NCCL chooses by the machines' links and the array's size.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from threading import Thread
from typing import Any, NamedTuple

from singa_lite.common.errors import ParallelError
from singa_lite.kernels.collective import CollectiveKind, parts_of
from singa_lite.parallel.communicator import Communicator, Polled
from singa_lite.runtime.capture import Exchanged
from singa_lite.runtime.cupy_types import Cupy, Stream

#: NCCL's names of dtypes.
TYPES = {
    "float16": "NCCL_FLOAT16",
    "float32": "NCCL_FLOAT32",
    "float64": "NCCL_FLOAT64",
}
ITEMSIZE = {"float16": 2, "float32": 4, "float64": 8}
#: Seconds that NCCL has to end what is under way.
TO_END = 5.0
INSTALL = "pip install 'singa-lite[nccl13]'"


def missing(cupy: Cupy) -> str:
    """What is wanted for sums between GPUs and not found; "" if all is there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns where the library is not found; here it is an error
        found = import_module(f"{cupy.__name__}.cuda.nccl")
    return "" if getattr(found, "available", False) else f"NCCL, which CuPy does not find; {INSTALL} brings it"


class Numbers(NamedTuple):
    """Numbers of a GPU without gaps: an address, how many, and the name of their dtype."""

    at: int
    size: int
    dtype: str

    def part(self, part: slice) -> Numbers:
        """Some of them."""
        return Numbers(self.at + part.start * ITEMSIZE[self.dtype], part.stop - part.start, self.dtype)


class Nccl:
    """The ranks' GPUs. nccl: the module cupy.cuda.nccl; communicator: of the same ranks, over MPI; here: makes the
    GPU of this rank the current one.

    Made on all ranks at the same place. ParallelError where they do not find each other within the time limit.
    """

    def __init__(
        self, nccl: Cupy, communicator: Communicator, here: Callable[[], AbstractContextManager[object]]
    ) -> None:
        self._nccl = nccl
        self._ranks = communicator
        with here():
            own = nccl.get_unique_id() if communicator.rank == 0 else b""
        first = communicator.gathered(own, "making NCCL's ring")[0]
        making = _start_in_thread(partial(nccl.NcclCommunicator, communicator.size, first, communicator.rank), here)
        communicator.wait(Polled(making.done, self._other_ranks), "NCCL's ring, of which NCCL_DEBUG=INFO says more,")
        self._comm: Any = making.result()
        self._number = 0
        self._is_over = False

    def agree(self, value: object) -> Exchanged:
        """What all ranks say, over MPI, and how often they have."""
        self._number += 1
        return Exchanged(self._number, self._ranks.gathered(value, "agreeing how a step on GPUs is done"))

    def ask(self, collective: CollectiveKind, place: Numbers, stream: int, unit: int = 1) -> None:
        """Ask for a sum of these numbers, in place, or for a part of one, on a stream. unit: see `parts_of`.

        ParallelError for dtypes that NCCL has no sums of.
        """
        kind = self._kind(place.dtype)
        if place.size == 0:
            return
        if collective is CollectiveKind.SUM:
            self._comm.allReduce(place.at, place.at, place.size, kind, self._nccl.NCCL_SUM, stream)
        elif place.size % (self._ranks.size * unit):
            self._by_parts(collective, place, kind, stream, unit)
        else:
            own = place.part(parts_of(place.size, self._ranks.size)[self._ranks.rank])
            if collective is CollectiveKind.OWN_PART:
                self._comm.reduceScatter(place.at, own.at, own.size, kind, self._nccl.NCCL_SUM, stream)
            else:
                self._comm.allGather(own.at, place.at, own.size, kind, stream)

    def _by_parts(self, collective: CollectiveKind, place: Numbers, kind: int, stream: int, unit: int) -> None:
        """Parts that are not equally long, each by itself, in one group."""
        self._nccl.groupStart()
        for rank, part in enumerate(map(place.part, parts_of(place.size, self._ranks.size, unit))):
            if part.size and collective is CollectiveKind.OWN_PART:
                self._comm.reduce(part.at, part.at, part.size, kind, self._nccl.NCCL_SUM, rank, stream)
            elif part.size:
                self._comm.broadcast(part.at, part.at, part.size, kind, rank, stream)
        self._nccl.groupEnd()

    def _kind(self, dtype: str) -> int:
        if dtype not in TYPES:
            raise ParallelError(f"sums between GPUs: wanted one of {', '.join(TYPES)}, received {dtype}")
        kind: int = getattr(self._nccl, TYPES[dtype])
        return kind

    def wait(self, stream: Stream) -> None:
        """Until a stream is done. ParallelError where a rank has failed, or does not come within the time limit."""
        if self._is_over or stream.done:
            return
        try:
            self._ranks.wait(
                Polled(partial(self._is_done, stream), self._other_ranks),
                "the sums between GPUs, NCCL does not say of which rank,",
            )
        except ParallelError:
            self.abort()
            raise

    def _is_done(self, stream: Stream) -> bool:
        """ParallelError where NCCL has met an error meanwhile: a GPU, a link or another process is gone."""
        try:
            self._comm.check_async_error()
        except self._nccl.NcclError as error:
            raise ParallelError(f"rank {self._ranks.rank}: wanted sums between GPUs, NCCL says {error}") from error
        return stream.done

    def abort(self) -> None:
        """End what is under way: else this process would wait for it when it ends.

        NCCL waits there for all CUDA graphs with sums in them to be gone, which may be never, so this waits for it no
        longer than TO_END seconds.
        """
        if not self._is_over:
            self._is_over = True
            ending = Thread(target=self._comm.abort, name="singa_lite NCCL's end", daemon=True)
            ending.start()
            ending.join(TO_END)

    def _other_ranks(self) -> list[int]:
        """All ranks but this one, as NCCL does not say who is late."""
        return [rank for rank in range(self._ranks.size) if rank != self._ranks.rank]


def _start_in_thread(make: Callable[[], object], here: Callable[[], AbstractContextManager[object]]) -> Future[object]:
    """NCCL's own object, made in a thread: it waits for all ranks to find each other, for ever where they do not."""
    made: Future[object] = Future()

    def run() -> None:
        try:
            with here():
                made.set_result(make())
        except BaseException as error:  # who waits for it raises it
            made.set_exception(error)

    Thread(target=run, name="singa_lite NCCL", daemon=True).start()  # which the end of the program does not wait for
    return made


def version(cupy: Cupy) -> int:
    """Of the library, as NCCL counts: 22809 is 2.28.9."""
    return int(import_module(f"{cupy.__name__}.cuda.nccl").get_version())
