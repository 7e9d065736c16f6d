"""Arena: one span of bytes that several planned programs share. Executable: such a program, bound to the span."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import NamedTuple, Protocol
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

from singa_lite.common import threads
from singa_lite.common.array_types import Array, DeviceArray
from singa_lite.common.contexts import Turn
from singa_lite.common.machine import clear_free_lists
from singa_lite.common.packed import Packed
from singa_lite.common.unique import Unique
from singa_lite.errors import GraphError
from singa_lite.kernels.kernel_set import KernelSet, Launch
from singa_lite.operation import Instruction, Operand
from singa_lite.passes.placed import Placed
from singa_lite.passes.remembered import forget_planning
from singa_lite.replay.bound_transfers import BoundTransfers
from singa_lite.replay.checked_launches import CheckedLaunches
from singa_lite.replay.lanes import Lanes
from singa_lite.replay.step_device import StepDevice
from singa_lite.runtime.host_memory import HostMemory
from singa_lite.runtime.runtime import Replay
from singa_lite.tensor import Block

#: Launches that are bound before what they were built from is let go of.
MOST_BUILT = 128

#: {device: the arena that nets there share}.
_shared: WeakKeyDictionary[StepDevice, ReferenceType[Arena]] = WeakKeyDictionary()

_TAKEN = (
    "running a recorded step: wanted its memory for this thread alone, received a step of the same net or graph that "
    "another thread is running; give each thread a net and a device of its own: device.new_cpu()"
)


def _after_fork() -> None:
    for found in list(_shared.values()):
        arena = found()
        if arena is not None:
            arena.turn.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def taken() -> GraphError:
    """The error for a thread that comes while another one runs a step."""
    return GraphError(_TAKEN)


class Needs(Protocol):
    """Bytes that a program wants of an arena, and of host memory."""

    @property
    def arena_bytes(self) -> int: ...

    @property
    def host_bytes(self) -> int: ...


class Arena(Unique):
    """Bytes from a device's pool. Programs never run at the same time, so the largest one's need is enough.

    offload: where values may be offloaded to, a place of `Runtime.offload_place`; "": nowhere. host: the memory there.
    shared: nets that know nothing of each other run here, so a thread waits while another one runs a step.
    """

    def __init__(self, device: StepDevice, offload: str = "", shared: bool = False) -> None:
        self.device = device
        self.offload = offload
        self.block: Block | None = None
        self.host: HostMemory | None = None
        self._may_be_copying = False
        self._turns = device.kernels.turns()
        self._executables: WeakSet[Executable] = WeakSet()
        self._left = False
        #: `arena.turn.run(work)`: no other thread may use the bytes meanwhile. GraphError if one does, or it waits.
        self.turn = Turn(None if shared else taken)

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
        if not self._left:
            return
        self._left = False
        if all(executable.arena_bytes < self.nbytes for executable in self._executables):
            self.turn.run(self._give_back)

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

    def reserve(self, needs: Needs) -> None:
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

    def shrink(self) -> None:
        """Give the span back; programs make room again when they next run."""
        self.turn.run(self._give_back)

    def _give_back(self) -> None:
        self.release()
        self.block = None
        self.device.pool.release_free()

    def copying(self, run: Callable[[], object]) -> None:
        """Run a program. Where that ends early, its copies to host memory and back end before anything else runs."""
        self.settle()
        self._may_be_copying = self.host is not None
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
        self.host = self.device.runtime.host_memory(self.offload, nbytes)

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

    def add(self, executable: Executable) -> None:
        """Make room for an executable, which binds its launches here when it next runs."""
        self.reserve(executable)
        self._executables.add(executable)


class Pause(NamedTuple):
    """Where a run waits: before its first launch that writes one of these blocks, `wait` is called, once.

    give_up: called instead of `wait` where an interrupt has ended the run, perhaps before the reader began: it need not
    begin any more, and is not reading when this returns. None: `wait` does that too.
    made: what `wait` reads; it is not called where this is not whole by then. None: it reads nothing of the run's.
    """

    blocks: Collection[Block]
    wait: Callable[[], object]
    give_up: Callable[[], object] | None = None
    made: Block | None = None

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
        self._first_writes = _first_writes(placed.planned.instructions, self.blocks)
        self._last_writes = _last_writes(placed.planned.instructions, self.blocks)
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

    @property
    def is_bound(self) -> bool:
        """Whether the launches are bound to their bytes."""
        return self._replay is not None

    def run_here(self) -> None:
        """As `run`, where the arena's turn is taken, and its processor and stream are the current ones."""
        threads.settle()
        self.arena.copying(self._replay or self.prepare())

    def _run(self, pause: Pause | None) -> None:
        with self.arena.device.runtime.here():
            replay = self._replay or self.prepare()
            if pause is None or not self._is_made(pause):
                self.arena.copying(replay)
            else:
                self.arena.copying(partial(replay.pausing, self._first_write(pause.blocks), pause.wait))

    def prepare(self) -> Replay:
        """Bind the launches, if they are not: all that a run needs beside the kernels. Returns what runs them."""
        if self._replay is not None:
            return self._replay
        threads.settle()
        return self.arena.turn.run(self._prepared)

    def _prepared(self) -> Replay:
        with self.arena.device.runtime.here():
            replay = self._replay or self._bind()
            self._replay = replay
            return replay

    def launches(self) -> list[Launch]:
        """The launches in order, one an instruction, each to run by itself."""
        return self._lanes.by_themselves(self._made())

    def _made(self) -> list[Launch]:
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
            with self._lanes.making(step, self._kernels.turns):
                launches.append(self._launch(placed, instruction))
        return launches

    def release(self) -> None:
        """Forget the launches, and with them the bytes; the next run binds anew."""
        self._replay = None

    def written(self) -> dict[int, Array]:
        """Host copies of the bytes of each block outside the arena that the program writes."""
        read = self.arena.device.runtime.read
        return {number: read(self._whole(number)) for number in self._first_writes}

    def write_back(self, values: Mapping[int, Array]) -> None:
        """Give these blocks the bytes that `written` copied."""
        for number, bytes_before in values.items():
            self.arena.device.runtime.write(self._whole(number), bytes_before)

    def _whole(self, number: int) -> DeviceArray:
        block = self.blocks[number]
        return self.arena.device.view(block, (block.nbytes,), "uint8", (1,), 0)

    def _bind(self) -> Replay:
        clear_free_lists()  # of what planning dropped, so that the launches lie close together
        self.arena.reserve(self)
        with self.arena.binding():
            launches = self._made()
        placed = self.placed
        names = [_name(i) for i in placed.planned.instructions]
        launches, names = self._lanes.merged(launches, names)
        if self.checked:
            launches, names = CheckedLaunches(placed, self.arena.device, self._bytes).around(launches, names)
        replay = self.arena.device.replay(launches, names)
        forget_planning(self._kernels)  # the launches have what they need
        return replay

    def _first_write(self, blocks: Collection[Block]) -> int:
        """The index of the first launch, or wave of launches, that writes one of these blocks."""
        if self.checked:  # launches lie between those of the instructions
            return 0
        written = (step for number, step in self._first_writes.items() if self.blocks[number] in blocks)
        return self._lanes.place(min(written, default=self._count))

    def _is_made(self, pause: Pause) -> bool:
        """Whether what the pause reads is whole when it comes."""
        if pause.made is None:
            return True
        written = (step for number, step in self._last_writes.items() if self.blocks[number] is pause.made)
        return self._lanes.place(max(written, default=self._count)) < self._first_write(pause.blocks)

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


def _name(instruction: Instruction) -> str:
    return f"{instruction.kernel!r} of layer {instruction.layer!r}"


def _first_writes(instructions: Sequence[Instruction], blocks: Collection[int]) -> dict[int, int]:
    """{one of these blocks: the index of the first instruction that writes it}."""
    found: dict[int, int] = {}
    for step, instruction in enumerate(instructions):
        for operand in instruction.writes:
            if operand.block in blocks:
                found.setdefault(operand.block, step)
    return found


def _last_writes(instructions: Sequence[Instruction], blocks: Collection[int]) -> dict[int, int]:
    """{one of these blocks: the index of the last instruction that writes it}."""
    return {o.block: step for step, i in enumerate(instructions) for o in i.writes if o.block in blocks}
