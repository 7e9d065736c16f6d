"""GPUs of ranks: which rank has which, whether they may train together, and NCCL's sums on a stream of their own.

Nothing lands beside the values. Nobody polls: once asked for, a sum goes on by itself.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import NamedTuple

from singa_lite.common.errors import DeviceError, ParallelError
from singa_lite.device import Device, cuda
from singa_lite.kernels.collective import CollectiveKind
from singa_lite.kernels.kernel_set import DeviceArray, Launch
from singa_lite.parallel.communicator import Communicator
from singa_lite.parallel.nccl import Nccl, Numbers, missing, version
from singa_lite.runtime.capture import Exchanged, Joint, Shared
from singa_lite.runtime.cuda import Cuda
from singa_lite.runtime.side_stream import SideStream
from singa_lite.runtime.without_bytes import WithoutBytes


class GpuSums:
    """The sums of one net on one GPU. runtime: the GPU's; communicator: of the ranks."""

    def __init__(self, runtime: Cuda, communicator: Communicator) -> None:
        from singa_lite.kernels.cuda_kernels.loader import CudaLoader  # here, as these load all kernels of CUDA
        from singa_lite.kernels.cuda_kernels.ranks import RankKernels

        self._runtime = runtime
        self._ranks = communicator
        self._nccl: Nccl | None = None
        with runtime.here():
            self._side_stream = SideStream(runtime.cupy, runtime.stream)
            self._kernels = RankKernels(CudaLoader(runtime.cupy, runtime.stream.ptr))
        self._ends: dict[int, Launch] = {}
        self._under_way = 0

    def connect(self) -> None:
        """Once: all ranks call it together, before anything is summed."""
        if self._nccl is None:
            module = import_module(f"{self._runtime.cupy.__name__}.cuda.nccl")
            self._nccl = Nccl(module, self._ranks, self._runtime.here)
            self._runtime.guards.add(self._nccl)

    def begin(
        self,
        values: DeviceArray,
        share: DeviceArray,
        kind: CollectiveKind,
        clears: bool,
        unit: int,
    ) -> Launch:
        """What begins a sum. share: of the samples, 0 for a rank that has none, whose values are cleared then.

        unit: of the parts, see `parts_of`.
        """
        clear = self._kernels.clear_idle(values, share) if clears else None
        numbers = Numbers(values.data.ptr, values.size, values.dtype.name)
        begin, end = self._side_stream.pair(lambda stream: self._connected().ask(kind, numbers, stream, unit))
        self._ends[values.data.ptr] = Joint(partial(self._run_end, end))
        return Shared(partial(self._run_begin, clear, begin), self)

    def _run_begin(self, clear: Launch | None, begin: Launch) -> None:
        if clear is not None:
            clear()
        self._count(1)
        begin()

    def _run_end(self, end: Launch) -> None:
        end()
        self._count(-1)

    def _count(self, step: int) -> None:
        if not self._runtime.stream.is_capturing():  # what is noted is not under way
            self._under_way += step

    def wait(self, values: DeviceArray) -> Launch:
        """What has the main stream wait for the sum of these values, whose beginning was bound before."""
        return self._ends.pop(values.data.ptr)

    def draw_key(self, state: DeviceArray, key: DeviceArray, by: int) -> Launch:
        """Draw a key as `calls.KeyCall` does. by: between the counters of rank 0 and this one."""
        return self._kernels.draw_key(state, key, by)

    def agree(self, value: object) -> Exchanged:
        """See `capture.Agreement`."""
        return self._connected().agree(value)

    def check_settled(self) -> None:
        """ParallelError where the last step ended early, between the beginning and the end of a sum."""
        if self._under_way:
            raise ParallelError(
                f"rank {self._ranks.rank}: wanted whole steps, received one behind a step that ended early, whose sums "
                "are still under way: the job cannot go on; start it again from its last checkpoint"
            )

    def _connected(self) -> Nccl:
        if self._nccl is None:
            raise ParallelError("wanted ranks that have met before their first sum between GPUs, received a step alone")
        return self._nccl


class Place(NamedTuple):
    """Place where a rank trains. gpu: machine and address of its GPU, "" for a CPU; nccl: its version, 0 for a CPU."""

    device: str
    gpu: str = ""
    nccl: int = 0


def gpu_of(communicator: Communicator) -> Device:
    """This rank's GPU, by its number on its machine and how many GPUs are in sight. DeviceError where there is none."""
    try:
        import cupy
    except ImportError as error:
        raise DeviceError(f"cuda(): wanted CuPy, pip install 'singa-lite[cuda13,cudnn13]'; {error}") from error
    local = communicator.local_rank
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        count = 0  # `cuda` says why
    return cuda(local % count if count else 0)


def check_here(where: str, device: Device) -> None:
    """ParallelError where the device is a GPU and NCCL is missing."""
    runtime = device.runtime
    if isinstance(runtime, Cuda) and not isinstance(runtime, WithoutBytes):
        why = missing(runtime.cupy)
        if why:
            raise ParallelError(f"{where}: wanted, for ranks on GPUs, {why}; received device {device.name}")


def check_places(communicator: Communicator, device: Device) -> None:
    """All ranks say where they train. ParallelError, on all of them, where they may not train together there."""
    places = communicator.gathered(_place(device), "the first step on a device")
    _check([each for each in places if isinstance(each, Place)])


def _place(device: Device) -> Place:
    runtime = device.runtime
    if not isinstance(runtime, Cuda):
        return Place(device.name)
    address = runtime.cupy.cuda.runtime.deviceGetPCIBusId(runtime.index)
    return Place(device.name, f"{socket.gethostname()}, {address}", version(runtime.cupy))


def _check(places: Sequence[Place]) -> None:
    first, seen = places[0], dict[str, int]()
    for rank, place in enumerate(places):
        if bool(place.gpu) != bool(first.gpu):
            raise ParallelError(
                f"train_one_batch: wanted all ranks on GPUs, or all on CPUs, received rank 0 on {first.device} and "
                f"rank {rank} on {place.device}"
            )
        if place.gpu and place.gpu in seen:
            raise ParallelError(
                f"train_one_batch: wanted a GPU for each rank, received ranks {seen[place.gpu]} and {rank} on one "
                f"({place.gpu}); parallel.mpi().cuda() is another one on each rank of a machine that has as many"
            )
        if place.nccl != first.nccl:
            raise ParallelError(
                f"train_one_batch: wanted one version of NCCL on all ranks, received {first.nccl} on rank 0 and "
                f"{place.nccl} on rank {rank}"
            )
        seen[place.gpu] = rank
