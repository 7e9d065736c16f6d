"""Scores: a product, and all that is done with its result, row by row, up to the sums over rows that end it.

A net for ids ends so: scores of all classes for each row, a loss of each row, the derivative by its scores, and
products with that. The scores and their derivative have the shape (rows, classes); nothing else of a net may be as
large.
"""

from __future__ import annotations

from dataclasses import dataclass

from singa_lite.common.strides import laid_out
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.uses import Uses, predecessors
from singa_lite.kernels.interface import SIGNATURES

LOSS = "softmax_cross_entropy"
#: What makes scores.
PRODUCTS = "linear", "matmul", "quantized_linear"


@dataclass(frozen=True)
class Scores:
    """steps: of all that has to do with the scores, rising, the product that makes them first. large: blocks of the
    scores and of what is as large, which nothing else uses. shape: (rows, classes).
    """

    steps: tuple[int, ...]
    large: frozenset[int]
    scores: Operand

    @property
    def rows(self) -> int:
        """Of the scores."""
        return self.scores.shape[0]


def cut_along(instruction: Instruction) -> tuple[str, ...]:
    """Returns the tensors of a call whose rows, along axis 0, it computes separately or sums over. None of a call that
    mixes rows otherwise.
    """
    if instruction.kernel == "matmul":
        plain = all(operand is not None and len(operand.shape) == 2 for operand in instruction.operands)
        if not instruction.settings["transpose_a"]:
            return ("a", "y") if plain else ()
        return ("a", "b") if plain and not instruction.settings["transpose_b"] else ()
    if instruction.kernel == "bias_gradient":
        dy = instruction.by_name["dy"]
        return ("dy",) if dy is not None and len(dy.shape) == 2 and instruction.settings["axis"] in (1, -1) else ()
    return instruction.by_samples


def sums(instruction: Instruction) -> bool:
    """Whether it is a sum over the rows."""
    return instruction.kernel == "bias_gradient" or bool(instruction.settings.get("transpose_a"))


def scores_of(program: Program, uses: Uses, step: int) -> Scores | None:
    """The scores that the loss at this step is of; None where something else uses them, or mixes their rows."""
    loss = program.instructions[step]
    x = loss.by_name["x"] if loss.kernel == LOSS else None
    if x is None or len(x.shape) != 2:
        return None
    steps, large, left = set[int](), {x.block}, [x.block]
    while left:
        for user in uses.steps[left.pop()]:
            if user in steps:
                continue
            instruction = program.instructions[user]
            if not _fits(instruction, x.shape[0]):
                return None
            steps.add(user)
            if not SIGNATURES[instruction.kernel].facts.multiplies:  # the result of a product is another thing
                new = {o.block for o in instruction.writes if o.shape == x.shape} - large
                large |= new
                left += new
    operands = (o for s in steps for o in program.instructions[s].operands if o is not None and o.block in large)
    whole = all(_is_whole_block(program, operand, x) for operand in operands)
    made = Scores(tuple(sorted(steps)), frozenset(large), x)
    return made if whole and _begins(program, uses, made) else None


def _fits(instruction: Instruction, rows: int) -> bool:
    """Whether each of its rows is done by itself, or summed up. Operands of elements may be broadcast to others."""
    named, along = instruction.by_name, cut_along(instruction)
    cut = [operand for name in along if (operand := named[name]) is not None]
    if SIGNATURES[instruction.kernel].family == "elementwise" and len({operand.shape for operand in cut}) > 1:
        return False
    return bool(along) and all(operand.shape[:1] == (rows,) for operand in cut)


def _is_whole_block(program: Program, operand: Operand, x: Operand) -> bool:
    """Whether it is a whole block of the arena, in C order, of the scores' shape."""
    plain = laid_out(x.shape, range(2), operand.dtype.itemsize)
    is_plain = (*operand[1:4], operand.offset) == (x.shape, x.dtype, plain, 0)
    return is_plain and program.sizes.get(operand.block) == operand.nbytes


def _begins(program: Program, uses: Uses, scores: Scores) -> bool:
    """Whether the first of the calls is a product that makes the scores, and all of them have these by rows."""
    first = program.instructions[scores.steps[0]]
    if first.kernel not in PRODUCTS or sums(first) or first.writes[0].block != scores.scores.block:
        return False
    if uses.writers[scores.scores.block] != [scores.steps[0]]:
        return False
    for instruction in (program.instructions[step] for step in scores.steps):
        large = {name for name, o in instruction.by_name.items() if o is not None and o.block in scores.large}
        if not large <= {*cut_along(instruction)}:
            return False
    return True


def parted(program: Program, scores: Scores) -> tuple[list[int], list[int]] | None:
    """The steps between the first and the last of the scores' that come before all of these, and those behind.

    None where one can be neither.
    """
    first, last = scores.steps[0], scores.steps[-1]
    before = predecessors(program.instructions[first : last + 1])
    own = {step - first for step in scores.steps}
    lead, behind = list[int](), set[int]()
    for step, earlier in enumerate(before):
        if step in own:
            if any(one in behind for one in earlier):
                return None
        elif any(one in own or one in behind for one in earlier):
            behind.add(step)
        else:
            lead.append(first + step)
    return lead, [first + step for step in sorted(behind)]
