"""Device: its kernels and its pool; every kernel call goes through `run` as an Operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from threading import Thread, current_thread
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from singa_lite import threads as _threads
from singa_lite.arena import Arena
from singa_lite.checks import whole
from singa_lite.errors import DeviceError, GraphError, OverrunError
from singa_lite.graph import Graph, Operation, Phase
from singa_lite.kernels.kernel_set import KernelSet, Launch
from singa_lite.runtime.host import Host
from singa_lite.runtime.runtime import MemoryPool, Replay, Runtime
from singa_lite.sizes import tensor_bytes
from singa_lite.strides import laid_out, span
from singa_lite.tensor import LAYOUTS, Array, Block, Tensor, as_tensor, checked_dtype, checked_shape
from singa_lite.unique import Unique

#: Called with each operation after it ran.
Watcher = Callable[[Operation], None]

_BYTE = np.dtype(np.uint8)


class _Here(NamedTuple):
    """Where in the step the operations of a context stand, and what they are recorded in."""

    phase: Phase = Phase.FORWARD
    layer: str = ""
    graph: Graph | None = None


class _Recorder(NamedTuple):
    graph: Graph
    thread: Thread


_START = _Here()
#: By device. A context variable, so that a step which an interrupt ends leaves nothing behind, see `contexts`.
_here: ContextVar[Mapping[Device, _Here]] = ContextVar("here", default=MappingProxyType({}))


class Device(Unique):
    """Memory and kernels of one processor.

    phase, layer: where in the step the operations to come stand, in this thread; set them with `scope`. graph: what
    is being recorded, None: nothing.
    A device records for one thread at a time, and refuses the others meanwhile. They may do operations on tensors of
    their own; watchers and seeds are the device's, so which thread's an operation is counted as is left to chance.
    To train in several threads, give each a device of its own: `new_cpu`.
    """

    instead = "a process makes its devices by device.cpu() and device.cuda()"

    def __init__(self, name: str, kernels: KernelSet, pool: MemoryPool, runtime: Runtime | None = None) -> None:
        self.name = name
        self.kernels = kernels
        self.pool = pool
        self.runtime = runtime if runtime is not None else Host()
        self._recorders: dict[str, _Recorder] = {}  # one at most: setdefault() and pop() are each done at once
        self._watchers: list[Watcher] = []
        self.set_random_seed(0)

    def empty(self, shape: Sequence[int], dtype: DTypeLike = np.float32, layout: str | Sequence[int] = "") -> Tensor:
        """A tensor of this shape and dtype, its values whatever the memory held.

        layout: the kind of tensor ("image", "filters"), which the kernels may like in another order than C's, or its
        axes from the outermost to the innermost. ShapeError for a negative extent; OutOfMemoryError where the pool's
        limit does not allow it.
        """
        return self._over(self._block, shape, dtype, layout)

    def unbound(self, shape: Sequence[int], dtype: DTypeLike = np.float32, layout: str | Sequence[int] = "") -> Tensor:
        """As `empty`, over a block that has no bytes yet: who asks for it gives it some."""
        return self._over(partial(Block, self), shape, dtype, layout)

    def _over(
        self, block_of: Callable[[int], Block], shape: Sequence[int], dtype: DTypeLike, layout: str | Sequence[int]
    ) -> Tensor:
        shape, dtype = checked_shape("empty", shape), checked_dtype("empty", dtype)
        if isinstance(layout, str) and layout not in LAYOUTS:
            raise ValueError(f"empty: wanted a layout of {LAYOUTS}, received {layout!r}")
        if not dtype.isnative:  # kernels know no other
            dtype = dtype.newbyteorder("=")
        block = block_of(tensor_bytes(shape, dtype))
        axes = self.kernels.layouts.get(layout, ()) if isinstance(layout, str) else layout
        made = Tensor.trusted(block, shape, dtype, laid_out(shape, axes, dtype.itemsize) if axes else None)
        if isinstance(layout, str):
            made.layout = layout
        return made

    def _block(self, nbytes: int) -> Block:
        graph = self._own_graph("making a tensor")
        if graph is None:
            return self.new_block(nbytes)
        block = Block(self, nbytes)
        graph.enter(block)
        return block

    def new_block(self, nbytes: int) -> Block:
        """A block with bytes from the pool."""
        block = Block(self, nbytes)
        self.bind(block)
        return block

    def bind(self, block: Block) -> None:
        """Give a block that has no bytes some from the pool; they go back when it dies."""
        region = self.pool.take(block.nbytes, block)
        block.set_give(partial(self.pool.give, region))
        block.memory = region.memory

    @contextmanager
    def recording(self, arena: Arena | None = None, fuse: bool = True) -> Iterator[Graph]:
        """Operations inside are noted, not done: nothing runs, no tensor has bytes. Then `graph.run()` does them.

        Tensors made inside have values only after a run, and only those that are still held then. arena: whose
        bytes the graph shares; default one of its own. fuse: see `Graph`. GraphError inside another recording.
        """
        graph = Graph(self, arena, fuse)
        recorder = _Recorder(graph, current_thread())
        if self._own_graph("recording") is not None or self._recorders.setdefault("", recorder) is not recorder:
            raise GraphError("recording: wanted no other recording on this device, received one within another")
        failed = True
        try:
            self._move(_Here(*self._here[:2], graph))
            yield graph
            failed = False
        finally:
            graph.close(failed)
            self._end_recording(graph)

    def _end_recording(self, graph: Graph) -> None:
        """Nothing is recorded in the graph from now on. It may be late, after an interrupt, and another one be open."""
        if self._here.graph is graph:
            self._move(_Here(*self._here[:2]))
        recorder = self._recorders.get("")
        if recorder is not None and recorder.graph is graph:
            self._recorders.pop("", None)

    @property
    def _here(self) -> _Here:
        return _here.get().get(self, _START)

    def _move(self, here: _Here) -> None:
        others = {device: there for device, there in _here.get().items() if device is not self}
        _here.set(others if here == _START else {**others, self: here})  # a context need not keep devices alive

    @property
    def phase(self) -> Phase:
        """The phase of the step in which operations stand that are asked for now."""
        return self._here.phase

    @property
    def layer(self) -> str:
        """The layer in which they stand, "" for none."""
        return self._here.layer

    @property
    def graph(self) -> Graph | None:
        """What some thread is recording on this device."""
        own = self._here.graph
        if own is not None or not self._recorders:
            return own
        other = self._other_recorder()
        return None if other is None else other.graph

    def _other_recorder(self) -> _Recorder | None:
        """Another thread that records. What an interrupt has left of a recording of this one is cleared away."""
        recorder = self._recorders.get("")
        if recorder is None or (recorder.thread is not current_thread() and recorder.thread.is_alive()):
            return recorder
        self._recorders.pop("", None)
        return None

    def _own_graph(self, doing: str) -> Graph | None:
        """What the calling thread records into, if it does. GraphError if another one records."""
        own = self._here.graph
        if own is None and self._recorders and self._other_recorder() is not None:
            raise GraphError(
                f"{doing} on {self.name}: wanted no recording by another thread meanwhile, which a net's first batch "
                "is; give each thread a device of its own: device.new_cpu()"
            )
        return own

    def run(self, kernel: str, /, *tensors: Tensor | None, **settings: Any) -> None:
        """Do one kernel call. kernel: a name of the interface; tensors, settings: as written there."""
        for tensor in tensors:
            if tensor is not None and tensor.device is not self:
                raise DeviceError(
                    f"kernel {kernel!r} on {self.name}: wanted all tensors there, received one on "
                    f"{tensor.device.name}; move it with to_device()"
                )
        _threads.settle()
        graph = self._own_graph(f"kernel {kernel!r}")
        scratch_bytes, here = self.kernels.scratch_bytes(kernel, tensors, settings), self._here
        operation = Operation(kernel, tensors, settings, here.phase, here.layer, scratch_bytes)
        if graph is None:
            self._execute(operation)
        else:
            graph.append(operation)
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

    def check_guards(self, doing: str) -> None:
        """OverrunError if something wrote beyond memory of a checked pool. doing: what was done last."""
        try:
            self.pool.check()
        except OverrunError as error:
            raise OverrunError(f"{doing} on {self.name}: {error}") from error

    @contextmanager
    def scope(self, phase: Phase | None = None, layer: str | None = None) -> Iterator[None]:
        """Operations inside stand in this phase and this layer."""
        before = self._here
        inside = before.phase if phase is None else phase, before.layer if layer is None else layer
        try:
            self._move(_Here(*inside, before.graph))
            yield
        finally:
            now = self._here
            if now[:2] == inside:  # else it ends late, after an interrupt
                self._move(_Here(*before[:2], now.graph))

    @contextmanager
    def watch(self, watcher: Watcher) -> Iterator[None]:
        """Call `watcher` with every operation inside, after it ran or was recorded; replays are not reported.

        An operation that is kept keeps its tensors' memory, but for gradients, whose tensors are given back after
        their turn.
        """
        self._watchers.append(watcher)
        try:
            yield
        finally:
            self._watchers.remove(watcher)

    def array(self, tensor: Tensor) -> Any:
        """The array over the tensor's bytes (NumPy's, on a GPU CuPy's), no copy, valid while the block lives."""
        return self.view(tensor.block, tensor.shape, tensor.dtype, tensor.strides, tensor.offset)

    def view(self, block: Block, shape: Sequence[int], dtype: DTypeLike, strides: Sequence[int], offset: int) -> Any:
        """The array over a block's bytes, no copy. GraphError for a recorded block without bytes."""
        if block.memory is None:
            raise GraphError(
                f"reading a tensor of shape {tuple(shape)}: it was recorded and has no value; run the graph first, "
                "and hold the tensor when it first runs"
            )
        return self.runtime.view(block.memory, shape, np.dtype(dtype), strides, offset)

    def export(self, tensor: Tensor) -> Any:
        """The array over the tensor's bytes, no copy, which keeps the block alive. GraphError while recording."""
        self._check_readable(tensor)
        return self.runtime.export(tensor.detach(), self.array(tensor))

    def copy_in(self, tensor: Tensor, array: Array) -> None:
        """Overwrite the tensor's values with a host array of its shape.

        GraphError for a tensor that an operation of the present recording uses: this would be done now, and not
        again, in its turn, at each replay.
        """
        self.runtime.write(self._overwritten(tensor), array)

    def feed(self, tensor: Tensor, given: Any) -> None:
        """Overwrite the tensor with a batch: a host array, on its way while the step before still runs, or any array.

        given: NumPy, CuPy, DLPack or a Tensor, of the tensor's shape. GraphError as for `copy_in`.
        """
        if not isinstance(given, np.ndarray):
            here = self.adopt(given)
            self.run("copy", as_tensor(given, self) if here is None else here, tensor)
            return
        array = self._overwritten(tensor)
        staged = self.runtime.staged(tensor.block, given)
        if staged is None:
            self.runtime.write(array, given)
            return
        with staged as memory:
            self.run("copy", Tensor(Block(self, given.nbytes, memory), given.shape, given.dtype), tensor)

    def adopt(self, given: Any) -> Tensor | None:
        """A tensor over a foreign array (CuPy, DLPack) in this GPU's memory, no copy; None for any other.

        Its bytes are the array's own, for kernels to read. The array is held until they have, as the last use of the
        tensor ends; its owner may overwrite it then, on the stream that is current in CuPy.
        """
        if isinstance(given, Tensor):
            return None
        found = self.runtime.adopt(given)
        if found is None:
            return None
        memory, array = found
        reach = span(array.shape, array.strides, array.dtype.itemsize)
        if reach.start < 0:  # a view that runs backwards begins behind its pointer
            return None
        block = Block(self, reach.stop, memory, partial(self.runtime.let_go, array))
        return Tensor(block, array.shape, array.dtype, array.strides)

    def _overwritten(self, tensor: Tensor) -> Any:
        """The array of a tensor whose values the host overwrites now."""
        graph = self._own_graph("overwriting a tensor")
        if graph is not None and graph.knows(tensor.block):
            raise GraphError(
                f"overwriting a tensor of shape {tensor.shape} with host values: wanted one that no operation "
                "recorded so far uses; do it before or after the recording, or with an operation"
            )
        if tensor.block.memory is None and graph is not None:
            # Host values that a recorded step reads: they are there before it, so they have bytes of their own.
            graph.forget(tensor.block)
            self.bind(tensor.block)
        return self.array(tensor)

    def copy_out(self, tensor: Tensor) -> Array:
        """A host array with a copy of the tensor's values, which waits for them. GraphError while recording."""
        self._check_readable(tensor)
        return self.runtime.read(self.array(tensor))

    def replay(self, launches: Sequence[Launch], names: Sequence[str]) -> Replay:
        """What runs the launches of a step, again and again. names: of what each launch does, for messages."""
        return self.runtime.replay(launches, names)

    def synchronize(self) -> None:
        """Wait until all that was asked of the device is done."""
        self.runtime.synchronize()

    def _check_readable(self, tensor: Tensor) -> None:
        """Host code that reads while recording runs once; what it makes of the value would be frozen in the record."""
        if self._own_graph("reading a tensor") is not None:
            raise GraphError(
                f"reading a tensor of shape {tensor.shape}: wanted no recording on {self.name} meanwhile, as nothing "
                "runs until the graph does; read before or after it"
            )

    def set_random_seed(self, seed: int) -> None:
        """Start the sequence of seeds anew: what is built from now on gets the same random numbers each time."""
        self._seed = whole("random seed", seed, 0, 2**64 - 1)
        self._seeds_given = 0

    def next_seed(self) -> int:
        """The next of this device's seeds, for one net or one expression."""
        sequence = np.random.SeedSequence(self._seed, spawn_key=(self._seeds_given,))
        self._seeds_given += 1
        return int(sequence.generate_state(1, np.uint64)[0])

    @property
    def seeds_given(self) -> tuple[int, int]:
        """(the random seed, how many of its sequence were given)."""
        return self._seed, self._seeds_given

    def restore_seeds(self, seed: int, given: int) -> None:
        """Go on in the sequence of `seed` after so many of its seeds."""
        self.set_random_seed(seed)
        self._seeds_given = whole("restore_seeds", given, 0)

    def __deepcopy__(self, memo: Any) -> Device:
        return self  # a copy of what lies on a device lies there too

    def __repr__(self) -> str:
        return f"<Device {self.name}, {self.kernels.name} kernels, {self.pool!r}>"
