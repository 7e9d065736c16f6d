"""Arena: one span of bytes that several planned programs share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

from numpy.typing import DTypeLike

from singa_lite.common.array_types import DeviceArray
from singa_lite.common.contexts import StepLock
from singa_lite.common.errors import GraphError
from singa_lite.common.unique import Unique
from singa_lite.kernels.kernel_set import KernelSet, Launch
from singa_lite.runtime.cuda_pool import MemoryPool
from singa_lite.runtime.pinned import PinnedMemory
from singa_lite.runtime.runtime import Replay, Runtime
from singa_lite.tensor import Block


class StepDevice(Protocol):
    """The device of a recorded step: memory, kernels and a runtime. `device.Device`, which lies above, is one."""

    kernels: KernelSet
    pool: MemoryPool
    runtime: Runtime

    @property
    def graph(self) -> object | None: ...

    def new_block(self, nbytes: int) -> Block: ...

    def bind(self, block: Block) -> None: ...

    def view(
        self, block: Block, shape: Sequence[int], dtype: DTypeLike, strides: Sequence[int], offset: int
    ) -> DeviceArray: ...

    def replay(self, launches: Sequence[Launch], names: Sequence[str]) -> Replay: ...

    def synchronize(self) -> None: ...

    def check_bytes(self, doing: str) -> None: ...

    def check_guards(self, doing: str) -> None: ...


#: {device: the arena that nets there share}.
_shared: WeakKeyDictionary[StepDevice, ReferenceType[Arena]] = WeakKeyDictionary()

_TAKEN = (
    "running a recorded step: wanted its memory for this thread alone, received a step of the same net or graph that "
    "another thread is running; give each thread a net and a device of its own: device.new_cpu()"
)


def arena_busy_error() -> GraphError:
    """The error for a thread that comes while another one runs a step."""
    return GraphError(_TAKEN)


class Resident(Protocol):
    """A program that runs here: an `Executable`. arena_bytes, host_bytes: of the arena and of host memory."""

    arena_bytes: int
    host_bytes: int

    def release(self) -> None:
        """Forget where its bytes are."""


class Arena(Unique):
    """Bytes from a device's pool. Programs never run at the same time, so the largest one's need is enough.

    offloads: whether values may go to memory of the host. host: that memory.
    shared: nets that know nothing of each other run here, so a thread waits while another one runs a step.
    """

    def __init__(self, device: StepDevice, offloads: bool = False, shared: bool = False) -> None:
        self.device = device
        self.offloads = offloads
        self.block: Block | None = None
        self.host: PinnedMemory | None = None
        self._may_be_copying = False
        self._turns = device.kernels.turns()
        self._executables: WeakSet[Resident] = WeakSet()
        self._left = False
        #: `arena.turn.run(work)`: no other thread may use the bytes meanwhile. GraphError if one does, or it waits.
        self.turn = StepLock(None if shared else arena_busy_error)

    @classmethod
    def of_device(cls, device: StepDevice) -> Arena:
        """The arena that nets on a device share, as long as one of them lives."""
        found = _shared.get(device)
        arena = None if found is None else found()
        if arena is None:
            arena = cls(device, shared=True)
            _shared[device] = ref(arena)
        return arena

    def leave(self) -> None:
        """One of those that share it is gone; the next step gives back what no other needs."""
        self._left = True

    def trim(self) -> None:
        """Give back what no program needs any more, where one of those that share it has gone."""
        if self._left:
            self.turn.run(self._trim)

    def _trim(self) -> None:
        self._left = False
        if all(executable.arena_bytes < self.nbytes for executable in self._executables):
            self._give_back()

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.block.nbytes if self.block is not None else 0

    @property
    def span(self) -> Block:
        """The bytes of an arena that has any. GraphError for one that has none."""
        if self.block is None:
            raise GraphError("binding a step: wanted an arena with bytes, received one that has none")
        return self.block

    def reserve(self, needs: Resident) -> None:
        """Make room for a program. If the span or the host memory must grow, all programs are bound anew."""
        if needs.host_bytes > (0 if self.host is None else self.host.nbytes):
            self.turn.run(self._grow_host, needs.host_bytes)
        if needs.arena_bytes > self.nbytes:
            self.turn.run(self._grow, needs.arena_bytes)

    def between_runs(self, nbytes: int) -> Block:
        """Bytes for who has the turn and runs no program: the span, or others where it is too small.

        It is given back for these, so that both are never there at a time; programs make room again when they next run.
        """
        self.settle()
        if self.block is not None and self.nbytes >= nbytes:
            return self.block
        self._give_back()
        return self.device.new_block(nbytes)

    def drop_pages(self) -> None:
        """Let the system have the bytes until a program next runs: none keeps values there from run to run."""
        if self.block is not None:
            self.turn.run(self.device.runtime.drop, self.block.memory)

    def shrink(self) -> None:
        """Give the span back; programs make room again when they next run."""
        self.turn.run(self._give_back)

    def _give_back(self) -> None:
        self.release()
        self.block = None
        self.device.pool.release_free()

    def copying(self, run: Callable[[], object]) -> None:
        """Run a program. Where that ends early, its copies to host memory and back end before anything else runs."""
        if self.host is None:
            run()
            return
        self.settle()
        self._may_be_copying = True
        try:
            run()
        except BaseException:
            self.settle()
            raise
        self._may_be_copying = False

    def settle(self) -> None:
        """Wait for the copies of a run that ended early."""
        if self._may_be_copying and self.host is not None:
            self.host.settle()
        self._may_be_copying = False

    def _grow_host(self, nbytes: int) -> None:
        self.release()
        self.host = None  # give the old bytes back before taking more
        self.host = self.device.runtime.host_memory(nbytes)

    def _grow(self, nbytes: int) -> None:
        self._give_back()  # the old span before taking the larger one, or the system would count both
        self.block = self.device.new_block(nbytes)

    def release(self) -> None:
        """Forget the launches of all programs, which are bound anew when they next run."""
        self.settle()
        for executable in self._executables:
            executable.release()
        self._turns = self.device.kernels.turns()

    def binding(self) -> AbstractContextManager[object]:
        """Launches that are bound inside may share what they need beside their arrays with all others of the arena."""
        return self._turns()

    def add(self, executable: Resident) -> None:
        """Make room for a program, which binds its launches here when it next runs."""
        self.turn.run(self._add, executable)

    def _add(self, executable: Resident) -> None:
        self.reserve(executable)
        self._executables.add(executable)
