"""RepeatRow: one operation of a planned step that is done again, what it frees meanwhile, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass

from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.program import Program

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
