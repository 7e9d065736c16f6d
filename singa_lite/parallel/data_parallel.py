"""DataParallel: how processes train one net together; what `net.compile(parallel=)` takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from weakref import ReferenceType, ref

from singa_lite.common.array_types import Array
from singa_lite.common.errors import GraphError
from singa_lite.device import Device, device_of
from singa_lite.kernels.collective import CollectiveKind
from singa_lite.parallel.calls import DRAW, KeyCall, SumCall, record_sum
from singa_lite.parallel.communicator import Communicator
from singa_lite.parallel.gpus import check_here, check_places, gpu_of
from singa_lite.parallel.sums import Channel
from singa_lite.runtime.cuda import Cuda
from singa_lite.tensor import Tensor


@dataclass(frozen=True, eq=False)
class DataParallel:
    """The part of one process in a job that trains one net together. Made by `parallel.mpi`, which says what each
    option is.

    communicator: the others. bucket_bytes: gradients of fewer bytes are summed together; in_flight_bytes: the most that
    is under way at a time. What waits for the others is called by all ranks, in the same order.

    >>> processes = parallel.mpi()
    >>> processes.rank, processes.size
    (0, 1)
    """

    communicator: Communicator = field(repr=False)
    bucket_bytes: int
    in_flight_bytes: int
    shard: str | None
    sync: bool
    check_every: int
    _nets: list[ReferenceType[object]] = field(default_factory=list, repr=False)
    _connected: list[Device] = field(default_factory=list, repr=False)

    def __deepcopy__(self, memo: dict[int, object]) -> DataParallel:
        return self  # the processes are the same ones

    def bind_net(self, net: object) -> None:
        """Be this net's from now on: messages of two nets would be taken for each other's.

        GraphError where another net that lives was compiled with it.
        """
        served = self._nets[0]() if self._nets else None
        if served is not None and served is not net:
            raise GraphError(
                "compile parallel: wanted one net for each parallel.mpi(), received one that another net was compiled "
                "with; call parallel.mpi() for each net, in the same order on all ranks"
            )
        self._nets[:] = [ref(net)]

    @cached_property
    def _channel(self) -> Channel:
        return Channel(self.communicator)

    def add_up(
        self,
        values: Tensor,
        turn: Tensor,
        is_urgent: bool = False,
        of_samples: bool = True,
        kind: CollectiveKind = CollectiveKind.SUM,
        unit: int = 1,
        in_line: bool = False,
    ) -> None:
        """Have a sum over the ranks done or recorded. values: without gaps; turn: float64 (), one for all of a step.

        is_urgent: whether what comes next waits for it; of_samples: whether a rank without any adds zeros; kind: SUM
        makes all values sums, OWN_PART those of this rank's part, ALL_PARTS gives all ranks each rank's part; unit,
        in_line: see `Collective`.
        """
        clears = of_samples and kind is not CollectiveKind.ALL_PARTS
        on_gpu = isinstance(device_of(values).runtime, Cuda)
        options = kind, clears, on_gpu, self.in_flight_bytes, is_urgent, in_line, unit
        record_sum(SumCall(self._channel, True, *options), values, turn)

    def draw_key(self, state: Tensor, key: Tensor) -> None:
        """Have a key of this rank drawn from random state that all ranks have; rank 0's are those of one process."""
        device_of(state).run(DRAW.name, state, key, call=KeyCall(self._channel))

    def check_device(self, where: str, device: Device) -> None:
        """ParallelError where this rank could not train on the device with the others."""
        check_here(where, device)

    def connect(self, device: Device) -> None:
        """All ranks say on which device they train, before their first step there. ParallelError where they may not."""
        if device not in self._connected:
            check_places(self.communicator, device)
            if isinstance(device.runtime, Cuda):
                self._channel.on_gpu(device.runtime).connect()
            self._connected.append(device)

    def cuda(self) -> Device:
        """This rank's GPU: `device.cuda(n)`, n being its number among the ranks of its machine, modulo the GPUs there.

        DeviceError where there is none.
        """
        return gpu_of(self.communicator)

    def set_idle(self, is_idle: bool) -> None:
        """Whether this rank has no samples in the step that begins, so that it adds zeros to all sums."""
        self._channel.check_settled()
        self._channel.is_idle = is_idle

    @property
    def rank(self) -> int:
        """This process's number, 0 first."""
        return self.communicator.rank

    @property
    def size(self) -> int:
        """How many processes there are; 1: this one is alone."""
        return self.communicator.size

    def gathered(self, value: object, doing: str = "gathered()") -> list[object]:
        """What every rank gave, by rank; all ranks call it. value: whatever can be pickled.

        doing: what for. ParallelError where other ranks are at something else.
        """
        return self.communicator.gathered(value, doing)

    def fail(self, error: BaseException) -> None:
        """Tell the other ranks that this one cannot go on: whoever waits for it, now or later, gets an error."""
        self.communicator.fail(f"{type(error).__name__}: {error}")

    def collect(self, given: Array, places: Sequence[Array]) -> None:
        """Rank 0 receives what each rank gives, into the places by rank; all ranks call it. See `Communicator`."""
        self.communicator.collect(given, places)

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self.communicator.barrier()
