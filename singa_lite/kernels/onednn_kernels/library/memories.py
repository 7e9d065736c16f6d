"""Memory objects of the library, by which launches tell it where their arrays are.

One takes a kilobyte, and the launches of a net's step have tens of thousands of arguments. So only the first of them
have objects of their own. The others share some, as two launches of a step never run at a time:

    launch 1:   executes over objects of its own
    launch 2:   points the shared objects at its arrays, executes
    launch 3:   points the shared objects at its arrays, executes
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from math import inf
from typing import NamedTuple

from singa_lite.common.unique import Unique
from singa_lite.kernels.kernel_set import Launch
from singa_lite.kernels.onednn_kernels.library.handles import Handle, MemoryDesc
from singa_lite.kernels.onednn_kernels.library.library import load
from singa_lite.kernels.onednn_kernels.library.primitive_desc import PrimitiveDesc

#: Arguments of one binding that have objects of their own. To point at an array takes a third of a microsecond: of no
#: account where there are more arguments than that, and much in a small net.
OWN = 1 << 10


class Argument(NamedTuple):
    """What an execution is given. number: the library's; addresses: one for each round, or one for all of them.

    room: bytes that there are at least from each address on; None where rows have gaps, of which this is not known.
    """

    number: int
    addresses: Sequence[int]
    room: int | None


class Execution(NamedTuple):
    """A primitive and its arguments."""

    primitive: PrimitiveDesc
    arguments: Sequence[Argument]


class _Kind(NamedTuple):
    """A memory descriptor: its bytes, and which one of those that have as many."""

    nbytes: int
    number: int


class _Argument(c.Structure):
    _fields_ = [("argument", c.c_int), ("memory", c.c_void_p)]


@cache
def _array_of(count: int) -> type[c.Array[_Argument]]:
    """The type of so many: ctypes would make one each time."""
    return _Argument * count


#: Points a memory object at an address.
_Point = Callable[[c.c_void_p, int], object]
#: A memory object and where to point it in each round.
_Moved = tuple[tuple[c.c_void_p, Sequence[int]], ...]


class Memories(Unique):
    """Memory objects of launches of which never two run at a time. own: how many of them may belong to one launch."""

    def __init__(self, own: float = inf) -> None:
        self._left = own
        self._descs: dict[int, list[MemoryDesc]] = {}
        self._kinds: dict[tuple[PrimitiveDesc, int], _Kind] = {}
        self._shared: dict[tuple[_Kind, bool, int], Handle] = {}
        self._calls: dict[tuple[PrimitiveDesc, tuple[int, ...]], Launch] = {}

    @contextmanager
    def binding(self) -> Iterator[None]:
        """Launches bound inside use these objects, the first of them some of their own."""
        self._left = OWN
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)
            self._kinds.clear()

    def launch(self, executions: Sequence[Execution], rounds: int = 1) -> Launch:
        """What does the executions one after the other, in as many rounds as each moved argument has addresses.

        It holds the library's objects and no array: whoever binds a kernel has those (`RoutineKernel`). ValueError
        where an array is too small for what the library would do with it.
        """
        count = sum(len(arguments) for _, arguments in executions)
        if count > self._left:
            return self._sharing(executions, rounds)
        self._left -= count
        stages = [self._own(execution) for execution in executions]
        if rounds == 1 and len(stages) == 1:
            return stages[0][0]
        return _in_rounds(stages, rounds)

    def _own(self, execution: Execution) -> tuple[Launch, _Moved]:
        """The execution over objects of its own."""
        memories = [_own_memory(execution, argument) for argument in execution.arguments]
        pairs = zip(memories, execution.arguments, strict=True)
        moved = tuple((memory.pointer, each.addresses) for memory, each in pairs if len(each.addresses) > 1)
        return _call(execution, memories), moved

    def _sharing(self, executions: Sequence[Execution], rounds: int) -> Launch:
        """What keeps its place in all rounds has one object for each address, and is pointed at once."""
        fixed: dict[tuple[_Kind, int], Handle] = {}
        seen: dict[_Kind, int] = {}
        stages = [self._shared_stage(execution, fixed, seen) for execution in executions]
        pointers = tuple(memory.pointer for memory in fixed.values())
        addresses = tuple(address for _, address in fixed)
        return partial(_point_and_launch, load().point, pointers, addresses, _in_rounds(stages, rounds))

    def _shared_stage(
        self, execution: Execution, fixed: dict[tuple[_Kind, int], Handle], seen: dict[_Kind, int]
    ) -> tuple[Launch, _Moved]:
        memories, moved, times = [], [], dict[_Kind, int]()
        for each in execution.arguments:
            kind = self._kind(execution, each)
            if len(each.addresses) > 1:
                times[kind] = times.get(kind, 0) + 1
                memory = self._shared_memory(kind, True, times[kind], each.addresses[0])
                moved.append((memory.pointer, each.addresses))
            else:
                address = each.addresses[0]
                if (kind, address) not in fixed:
                    seen[kind] = seen.get(kind, 0) + 1
                    fixed[kind, address] = self._shared_memory(kind, False, seen[kind], address)
                memory = fixed[kind, address]
            memories.append(memory)
        key = execution.primitive, tuple(map(id, memories))
        if key not in self._calls:
            self._calls[key] = _call(execution, memories)
        return self._calls[key], tuple(moved)

    def _shared_memory(self, kind: _Kind, moves: bool, index: int, address: int) -> Handle:
        key = kind, moves, index
        if key not in self._shared:
            self._shared[key] = _memory(self._descs[kind.nbytes][kind.number], address)
        return self._shared[key]

    def _kind(self, execution: Execution, argument: Argument) -> _Kind:
        """The descriptor of an argument, one for all that are equal."""
        key = execution.primitive, argument.number
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = self._kind_of(execution.primitive.memory_desc(argument.number))
        _check(execution, argument, found.nbytes)
        return found

    def _kind_of(self, desc: MemoryDesc) -> _Kind:
        nbytes = desc.nbytes
        alike = self._descs.setdefault(nbytes, [])
        index = next((index for index, known in enumerate(alike) if known == desc), len(alike))
        if index == len(alike):
            alike.append(desc)
        return _Kind(nbytes, index)


_current: ContextVar[Memories | None] = ContextVar("memories", default=None)


def current() -> Memories:
    """Those of the binding that goes on; outside of any, new ones for one launch."""
    return _current.get() or Memories()


def _own_memory(execution: Execution, argument: Argument) -> Handle:
    desc = execution.primitive.memory_desc(argument.number)
    _check(execution, argument, desc.nbytes)
    return _memory(desc, argument.addresses[0])


def _check(execution: Execution, argument: Argument, wanted: int) -> None:
    """The library writes to where it is told."""
    if argument.room is not None and argument.room < wanted:
        raise ValueError(
            f"{execution.primitive.implementation}: argument {argument.number}: wanted {wanted} bytes, "
            f"received {argument.room}"
        )


def _memory(desc: MemoryDesc, address: int) -> Handle:
    return Handle("memory", load().make("memory_create", desc, load().engine, c.c_void_p(address)))


def _call(execution: Execution, memories: Sequence[Handle]) -> Launch:
    """The execution over these objects, wherever they are pointed at."""
    library, primitive = load(), execution.primitive.primitive
    numbers = [argument.number for argument in execution.arguments]
    pairs = (_Argument(number, memory.pointer) for number, memory in zip(numbers, memories, strict=True))
    arguments = _array_of(len(numbers))(*pairs)
    # Pointers as ctypes wants them: what it has to convert at each call takes as long as the call itself.
    pointers = primitive.pointer, library.stream
    launch = partial(library.primitive_execute, *pointers, len(numbers), c.cast(arguments, c.c_void_p))
    launch.keep = execution.primitive, primitive, arguments, *memories  # type: ignore[attr-defined]
    return launch


def _in_rounds(stages: Sequence[tuple[Launch, _Moved]], rounds: int) -> Launch:
    if rounds == 1 and len(stages) == 1:
        return stages[0][0]
    return partial(_go_round, load().point, tuple(stages), rounds)  # which takes less than a function with its cells


def _go_round(point: _Point, stages: Sequence[tuple[Launch, _Moved]], rounds: int) -> None:
    for index in range(rounds):
        for launch, moved in stages:
            for memory, addresses in moved:
                point(memory, addresses[index])
            launch()


def _point_and_launch(point: _Point, memories: Sequence[c.c_void_p], addresses: Sequence[int], launch: Launch) -> None:
    for memory, address in zip(memories, addresses, strict=True):
        point(memory, address)
    launch()
