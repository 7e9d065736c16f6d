"""As `rank_cases.py`, run as a script by each rank, on a GPU whose streams do their work late, and NCCL over MPI.

A collective begins, in each process, when its stream comes there: then this process's numbers go to the others, by MPI.
It is through when those of all have come; until then the stream stays there, and others may go on. Each is told from
others by its number, as NCCL has them: processes that ask for them in another order meet at other ones, and are told.
"""

from __future__ import annotations

import ctypes
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "cuda_host"))

import rank_cases
from late_cupy import LateCupy
from late_gpu import late_gpu
from singa_lite import device
from singa_lite.parallel.mpi_communicator import MpiCommunicator

DTYPES = {6: np.dtype(np.float16), 7: np.dtype(np.float32), 8: np.dtype(np.float64)}


class NcclError(RuntimeError):
    """`cupy.cuda.nccl.NcclError`."""


def nccl_of(machine: LateCupy, mpi: Any) -> SimpleNamespace:
    """The module. mpi: mpi4py.MPI. asked: names of the collectives of all its communicators."""
    asked = list[str]()
    return SimpleNamespace(
        asked=asked,
        available=True,
        NcclError=NcclError,
        NCCL_SUM=0,
        NCCL_FLOAT16=6,
        NCCL_FLOAT32=7,
        NCCL_FLOAT64=8,
        get_version=lambda: 22809,
        get_unique_id=lambda: b"id of rank 0".ljust(128, b"."),
        groupStart=lambda: None,
        groupEnd=lambda: None,
        NcclCommunicator=lambda count, unique, rank: LateNccl(machine, mpi, asked, (count, unique, rank)),
    )


class LateNccl:
    """`NcclCommunicator`. asked: where names of the collectives go; given: what that is given."""

    def __init__(self, machine: LateCupy, mpi: Any, asked: list[str], given: tuple[int, bytes, int]) -> None:
        count, unique, rank = given
        assert unique == b"id of rank 0".ljust(128, b".")
        self._machine, self._mpi = machine, mpi
        self._comm = mpi.COMM_WORLD.Dup()
        assert (count, rank) == (self._comm.Get_size(), self._comm.Get_rank())
        self._count, self._rank = count, rank
        self._number = 0
        self._asked = asked

    def allReduce(self, sent: int, received: int, count: int, kind: int, op: int, stream: int) -> None:
        """The sum of all, in the order of ranks."""
        self._ask("allReduce", (sent, count), (received, count), kind, _summed, stream)

    def reduceScatter(self, sent: int, received: int, count: int, kind: int, op: int, stream: int) -> None:
        part = slice(self._rank * count, (self._rank + 1) * count)
        self._ask("reduceScatter", (sent, count * self._count), (received, count), kind, _part(part), stream)

    def allGather(self, sent: int, received: int, count: int, kind: int, stream: int) -> None:
        self._ask("allGather", (sent, count), (received, count * self._count), kind, _joined, stream)

    def reduce(self, sent: int, received: int, count: int, kind: int, op: int, root: int, stream: int) -> None:
        self._ask("reduce", (sent, count), (received, count if self._rank == root else 0), kind, _summed, stream)

    def broadcast(self, sent: int, received: int, count: int, kind: int, root: int, stream: int) -> None:
        self._ask("broadcast", (sent, count), (received, count), kind, lambda given, kind: given[root], stream)

    def check_async_error(self) -> None:
        """None is met."""

    def abort(self) -> None:
        """Nothing is left of what was asked for."""

    def _ask(self, name: str, sent: Any, received: Any, kind: int, work: Callable[..., Any], stream: int) -> None:
        self._asked.append(name)
        on, under_way = self._machine.stream_of(stream), list[Any]()

        def begin() -> None:
            self._number += 1
            taken = np.frombuffer(_bytes(sent, kind), np.uint8)
            label = np.frombuffer(f"{name} {sent[1]} {kind}".ljust(32).encode(), np.uint8)
            message = np.concatenate([label, taken])
            others = [rank for rank in range(self._count) if rank != self._rank]
            places = {rank: np.empty_like(message) for rank in others}
            requests = [self._comm.Irecv(places[rank], rank, self._number % 30000) for rank in others]
            requests += [self._comm.Isend(message, rank, self._number % 30000) for rank in others]
            under_way[:] = [requests, {**places, self._rank: message}]

        def is_through() -> bool:
            return bool(under_way) and self._mpi.Request.Testall(under_way[0])

        def end() -> None:
            told = [under_way[1][rank] for rank in range(self._count)]
            assert len({each[:32].tobytes() for each in told}) == 1, "collectives in another order"
            dtype = DTYPES[kind]
            result = work([each[32:].view(dtype) for each in told], kind)
            ctypes.memmove(received[0], result.ctypes.data, received[1] * dtype.itemsize)
            under_way.clear()

        on.submit(begin)
        on.submit(end, is_through)


def _bytes(place: tuple[int, int], kind: int) -> bytes:
    return ctypes.string_at(place[0], place[1] * DTYPES[kind].itemsize)


def _summed(given: list[np.ndarray], kind: int) -> np.ndarray:
    """In the order of ranks, each sum rounded to the dtype."""
    total = given[0].copy()
    for each in given[1:]:
        total += each
    return total


def _joined(given: list[np.ndarray], kind: int) -> np.ndarray:
    return np.concatenate(given)


def _part(part: slice) -> Callable[..., np.ndarray]:
    return lambda given, kind: _summed([np.ascontiguousarray(each[part]) for each in given], kind)


def main(folder: str, *cases: str) -> None:
    """Write what the cases give."""
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    with late_gpu(seed=rank) as (machine, _, gpu):
        machine.__name__ = "cupy"
        machine.elsewhere = waits
        nccl = machine.cuda.nccl = nccl_of(machine, MPI)
        machine.runtime.deviceGetPCIBusId = lambda index: f"0000:{rank:02x}:00.0"
        modules = patch.dict(sys.modules, {"cupy.cuda": machine.cuda, "cupy.cuda.nccl": nccl})
        with modules, device.as_default(gpu), communicating(machine):
            rank_cases.main(folder, *cases)
    np.savez(Path(folder, f"asked{rank}.npz"), names=np.unique(nccl.asked))


def waits() -> bool:
    """What streams wait for comes from other processes."""
    time.sleep(20e-6)
    return True


def communicating(machine: LateCupy) -> patch:
    """Communicators of MPI that are made inside let the machine go on while they wait."""
    made = MpiCommunicator.__init__

    def make(self: MpiCommunicator, *arguments: object) -> None:
        made(self, *arguments)
        self.meanwhile = machine.some

    return patch.object(MpiCommunicator, "__init__", make)


if __name__ == "__main__":
    warnings.simplefilter("error", UserWarning)  # such as that a step cannot be captured
    main(*sys.argv[1:])
