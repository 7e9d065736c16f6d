"""CheckedLaunches: what checked mode adds to the launches of an executable (`docs/internals.md`, Checked mode).

There is no room for guards between the tensors of a plan, so the bytes around what an instruction may write are noted
before it and compared after it. Bytes that have died are filled with 0xFF, NaN in every float type: a read of them
would show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.errors import OverrunError
from singa_lite.compiler.ir.collectives import kind_of
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.placed import Placed
from singa_lite.graph.arena import StepDevice
from singa_lite.kernels.kernel_set import Launch

#: Bytes looked at on each side: a cache line, and the widest vector that a kernel writes.
FENCE = 64

Span = tuple[int, int]


class CheckedLaunches:
    """Launches with the checks around them. view: makes an array of so many bytes from an offset of the arena on."""

    def __init__(self, placed: Placed, device: StepDevice, view: Callable[[int, int], object]) -> None:
        self._placed = placed
        self._device = device
        self._view = view

    def with_checks(self, launches: Sequence[Launch], names: Sequence[str]) -> tuple[list[Launch], list[str]]:
        """The launches, one an instruction, with their checks, and the fills after them. names: of what each does.

        A launch that wrote beyond its outputs and its scratch raises OverrunError.
        """
        instructions = self._placed.planned.instructions
        dying = _last_uses(instructions, self._placed.offsets)
        made: list[tuple[Launch, str]] = []
        for step, (instruction, launch, name) in enumerate(zip(instructions, launches, names, strict=True)):
            made.append((self._fenced(instruction, launch, name), name))
            made += [(self._fill(block), "fill of dead bytes") for block in dying.get(step, ())]
        return [launch for launch, _ in made], [name for _, name in made]

    def _fenced(self, instruction: Instruction, launch: Launch, name: str) -> Launch:
        if kind_of(instruction):  # others write into this rank's memory meanwhile
            return launch
        spans = guard_spans(self._written(instruction), self._placed.arena_bytes)
        around = [self._view(start, stop - start) for start, stop in spans]
        on_host = [array for array in around if isinstance(array, np.ndarray)]
        if len(on_host) < len(around):  # a GPU's: compute-sanitizer looks there
            return launch
        fence, device = Fence(name, on_host), self._device

        def run() -> None:
            fence.note()
            launch()
            fence.check()
            device.check_guards(name)

        return run

    def _written(self, instruction: Instruction) -> list[tuple[int, int]]:
        """Bytes of the arena, (start, stop), that the instruction may write."""
        offsets, sizes = self._placed.offsets, self._placed.planned.sizes
        blocks = [operand.block for operand in instruction.writes if operand.block in offsets]
        written = [(offsets[block], offsets[block] + sizes[block]) for block in blocks]
        if instruction.scratch_bytes:
            start = self._placed.scratch[instruction.number]
            written.append((start, start + instruction.scratch_bytes))
        return written

    def _fill(self, block: int) -> Launch:
        dead = self._view(self._placed.offsets[block], self._placed.planned.sizes[block])
        return self._device.kernels.prepare("fill", (dead,), None, {"value": 0xFF})


def _last_uses(instructions: Sequence[Instruction], offsets: Mapping[int, int]) -> dict[int, list[int]]:
    """{step: blocks that are used for the last time there}."""
    last = {o.block: step for step, i in enumerate(instructions) for o in i.operands if o is not None}
    dying: dict[int, list[int]] = {}
    for block, step in last.items():
        if block in offsets:
            dying.setdefault(step, []).append(block)
    return dying


def guard_spans(written: Iterable[Span], end: int) -> list[Span]:
    """The bytes, (start, stop), on both sides of what is written in bytes 0 to `end`, none of which is written."""
    found: list[Span] = []
    reached = 0
    for start, stop in sorted(span for span in written if span[0] < span[1]):
        if start > reached:
            found.append((max(reached, start - FENCE), start))
            if reached:
                found.append((reached, min(start, reached + FENCE)))
        reached = max(reached, stop)
    if 0 < reached < end:
        found.append((reached, min(end, reached + FENCE)))
    return found


class Fence:
    """Notes bytes before an operation, and looks at them after it.

    name: of the operation, for the OverrunError. watched: the bytes, uint8.
    """

    def __init__(self, name: str, watched: Sequence[Array]) -> None:
        self._name = name
        self._watched = watched
        self._noted = [np.empty_like(array) for array in watched]

    def note(self) -> None:
        """Before the operation."""
        for noted, array in zip(self._noted, self._watched, strict=True):
            np.copyto(noted, array)

    def check(self) -> None:
        """After it."""
        for noted, array in zip(self._noted, self._watched, strict=True):
            changed = np.flatnonzero(noted != array)
            if changed.size:
                raise OverrunError(
                    f"{self._name}: wanted it to write its outputs and its scratch alone, received other values in "
                    f"{changed.size} bytes beside them"
                )
