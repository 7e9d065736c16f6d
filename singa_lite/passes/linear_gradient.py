"""The gradients of a linear layer in one: the weight's product and the bias's sums read the same derivative once."""

from __future__ import annotations

from singa_lite.operation import Instruction
from singa_lite.passes.program import Program
from singa_lite.passes.uses import Uses

#: What a kernel set does in one go: the product x^T @ dy, and the sums of dy over its rows.
PAIR = ("matmul", "bias_gradient")


def joined(program: Program) -> Program:
    """Replace each such pair by `linear_gradient`, at the step of the first, if the kernel set has it."""
    if PAIR not in program.target.fusions:
        return program
    instructions = program.instructions
    uses = Uses(instructions)
    products = {i.operands[1]: step for step, i in enumerate(instructions) if _is_gradient(i)}
    result: list[Instruction | None] = list(instructions)
    for step, sums in enumerate(instructions):
        if sums.kernel != "bias_gradient" or sums.settings["axis"] not in (1, -1):
            continue
        product = products.get(sums.operands[0])
        if product is None or result[product] is not instructions[product]:
            continue
        first, second = sorted((product, step))
        if _may_move_up(instructions[second], first, second, uses):
            result[second] = None
            result[first] = _one(program, instructions[product], sums)
    return program.with_instructions([instruction for instruction in result if instruction is not None])


def _is_gradient(instruction: Instruction) -> bool:
    """Whether it is a product x^T @ dy of matrices."""
    if instruction.kernel != "matmul":
        return False
    _, dy, dweight = instruction.operands
    settings = instruction.settings
    is_plain = dy is not None and dweight is not None and len(dy.shape) == len(dweight.shape) == 2
    return is_plain and bool(settings["transpose_a"]) and not settings["transpose_b"]


def _may_move_up(instruction: Instruction, first: int, step: int, uses: Uses) -> bool:
    """Whether nothing from step `first` up to its own changes what it reads, or uses what it writes."""
    if any(uses.is_written(operand.block, first - 1, step - 1) for operand in instruction.reads):
        return False
    return not any(first <= use < step for operand in instruction.writes for use in uses.steps[operand.block])


def _one(program: Program, product: Instruction, sums: Instruction) -> Instruction:
    x, dy, dweight = product.operands
    return program.target.call(product, "linear_gradient", (x, dy, dweight, sums.operands[1]), {})
