"""Rows of a memory plan: placed blocks, repeated operations, variants of calls, and bytes by class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from singa_lite.compiler.ir.operation import Instruction, Phase, Role
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.target import Target
from singa_lite.compiler.placement.problem import PlanError


@dataclass(frozen=True)
class PlacedRow:
    """A block or scratch in the arena: steps [lower, upper), bytes [offset, offset + nbytes).

    kind: the phase of the operation that first writes it, "again" where that is a repeat, or "scratch".
    """

    name: str
    layer: str
    kind: str
    nbytes: int
    lower: int
    upper: int
    offset: int


#: The kind of blocks that repeats make, in the place of a phase.
AGAIN = "again"


@dataclass(frozen=True)
class RepeatRow:
    """A repeat. step: where it stands; of_step: where the call stands whose results it makes again.

    nbytes: of what it makes again and others read, which takes no bytes in the steps [gone, step); seconds: estimated.
    """

    layer: str
    kernel: str
    step: int
    of_step: int
    gone: int
    nbytes: int
    seconds: float

    @property
    def free_steps(self) -> str:
        """The steps in which its bytes are free, in words."""
        return f"{self.gone} to {self.step - 1}" if self.gone < self.step else "none"


def repeat_rows(program: Program) -> list[RepeatRow]:
    """Of a planned program, in the order of its steps."""
    steps = {instruction.number: step for step, instruction in enumerate(program.instructions)}
    used: dict[int, int] = {}  # {block: the last step so far that uses it}
    latest: dict[int, set[int]] = {}  # {original: the blocks that it, or its last repeat, wrote}
    rows = []
    for step, instruction in enumerate(program.instructions):
        original = instruction.number if instruction.repeats is None else instruction.repeats
        if instruction.repeats is not None:
            gone = max((used[block] + 1 for block in latest[original]), default=step)
            rows.append(_row(program, instruction, step, steps[original], gone))
        used.update((operand.block, step) for operand in instruction.operands if operand is not None)
        latest[original] = _written_blocks(program, instruction)
    return rows


def _row(program: Program, repeat: Instruction, step: int, of_step: int, gone: int) -> RepeatRow:
    nbytes = sum(program.sizes[block] for block in _written_blocks(program, repeat))
    return RepeatRow(repeat.layer, repeat.kernel, step, of_step, gone, nbytes, program.target.cost(repeat))


def _written_blocks(program: Program, instruction: Instruction) -> set[int]:
    return {operand.block for operand in instruction.writes if operand.block in program.sizes}


class VariantRow(NamedTuple):
    """A call. step: where it stands in the plan; variant: the way in which it is done."""

    step: int
    kernel: str
    layer: str
    variant: str


def variant_rows(program: Program) -> list[VariantRow]:
    """Of all calls that can be done in several ways, in the order of the steps."""
    named = ((step, i, _variant(program.target, i)) for step, i in enumerate(program.instructions))
    return [VariantRow(step, i.kernel, i.layer, variant) for step, i, variant in named if variant]


def variant_lines(rows: Sequence[VariantRow]) -> list[str]:
    """How many calls of each kernel are done in which way, a line for each kernel."""
    counts = Counter((row.kernel, row.variant) for row in rows)
    kernels = dict.fromkeys(kernel for kernel, _ in counts)
    return [
        f"{kernel}: " + ", ".join(f"{number} {variant}" for (one, variant), number in counts.items() if one == kernel)
        for kernel in kernels
    ]


def called(target: Target, instruction: Instruction) -> str:
    """The kernel of a call, and the way in which it is done where there are several."""
    variant = _variant(target, instruction)
    return f"{instruction.kernel} ({variant})" if variant else instruction.kernel


def _variant(target: Target, instruction: Instruction) -> str:
    return target.variant(instruction.kernel, instruction.operands, instruction.settings)


#: The end of the name of a tensor in which gradients of several batches are added up.
SUM = " sum of gradients"

#: In the order in which they are printed. The first four are what other frameworks report.
CLASSES = (
    *("parameters", "gradients", "optimizer state", "running statistics", "frozen", "frozen, mapped"),
    *("inputs", "outputs", "activations", "derivatives", "scratch"),
)

#: Classes of blocks outside the arena, by their role; of state it matters who writes it.
_HELD = {
    **{Role.PARAMETER: "parameters", Role.INPUT: "inputs", Role.OUTPUT: "outputs"},
    **{role: str(role) for role in (Role.FROZEN, Role.MAPPED)},
}
#: Classes of what lies in the arena, by `PlacedRow.kind`; what is made again is an activation or a derivative.
_PLACED = {"forward": "activations", "again": "activations", "derivative": "derivatives", "gradient": "gradients"}

#: (name, role, bytes, number) of a block outside the arena.
Held = tuple[str, Role, int, int]


def bytes_by_class(held: Iterable[Held], rows: Sequence[PlacedRow], program: Program) -> dict[str, int]:
    """{class: bytes}. Blocks outside the arena count as they are; of those within, which share bytes, counts the most
    that live at a time. So classes within the arena do not add up to it.
    """
    found = dict.fromkeys(CLASSES, 0)
    updated = {o.block for i in program.instructions if i.phase is Phase.UPDATE for o in i.writes}
    for name, role, nbytes, number in held:
        found[_class_of(name, role, number in updated)] += nbytes
    for kind in sorted({_PLACED.get(row.kind, "scratch") for row in rows}):
        found[kind] += _most_live([row for row in rows if _PLACED.get(row.kind, "scratch") == kind])
    return found


def _class_of(name: str, role: Role, is_updated: bool) -> str:
    if role is not Role.STATE:
        return _HELD[role]
    if name.endswith(SUM):
        return "gradients"
    return "optimizer state" if is_updated else "running statistics"


def _most_live(rows: Iterable[PlacedRow]) -> int:
    """The largest sum of bytes that live at a time."""
    changes: dict[int, int] = {}
    for row in rows:
        changes[row.lower] = changes.get(row.lower, 0) + row.nbytes
        changes[row.upper] = changes.get(row.upper, 0) - row.nbytes
    level = most = 0
    for step in sorted(changes):
        level += changes[step]
        most = max(most, level)
    return most


def check_limits(found: Mapping[str, int], limits: Mapping[str, int]) -> None:
    """PlanError for the first class that takes more than its limit."""
    for name, limit in limits.items():
        if found[name] > limit:
            raise PlanError(
                f"compile limits: wanted at most {limit:,} bytes of class {name!r}, the step takes {found[name]:,}"
            )
