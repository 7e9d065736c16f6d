"""ReLU behind max pooling instead of before it: the same values, and the larger tensor need not be kept.

max(relu(a), relu(b)) = relu(max(a, b)), to the bit. Going back, a window whose maximum is not above 0 passes nothing on
either way, and in any other the winner is the same element. What the derivative of the ReLU reads is then the pooled
tensor, which the layer behind keeps anyway, so the one before pooling, often four times as large, dies at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from singa_lite.kernels.interface import SIGNATURES
from singa_lite.operation import Instruction, Operand
from singa_lite.passes.program import Program
from singa_lite.passes.uses import Uses


class _Steps(NamedTuple):
    """Steps of the activation, of the pooling, and of their derivatives, -1 where the record has none."""

    activation: int
    pooling: int
    pooling_derivative: int
    derivative: int


def pool_first(program: Program) -> Program:
    """Exchange each ReLU, and its derivative, with the max pooling behind it, if nothing else uses its result."""
    exchange = _Exchange(program)
    for step, instruction in enumerate(program.instructions):
        steps = _found(step, program, exchange.uses, exchange.sizes) if instruction.kernel == "max_pool2d" else None
        if steps is not None:
            exchange.do(steps)
    return exchange.result()


def _found(step: int, program: Program, uses: Uses, sizes: dict[int, int]) -> _Steps | None:
    instructions = program.instructions
    y, pooled, index = instructions[step].operands
    if y is None or pooled is None or y.block not in sizes or len(uses.writers[y.block]) != 1:
        return None
    first = uses.writers[y.block][0]
    activation = instructions[first]
    if not SIGNATURES[activation.kernel].facts.commutes_with_max or activation.operands[1] != y:
        return None
    x = activation.operands[0]
    if x is None or x.block == y.block or uses.is_written(x.block, first, step):
        return None
    others = [other for other in uses.steps[y.block] if other not in (first, step)]
    if not others:
        return _Steps(first, step, -1, -1)
    if len(others) > 1 or index is None or uses.writers[pooled.block] != [step]:
        return None
    back = _way_back(others[0], f"{activation.kernel}_derivative", y, index, instructions, uses, sizes)
    return None if back is None else _Steps(first, step, *back)


def _way_back(
    step: int,
    kernel: str,
    y: Operand,
    index: Operand,
    instructions: Sequence[Instruction],
    uses: Uses,
    sizes: dict[int, int],
) -> tuple[int, int] | None:
    """Steps of the pooling's derivative and of the activation's behind it, at `step`."""
    derivative = instructions[step]
    if derivative.kernel != kernel or derivative.operands[1] != y:
        return None
    dy = derivative.operands[0]
    if dy is None or dy.block not in sizes or len(uses.steps[dy.block]) != 2:
        return None
    before = uses.steps[dy.block][0]
    pooling = instructions[before]
    if pooling.kernel != "max_pool2d_derivative" or pooling.operands[1:] != (index, dy):
        return None
    given = pooling.operands[0]
    if given is None or any(uses.is_written(block, before, step) for block in (given.block, index.block)):
        return None
    return before, step


class _Exchange:
    """The program's instructions and sizes with what has been exchanged so far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.uses = Uses(program.instructions)
        self.sizes = dict(program.sizes)
        self.next_block = program.next_block
        self.made: dict[int, list[Instruction]] = {}  # step: what stands there instead

    def result(self) -> Program:
        if not self.made:
            return self.program
        kept = (self.made.get(step, [given]) for step, given in enumerate(self.program.instructions))
        made = tuple(instruction for some in kept for instruction in some)
        return replace(self.program, instructions=made, sizes=self.sizes)

    def do(self, steps: _Steps) -> None:
        """Exchange the activation with the pooling, and the derivatives with each other if there are any."""
        instructions = self.program.instructions
        activation, pooling = instructions[steps.activation], instructions[steps.pooling]
        x, (y, pooled, index) = activation.operands[0], pooling.operands
        if y is None or pooled is None:
            return
        raw = self._like(pooled)
        self.made[steps.activation] = []
        self.made[steps.pooling] = [self._over(pooling, x, raw, index), self._over(activation, raw, pooled)]
        del self.sizes[y.block]
        if steps.derivative >= 0:
            self._exchange_back(steps, pooled, index)

    def _exchange_back(self, steps: _Steps, pooled: Operand, index: Operand | None) -> None:
        instructions = self.program.instructions
        derivative, spread = instructions[steps.derivative], instructions[steps.pooling_derivative]
        given, dx, dy = spread.operands[0], derivative.operands[2], derivative.operands[0]
        if given is None or dy is None:
            return
        masked = self._like(given)
        self.made[steps.pooling_derivative] = []
        self.made[steps.derivative] = [
            self._over(derivative, given, pooled, masked),
            self._over(spread, masked, index, dx),
        ]
        del self.sizes[dy.block]

    def _like(self, operand: Operand) -> Operand:
        """A block of its own for what lies as the operand."""
        made = operand._replace(block=self.next_block, offset=0)
        self.sizes[made.block], self.next_block = operand.nbytes, self.next_block + 1
        return made

    def _over(self, instruction: Instruction, *operands: Operand | None) -> Instruction:
        return self.program.target.call(instruction, instruction.kernel, operands, instruction.settings)
