"""Device: its kernels and its pool; every kernel call goes through `run` as an Operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from threading import Lock, get_ident
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from singa_lite import threads as _threads
from singa_lite.arena import Arena
from singa_lite.checks import whole
from singa_lite.errors import DeviceError, GraphError, ShapeError
from singa_lite.graph import Graph, Operation, Phase
from singa_lite.kernels.kernel_set import KernelSet, Launch
from singa_lite.runtime.host import Host
from singa_lite.runtime.runtime import MemoryPool, Replay, Runtime
from singa_lite.strides import laid_out
from singa_lite.tensor import Array, Block, Tensor, as_tensor

#: Called with each operation after it ran.
Watcher = Callable[[Operation], None]

_BYTE = np.dtype(np.uint8)


class Device:
    """Memory and kernels of one processor.

    phase, layer: where in the step the operations to come stand; set them with `scope`.
    A device records for one thread at a time, and refuses the others meanwhile. They may do operations on tensors of
    their own; scope, watchers and seeds are the device's, so which thread's an operation is counted as is left to
    chance. To train in several threads, give each a device of its own: `new_cpu`.
    """

    def __init__(self, name: str, kernels: KernelSet, pool: MemoryPool, runtime: Runtime | None = None) -> None:
        self.name = name
        self.kernels = kernels
        self.pool = pool
        self.runtime = runtime if runtime is not None else Host()
        self.phase = Phase.FORWARD
        self.layer = ""
        self.graph: Graph | None = None
        self._one_recording = Lock()
        self._recorder = 0  # the thread that records
        self._watchers: list[Watcher] = []
        self.set_random_seed(0)

    def empty(self, shape: Sequence[int], dtype: DTypeLike = np.float32, layout: str | Sequence[int] = "") -> Tensor:
        """A tensor of this shape and dtype, its values whatever the memory held.

        layout: the kind of tensor ("image", "filters"), which the kernels may like in another order than C's, or its
        axes from the outermost to the innermost. ShapeError for a negative extent; OutOfMemoryError where the pool's
        limit does not allow it.
        """
        if any(extent < 0 for extent in shape):
            raise ShapeError(f"wanted extents of at least 0, received shape {tuple(shape)}")
        dtype = np.dtype(dtype)
        block = self._block(prod(shape) * dtype.itemsize)
        axes = self.kernels.layouts.get(layout, ()) if isinstance(layout, str) else layout
        made = Tensor(block, shape, dtype, laid_out(shape, axes, dtype.itemsize) if axes else None)
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
        region = self.pool.take(block.nbytes)
        block.memory = region.memory
        block.set_give(partial(self.pool.give, region))

    @contextmanager
    def recording(self, arena: Arena | None = None, fuse: bool = True) -> Iterator[Graph]:
        """Operations inside are noted, not done: nothing runs, no tensor has bytes. Then `graph.run()` does them.

        Tensors made inside have values only after a run, and only those that are still held then. arena: whose
        bytes the graph shares; default one of its own. fuse: see `Graph`. GraphError inside another recording.
        """
        graph = Graph(self, arena, fuse)
        if not self._one_recording.acquire(blocking=False):
            self._own_graph("recording")
            raise GraphError("recording: wanted no other recording on this device, received one within another")
        self._recorder = get_ident()
        self.graph = graph
        failed = True
        try:
            yield graph
            failed = False
        finally:
            self.graph = None
            self._one_recording.release()
            graph.close(failed)

    def _own_graph(self, doing: str) -> Graph | None:
        """What the calling thread records into, if it does. GraphError if another one records."""
        graph = self.graph
        if graph is not None and self._recorder != get_ident():
            raise GraphError(
                f"{doing} on {self.name}: wanted no recording by another thread meanwhile, which a net's first batch "
                "is; give each thread a device of its own: device.new_cpu()"
            )
        return graph

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
        scratch_bytes = self.kernels.scratch_bytes(kernel, tensors, settings)
        operation = Operation(kernel, tensors, settings, self.phase, self.layer, scratch_bytes)
        if graph is None:
            self._execute(operation)
        else:
            graph.append(operation)
        for watcher in self._watchers:
            watcher(operation)

    def _execute(self, operation: Operation) -> None:
        region = self.pool.take(operation.scratch_bytes) if operation.scratch_bytes else None
        arrays = tuple(None if t is None else self.array(t) for t in operation.tensors)
        scratch = None
        if region is not None:
            scratch = self.runtime.view(region.memory, (operation.scratch_bytes,), _BYTE, (1,), 0)
        try:
            with self.runtime.here():
                self.kernels.prepare(operation.kernel, arrays, scratch, operation.settings)()
        finally:
            if region is not None:
                self.pool.give(region)

    @contextmanager
    def scope(self, phase: Phase | None = None, layer: str | None = None) -> Iterator[None]:
        """Operations inside stand in this phase and this layer."""
        before = self.phase, self.layer
        self.phase = self.phase if phase is None else phase
        self.layer = self.layer if layer is None else layer
        try:
            yield
        finally:
            self.phase, self.layer = before

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
        block = Block(self, array.nbytes, memory, partial(self.runtime.let_go, array))
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
        if not 0 <= seed < 2**64:
            raise ValueError(f"random seed: wanted an integer from 0 to 2**64 - 1, received {seed}")
        self._seed = seed
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

    def __repr__(self) -> str:
        return f"<Device {self.name}, {self.kernels.name} kernels, {self.pool!r}>"
