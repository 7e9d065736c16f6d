"""Updates by rows: a table's gradient that only plain SGD uses is applied to the rows that occur, and never exists."""

from __future__ import annotations

from singa_lite.kernels.interface.update import SgdHyper
from singa_lite.operation import Instruction
from singa_lite.passes.program import Program
from singa_lite.passes.uses import Uses


def applied_by_rows(program: Program) -> Program:
    """Put `sgd_rows` in the place of each `embedding_gradient` and the `sgd` that it is for.

    That holds where the gradient is a whole intermediate block that nothing else uses, and the update has neither
    momentum nor decay, which would move the other rows too.
    """
    uses = Uses(program.instructions)
    result: list[Instruction | None] = list(program.instructions)
    for step, instruction in enumerate(program.instructions):
        update = _update(program, uses, step, instruction)
        if update:
            result[step] = None
            result[update] = _one(program, instruction, program.instructions[update])
    kept = [instruction for instruction in result if instruction is not None]
    return program.with_instructions(kept) if len(kept) < len(result) else program


def _update(program: Program, uses: Uses, step: int, made: Instruction) -> int:
    """The step of the plain update that uses up the gradient made here; 0 if there is none."""
    if made.kernel != "embedding_gradient":
        return 0
    ids, dy, gradient = made.operands
    if ids is None or dy is None or gradient is None or program.sizes.get(gradient.block) != gradient.nbytes:
        return 0
    first, *users = uses.steps[gradient.block]
    if first != step or len(users) != 1:
        return 0
    update = program.instructions[users[0]]
    changed = any(uses.is_written(block, step, users[0]) for block in (ids.block, dy.block))
    return users[0] if _is_plain(update) and update.operands[0] == gradient and not changed else 0


def _is_plain(update: Instruction) -> bool:
    """Whether it is SGD that leaves a value alone where the gradient is 0."""
    hyper = update.settings.get("hyper")
    plain = isinstance(hyper, SgdHyper) and not hyper.momentum and not hyper.weight_decay
    return plain and update.kernel == "sgd" and update.by_name["velocity"] is None


def _one(program: Program, made: Instruction, update: Instruction) -> Instruction:
    ids, dy, _ = made.operands
    _, rate, value, _, count = update.operands
    settings = {"hyper": update.settings["hyper"], "padding": made.settings["padding"]}
    return program.target.call(update, "sgd_rows", (ids, dy, rate, value, count), settings)
