"""The assignment of GPUs to ranks, and the check that the ranks may train together on them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import NamedTuple

from singa_lite.common.errors import DeviceError, ParallelError
from singa_lite.device import Device, cuda
from singa_lite.parallel.communicator import Communicator
from singa_lite.parallel.nccl import missing, version
from singa_lite.parallel.sums import Channel
from singa_lite.runtime.cuda import Cuda
from singa_lite.runtime.without_bytes import WithoutBytes


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


def connect_gpus(channel: Channel, device: Device) -> None:
    """All ranks say where they train, and GPUs are connected. ParallelError, on all of them, where that cannot be."""
    runtime, ranks = device.runtime, channel.communicator
    told = ranks.gathered(_place(device), "the first step on a device")
    places = [each for each in told if isinstance(each, Place)]
    _check(places)
    if isinstance(runtime, Cuda):
        channel.on_gpu(runtime).connect()


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
