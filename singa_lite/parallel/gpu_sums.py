"""Sums over the ranks on a GPU: NCCL's, on a stream of their own, beside the kernels of the walk back.

Nothing lands beside the values. Nobody polls: once asked for, a sum goes on by itself.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module

from singa_lite.common.errors import ParallelError
from singa_lite.kernels.cuda_kernels.loader import CudaLoader
from singa_lite.kernels.cuda_kernels.ranks import RankKernels, clear_idle, draw_key
from singa_lite.kernels.kernel_set import DeviceArray, Launch
from singa_lite.parallel.collective_kind import CollectiveKind
from singa_lite.parallel.communicator import Communicator
from singa_lite.parallel.nccl import Nccl, Numbers
from singa_lite.runtime.capture import Exchanged, Joint, Shared
from singa_lite.runtime.cuda import Cuda
from singa_lite.runtime.side_stream import SideStream


class GpuSums:
    """The sums of one net on one GPU. runtime: the GPU's; communicator: of the ranks."""

    def __init__(self, runtime: Cuda, communicator: Communicator) -> None:
        self._runtime = runtime
        self._ranks = communicator
        self._nccl: Nccl | None = None
        with runtime.here():
            self._beside = SideStream(runtime.cupy, runtime.stream)
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
        way: CollectiveKind,
        clears: bool,
        unit: int,
    ) -> Launch:
        """What begins a sum. share: of the samples, 0 for a rank that has none, whose values are cleared then.

        unit: of the parts, see `parts_of`.
        """
        clear = self._kernels.bind(clear_idle, values, share) if clears else None
        numbers = Numbers(values.data.ptr, values.size, values.dtype.name)
        begin, end = self._beside.pair(lambda stream: self._connected().ask(way, numbers, stream, unit))
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
        """See `keys.py`. by: between the counters of rank 0 and this one."""
        return self._kernels.bind(draw_key, state, key, by=by)

    def told(self, value: object) -> Exchanged:
        """See `capture.Agreement`."""
        return self._connected().told(value)

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
