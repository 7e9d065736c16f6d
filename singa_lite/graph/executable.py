"""Executable: a planned program with every launch bound to its bytes. Pause: where a run of it waits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from singa_lite.common import threads
from singa_lite.common.array_types import Array, DeviceArray
from singa_lite.common.errors import GraphError
from singa_lite.common.machine import clear_free_lists
from singa_lite.common.packed import Packed
from singa_lite.common.unique import Unique
from singa_lite.compiler.ir.operation import Instruction, Operand, Transfer
from singa_lite.compiler.ir.remembered import forget_planning
from singa_lite.compiler.ir.uses import Uses, first_addition
from singa_lite.compiler.placed import Placed
from singa_lite.graph.arena import Arena
from singa_lite.graph.checked_launches import CheckedLaunches
from singa_lite.graph.lanes import Lanes
from singa_lite.kernels.kernel_set import KernelSet, Launch
from singa_lite.runtime.pinned import Copying, PinnedMemory
from singa_lite.runtime.runtime import Replay
from singa_lite.tensor import Block

#: Launches that are bound before what they were built from is let go of.
MOST_BUILT = 128


class Pause(NamedTuple):
    """Where a run waits: before its first launch that writes one of these blocks, `wait` is called, once.

    give_up: called instead of `wait` where an interrupt has ended the run, perhaps before the reader began: it need not
    begin any more, and is not reading when this returns. None: `wait` does that too.
    made: what `wait` reads; it is not called where this is not whole by then. None: it reads nothing of the run's.
    sums: further blocks, of which a launch that makes one ready for sums is not waited for, see `first_addition`.
    """

    blocks: Collection[Block]
    wait: Callable[[], object]
    give_up: Callable[[], object] | None = None
    made: Block | None = None
    sums: frozenset[Block] = frozenset()

    def end(self) -> None:
        """Give up what reads the blocks, or wait for it."""
        (self.give_up or self.wait)()

    @classmethod
    def of_all(cls, several: Sequence[Pause]) -> Pause:
        """One for all of them."""

        def wait() -> None:
            for pause in several:
                pause.wait()

        return cls(frozenset[Block]().union(*(pause.blocks for pause in several)), wait)


class Executable(Unique):
    """A planned program with every launch bound to its bytes.

    blocks: {held block: Block}; kernels: what does its calls, None: the device's. The plan may be packed from here on:
    it is wanted when launches are bound, and by those who ask for it.
    """

    def __init__(
        self,
        packed: Packed[Placed],
        arena: Arena,
        blocks: Mapping[int, Block],
        checked: bool = False,
        kernels: KernelSet | None = None,
    ) -> None:
        self._packed = packed
        self.arena = arena
        self._kernels = kernels or arena.device.kernels
        self.blocks = dict(blocks)
        self.checked = checked
        placed = self.placed
        self.arena_bytes, self.host_bytes = placed.arena_bytes, placed.host_bytes
        self._count = len(placed.planned.instructions)
        self._lanes = Lanes(placed.planned, together=not checked)
        writers = Uses(placed.planned.instructions).writers
        #: {block outside the arena: the instructions that write it, by index}
        self._writers = {number: writers[number] for number in self.blocks if number in writers}
        #: {sums of a pause: the first step that adds to one}, of those that were asked for.
        self._additions: dict[frozenset[Block], int] = {}
        self._replay: Replay | None = None
        arena.add(self)

    @property
    def placed(self) -> Placed:
        """The plan."""
        return self._packed.value

    def run(self, pause: Pause | None = None) -> None:
        """Replay: nothing is allocated or looked up, the launches run one after the other."""
        threads.settle()
        self.arena.turn.run(self._run, pause)

    def run_here(self) -> None:
        """As `run`, where its processor and stream are the current ones."""
        threads.settle()
        self.arena.turn.run(self._run_here)

    def _run_here(self) -> None:
        self.arena.copying(self._replay or self.prepare())

    def _run(self, pause: Pause | None) -> None:
        with self.arena.device.runtime.here():
            replay = self._replay or self.prepare()
            if pause is None or not self._is_complete(pause):
                self.arena.copying(replay)
            else:
                self.arena.copying(partial(replay.pausing, self._first_write(pause), pause.wait))

    def prepare(self) -> Replay:
        """Bind the launches, if they are not: all that a run needs beside the kernels. Returns what runs them."""
        if self._replay is not None:
            return self._replay
        threads.settle()
        return self.arena.turn.run(self._bind)

    def launches(self) -> list[Launch]:
        """The launches in order, one an instruction, each to run by itself."""
        return self._lanes.by_themselves(self._bound_launches())

    def _bound_launches(self) -> list[Launch]:
        """The launches in order, one an instruction.

        Where they are many, what they are built from is let go of on the way, so that they lie close together.
        """
        placed, launches = self.placed, list[Launch]()
        transfers = BoundTransfers(placed.host_offsets, self.arena.host, partial(self._array, placed))
        for step, instruction in enumerate(placed.planned.instructions):
            if len(launches) % MOST_BUILT == 0 and self._count > MOST_BUILT:
                self._kernels.forget()
            if instruction.transfer is not None:
                launches.append(transfers.launch(instruction))
                continue
            with self._lanes.bound_in_lane(step, self._kernels.turns):
                launches.append(self._launch(placed, instruction))
        return launches

    def release(self) -> None:
        """Forget the launches, and with them the bytes; the next run binds anew."""
        self._replay = None

    def written(self) -> dict[int, Array]:
        """Host copies of the bytes of each block outside the arena that the program writes."""
        read = self.arena.device.runtime.read
        return {number: read(self._block_array(number)) for number in self._writers}

    def write_back(self, values: Mapping[int, Array]) -> None:
        """Give these blocks the bytes that `written` copied."""
        for number, bytes_before in values.items():
            self.arena.device.runtime.write(self._block_array(number), bytes_before)

    def _block_array(self, number: int) -> DeviceArray:
        block = self.blocks[number]
        return self.arena.device.view(block, (block.nbytes,), "uint8", (1,), 0)

    def _bind(self) -> Replay:
        placed, device = self.placed, self.arena.device
        with device.runtime.here():
            if self._replay is None:
                clear_free_lists()  # of what planning dropped, so that the launches lie close together
                self.arena.reserve(self)
                with self.arena.binding():
                    launches = self._bound_launches()
                names = [f"{i.kernel!r} of layer {i.layer!r}" for i in placed.planned.instructions]
                launches, names = self._lanes.merged(launches, names)
                if self.checked:
                    launches, names = CheckedLaunches(placed, device, self._bytes).with_checks(launches, names)
                self._replay = device.replay(launches, names)
                forget_planning(self._kernels)  # the launches have what they need
            return self._replay

    def _first_write(self, pause: Pause) -> int:
        """The index of the first launch, or wave of launches, that the pause lies before."""
        if self.checked:  # launches lie between those of the instructions
            return 0
        written = (steps[0] for number, steps in self._writers.items() if self.blocks[number] in pause.blocks)
        first = min(written, default=self._count)
        return self._lanes.place(min(first, self._first_addition(pause)) if pause.sums else first)

    def _first_addition(self, pause: Pause) -> int:
        """The first step that adds to one of the pause's sums."""
        if pause.sums not in self._additions:
            sums = {number for number, block in self.blocks.items() if block in pause.sums}
            values = {number for number, block in self.blocks.items() if block in pause.blocks}
            self._additions[pause.sums] = first_addition(self.placed.planned.instructions, sums, values)
        return self._additions[pause.sums]

    def _is_complete(self, pause: Pause) -> bool:
        """Whether what the pause reads is whole when it comes."""
        if pause.made is None:
            return True
        written = (steps[-1] for number, steps in self._writers.items() if self.blocks[number] is pause.made)
        return self._lanes.place(max(written, default=self._count)) < self._first_write(pause)

    def _launch(self, placed: Placed, instruction: Instruction) -> Launch:
        arrays = tuple(None if operand is None else self._array(placed, operand) for operand in instruction.operands)
        scratch = None
        if instruction.scratch_bytes:
            scratch = self._bytes(placed.scratch[instruction.number], instruction.scratch_bytes)
        return self._kernels.prepare(instruction.kernel, arrays, scratch, instruction.settings)

    def _array(self, placed: Placed, operand: Operand) -> object:
        offset = operand.offset
        if operand.block in placed.offsets:
            block = self.arena.span if placed.arena_bytes else self.arena.device.new_block(0)  # of nothing at all
            offset += placed.offsets[operand.block]
        else:
            block = self.blocks[operand.block]
        return self.arena.device.view(block, operand.shape, operand.dtype, operand.strides, offset)

    def _bytes(self, offset: int, nbytes: int) -> object:
        return self.arena.device.view(self.arena.span, (nbytes,), "uint8", (1,), offset)


class BoundTransfers:
    """Launches of copies between the arena and host memory, of one program.

    offsets: {block: offset in host memory}; array: makes that of an operand in the arena.
    """

    def __init__(
        self, offsets: Mapping[int, int], memory: PinnedMemory | None, array: Callable[[Operand], DeviceArray]
    ) -> None:
        self._offsets = offsets
        self._memory = memory
        self._array = array
        self._begun: dict[int, Copying] = {}

    def launch(self, instruction: Instruction) -> Launch:
        """What begins a copy, or what waits for its end; that which begins it comes first."""
        source, target = instruction.reads[0], instruction.writes[0]
        if instruction.transfer is Transfer.END:
            return self._begun.pop(target.block).end
        copying = self._begun[target.block] = self._bound(source, target)
        return copying.begin

    def _bound(self, source: Operand, target: Operand) -> Copying:
        if self._memory is None:
            raise GraphError("binding a step: wanted host memory for the values that it offloads, received none")
        if target.block in self._offsets:
            return self._memory.out(self._array(source), self._offsets[target.block])
        return self._memory.back(self._array(target), self._offsets[source.block])
