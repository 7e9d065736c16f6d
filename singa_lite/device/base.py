"""Device: its kernels and its pool; every kernel call goes through `run` as an Operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import numpy as np

from singa_lite.common import threads as _threads
from singa_lite.common.array_types import Array
from singa_lite.common.checks import integer
from singa_lite.common.contexts import raise_ignored
from singa_lite.common.errors import DeviceError, OverrunError
from singa_lite.device.bound_copies import BoundCopies, BoundFeeds, BoundResults, bound_feeds, bound_results
from singa_lite.device.tensor_memory import TensorMemory
from singa_lite.graph.arena import Arena
from singa_lite.graph.graph import Graph, Operation, Phase
from singa_lite.kernels.kernel_set import KernelSet, Launch
from singa_lite.runtime.cuda_pool import MemoryPool
from singa_lite.runtime.host import Host
from singa_lite.runtime.runtime import Replay, Runtime
from singa_lite.tensor import Block, Tensor, as_tensor

#: Called with each operation after it ran.
Watcher = Callable[[Operation], None]

_BYTE = np.dtype(np.uint8)


class Device(TensorMemory):
    """The memory and kernels of one processor.

    phase, layer: where in the step the next operations of this thread stand; `scope` sets them. graph: the one that is
    being recorded, None for none.
    A device records for one thread at a time, and refuses the others meanwhile. They may do operations on tensors of
    their own; watchers and seeds are the device's, so which thread's an operation is counted as is left to chance.
    To train in several threads, give each a device of its own: `new_cpu`.

    >>> cpu = device.new_cpu(limit=1_000_000)
    >>> x = tensor.zeros((100, 50), device=cpu)
    >>> cpu.pool.used, cpu.pool.limit
    (20032, 1000000)
    """

    instead = "a process makes its devices by device.cpu() and device.cuda()"

    def __init__(self, name: str, kernels: KernelSet, pool: MemoryPool, runtime: Runtime | None = None) -> None:
        super().__init__(name, kernels, pool, runtime if runtime is not None else Host())
        self._watchers: list[Watcher] = []
        self._seed = self._seeds = 0
        self._copies = BoundCopies()

    def run(self, kernel: str, /, *tensors: Tensor | None, **settings: object) -> None:
        """Do one kernel call. kernel: a name of the interface; tensors, settings: as written there."""
        raise_ignored()
        for tensor in tensors:
            if tensor is not None and tensor.block.device is not self:
                raise DeviceError(
                    f"kernel {kernel!r} on {self.name}: wanted all tensors there, received one on "
                    f"{tensor.device.name}; move it with to_device()"
                )
        _threads.settle()
        here = self._steps.here_alone("kernel", kernel)
        scratch_bytes = self.kernels.scratch_bytes(kernel, tensors, settings)
        operation = Operation(kernel, tensors, settings, here.phase, here.layer, scratch_bytes)
        if here.graph is None:
            self._execute(operation)
        else:
            here.graph.append(operation)
        for watcher in self._watchers:
            watcher(operation)

    def _execute(self, operation: Operation) -> None:
        arrays = tuple(None if t is None else self.array(t) for t in operation.tensors)
        scratch = None
        if operation.scratch_bytes:
            block = self.new_block(operation.scratch_bytes)
            scratch = self.view(block, (operation.scratch_bytes,), _BYTE, (1,), 0)
        with self.runtime.here():
            self.kernels.prepare(operation.kernel, arrays, scratch, operation.settings)()
        if self.pool.checked:
            self.check_guards(f"kernel {operation.kernel!r} of layer {operation.layer!r}")

    def copy(self, source: Tensor, target: Tensor) -> None:
        """`run("copy", source, target)`; what is copied between the same two places again is not bound again."""
        with self.runtime.here():
            self._copy_here(source, target)

    def _copy_here(self, source: Tensor, target: Tensor) -> None:
        """Where the processor and its stream are the current ones."""
        if source.device is self is target.device and self.is_unwatched("kernel", "copy"):
            launch = self._copies.launch(self, source, target)
            if launch is not None:
                launch()
                return
            if self.runtime.copies(self.array(source), self.array(target)):
                return
        self.run("copy", source, target)

    def is_unwatched(self, doing: str, what: str = "") -> bool:
        """Whether what is asked for is done at once, and nobody looks at it. doing, what: its name.

        GraphError while another thread records.
        """
        here = self._steps.here_alone(doing, what)
        return here.graph is None and not self._watchers and not self.pool.checked

    def check_guards(self, doing: str) -> None:
        """OverrunError if something wrote beyond memory of a checked pool. doing: what was done last."""
        try:
            self.pool.check()
        except OverrunError as error:
            raise OverrunError(f"{doing} on {self.name}: {error}") from error

    @contextmanager
    def watch(self, watcher: Watcher) -> Iterator[None]:
        """Call `watcher` with every operation inside, after it ran or was recorded; replays are not reported.

        An operation that the watcher keeps holds its tensors' memory, except for gradients, whose tensors are given
        back after their turn.
        """
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    def feed(self, tensor: Tensor, given: object) -> None:
        """Overwrite the tensor with a batch. A host array may be copied while the step before still runs.

        given: NumPy, CuPy, DLPack or a Tensor, of the tensor's shape. GraphError as for `copy_in`.
        """
        if not isinstance(given, np.ndarray):
            here = self.adopt(given)
            self.run("copy", as_tensor(given, self) if here is None else here, tensor)
            return
        self._bind_for_host(tensor)
        with self.runtime.here():
            stage = self.runtime.stage([tensor.block], [given])
            if stage is not None:
                stage.begin([given])
                try:
                    block = Block(self, given.nbytes, stage.memories[0])
                    self._copy_here(Tensor(block, given.shape, given.dtype), tensor)
                finally:
                    stage.end()
                return
        self.runtime.write(self.array(tensor), given)

    def bound_feeds(self, tensors: Sequence[Tensor], like: Sequence[Array]) -> BoundFeeds | None:
        """What does `feed` for tensors that keep their bytes, given host arrays of these forms; None where nothing can
        be bound for that.
        """
        return bound_feeds(self, self._copies, tensors, like)

    def bound_results(self, sources: Sequence[Tensor]) -> BoundResults | None:
        """What copies tensors that keep their bytes; None where nothing can be bound for that."""
        return bound_results(self, self._copies, sources)

    def recording(
        self, arena: Arena | None = None, fuse: bool = True, budget: int | None = None
    ) -> AbstractContextManager[Graph]:
        """Operations inside are recorded: nothing runs, no tensor has bytes. Later `graph.run()` does them.

        Tensors made inside have values only after a run, and only those that are still held then. arena: whose
        bytes the graph shares; default one of its own. fuse, budget: see `Graph`. GraphError inside another recording.
        """
        return self._steps.recording(Graph(self, arena, fuse, budget))

    def scope(self, phase: Phase | None = None, layer: str | None = None) -> AbstractContextManager[None]:
        """Operations inside stand in this phase and this layer."""
        return self._steps.scope(phase, layer)

    @property
    def phase(self) -> Phase:
        """The phase of the step that the next operation of this thread is in."""
        return self._steps.here.phase

    @property
    def layer(self) -> str:
        """The layer that the next operation of this thread is in, "" for none."""
        return self._steps.here.layer

    def replay(self, launches: Sequence[Launch], names: Sequence[str]) -> Replay:
        """What runs the launches of a step, again and again. names: of what each launch does, for messages."""
        return self.runtime.replay(launches, names)

    def synchronize(self) -> None:
        """Wait until all that was asked of the device is done."""
        self.runtime.synchronize()

    def set_random_seed(self, seed: int) -> None:
        """Start the sequence of seeds anew: what is built from now on gets the same random numbers each time."""
        self.restore_seeds(seed, 0)

    def next_seed(self) -> int:
        """The next of this device's seeds, for one net or one expression."""
        sequence = np.random.SeedSequence(self._seed, spawn_key=(self._seeds,))
        self._seeds += 1
        return int(sequence.generate_state(1, np.uint64)[0])

    @property
    def seeds_given(self) -> tuple[int, int]:
        """(the random seed, how many seeds of its sequence were given)."""
        return self._seed, self._seeds

    def restore_seeds(self, seed: int, given: int) -> None:
        """Go on in the sequence of `seed` after so many of its seeds. ValueError for a seed beyond 64 bits."""
        seed, given = integer("random seed", seed, 0, 2**64 - 1), integer("restore_seeds", given, 0)
        self._seed, self._seeds = seed, given

    def __deepcopy__(self, memo: dict[int, object]) -> Device:
        return self  # a copy of a tensor lies on the same device

    def __repr__(self) -> str:
        return f"<Device {self.name}, {self.kernels.name} kernels, {self.pool!r}>"
