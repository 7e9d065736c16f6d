"""The gradient of a table that is used twice: rows that occur are added to what a product gives.

    recorded:   g = d^T @ x;  e = gradient of the rows by ids and dy;  s = g + e;  update by s
    here:       g = d^T @ x;  g += the sums of dy for the rows that occur;  update by g

So an embedding and a head that share a table (`layers.TiedDense`) need one gradient of its size, and no other.
"""

from __future__ import annotations

from singa_lite.operation import Instruction, Operand
from singa_lite.passes.program import Program
from singa_lite.passes.uses import Uses

ROWS, ADDED = "embedding_gradient", "embedding_gradient_add"


def added_by_rows(program: Program) -> Program:
    """Put `embedding_gradient_add` in the place of each `embedding_gradient` and of the sum that it is for.

    Both terms must be whole intermediate blocks that nothing else uses behind the sum, and lie alike.
    """
    uses = Uses(program.instructions)
    result: list[Instruction | None] = list(program.instructions)
    renamed = dict[int, int]()
    for step, instruction in enumerate(program.instructions):
        later = _sum(program, uses, step) if instruction.kernel == ROWS else 0
        if not later:
            continue
        addition, rows = program.instructions[later], instruction.operands[2]
        term, total = _other(addition, rows), addition.operands[2]
        if term is None or total is None:
            continue
        ids, dy, _ = instruction.operands
        result[step] = None
        result[later] = program.target.call(instruction, ADDED, (ids, dy, term), instruction.settings, addition.number)
        renamed[total.block] = renamed.get(term.block, term.block)
    return program.with_instructions([_over(i, renamed) for i in result if i is not None]) if renamed else program


def _over(instruction: Instruction, renamed: dict[int, int]) -> Instruction:
    """The instruction over the blocks that stand for others."""
    if not any(o is not None and o.block in renamed for o in instruction.operands):
        return instruction
    return instruction.with_operands(
        tuple(o if o is None else o._replace(block=renamed.get(o.block, o.block)) for o in instruction.operands)
    )


def _other(addition: Instruction, rows: Operand | None) -> Operand | None:
    a, b, _ = addition.operands
    return b if a == rows else a


def _sum(program: Program, uses: Uses, step: int) -> int:
    """The step of the sum of this gradient with another one; 0 if there is none that both may be added within."""
    ids, dy, rows = program.instructions[step].operands
    if ids is None or dy is None or rows is None or uses.steps[rows.block][0] != step:
        return 0
    users = uses.steps[rows.block][1:]
    addition = program.instructions[users[0]] if len(users) == 1 else None
    if addition is None or addition.kernel != "add" or addition.operands[:2].count(rows) != 1:
        return 0
    term, total = _other(addition, rows), addition.operands[2]
    if term is None or total is None or not all(_is_whole(program, operand, rows) for operand in (rows, term, total)):
        return 0
    alone = uses.steps[term.block][-1] == users[0] == uses.steps[total.block][0] and term.block != total.block
    changed = any(uses.is_written(block, step, users[0]) for block in (ids.block, dy.block))
    return users[0] if alone and not changed else 0


def _is_whole(program: Program, operand: Operand, like: Operand) -> bool:
    """Whether it is a whole intermediate block, and lies as the other one."""
    return operand[1:] == like[1:] and program.sizes.get(operand.block) == operand.nbytes
