"""ReLU behind max pooling instead of before it: the same values, and the larger tensor need not be kept.

max(relu(a), relu(b)) = relu(max(a, b)), to the bit. Going back, a window whose maximum is not above 0 passes nothing on
either way, and in any other the winner is the same element. What the derivative of the ReLU reads is then the pooled
tensor, which the layer behind keeps anyway, so the one before pooling, often four times as large, dies at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from singa_lite.operation import Instruction, Operand
from singa_lite.passes.tiles import ScratchRule
from singa_lite.passes.uses import Uses

#: Activations that rise and are flat only where they pass nothing back.
_ACTIVATIONS = ("relu", "relu6")


class _Places(NamedTuple):
    """Of the activation, the pooling, and their derivatives, -1 where the record has none."""

    activation: int
    pooling: int
    pooling_derivative: int
    derivative: int


def pool_first(
    instructions: Sequence[Instruction], sizes: dict[int, int], scratch: ScratchRule, next_block: int
) -> tuple[list[Instruction], dict[int, int]]:
    """Exchange each ReLU, and its derivative, with the max pooling behind it, if nothing else uses its result.

    sizes: {intermediate block: bytes}; next_block: the number from which on blocks are not in use. Returns the
    instructions and the sizes with those of the new blocks.
    """
    uses, sizes = Uses(instructions), dict(sizes)
    result: list[list[Instruction]] = [[instruction] for instruction in instructions]
    for place, instruction in enumerate(instructions):
        places = _found(place, instructions, uses, sizes) if instruction.kernel == "max_pool2d" else None
        if places is not None:
            next_block = _exchange(places, instructions, result, sizes, scratch, next_block)
    return [instruction for some in result for instruction in some], sizes


def _found(place: int, instructions: Sequence[Instruction], uses: Uses, sizes: dict[int, int]) -> _Places | None:
    y, pooled, index = instructions[place].operands
    if y is None or pooled is None or y.block not in sizes or len(uses.writers[y.block]) != 1:
        return None
    first = uses.writers[y.block][0]
    activation = instructions[first]
    if activation.kernel not in _ACTIVATIONS or activation.operands[1] != y:
        return None
    x = activation.operands[0]
    if x is None or x.block == y.block or uses.is_written(x.block, first, place):
        return None
    others = [other for other in uses.places[y.block] if other not in (first, place)]
    if not others:
        return _Places(first, place, -1, -1)
    if len(others) > 1 or index is None or uses.writers[pooled.block] != [place]:
        return None
    back = _way_back(others[0], f"{activation.kernel}_derivative", y, index, instructions, uses, sizes)
    return None if back is None else _Places(first, place, *back)


def _way_back(
    place: int,
    kernel: str,
    y: Operand,
    index: Operand,
    instructions: Sequence[Instruction],
    uses: Uses,
    sizes: dict[int, int],
) -> tuple[int, int] | None:
    """Places of the pooling's derivative and of the activation's behind it, at `place`."""
    derivative = instructions[place]
    if derivative.kernel != kernel or derivative.operands[1] != y:
        return None
    dy = derivative.operands[0]
    if dy is None or dy.block not in sizes or len(uses.places[dy.block]) != 2:
        return None
    before = uses.places[dy.block][0]
    pooling = instructions[before]
    if pooling.kernel != "max_pool2d_derivative" or pooling.operands[1:] != (index, dy):
        return None
    given = pooling.operands[0]
    if given is None or any(uses.is_written(block, before, place) for block in (given.block, index.block)):
        return None
    return before, place


def _exchange(
    places: _Places,
    instructions: Sequence[Instruction],
    result: list[list[Instruction]],
    sizes: dict[int, int],
    scratch: ScratchRule,
    next_block: int,
) -> int:
    """Put the exchanged instructions into `result`, the new blocks into `sizes`; the next free number of a block."""

    def like(operand: Operand) -> Operand:
        nonlocal next_block
        made = operand._replace(block=next_block, offset=0)
        sizes[next_block], next_block = operand.nbytes, next_block + 1
        return made

    def over(instruction: Instruction, *operands: Operand | None) -> Instruction:
        moved = instruction.with_operands(operands)
        moved.scratch_bytes = scratch(moved.kernel, operands, moved.settings)
        return moved

    activation, pooling = instructions[places.activation], instructions[places.pooling]
    x, (y, pooled, index) = activation.operands[0], pooling.operands
    if y is None or pooled is None:
        return next_block
    raw = like(pooled)
    result[places.activation] = []
    result[places.pooling] = [over(pooling, x, raw, index), over(activation, raw, pooled)]
    del sizes[y.block]
    if places.derivative >= 0:
        derivative, spread = instructions[places.derivative], instructions[places.pooling_derivative]
        given, dx, dy = spread.operands[0], derivative.operands[2], derivative.operands[0]
        if given is not None and dy is not None:
            masked = like(given)
            result[places.pooling_derivative] = []
            result[places.derivative] = [over(derivative, given, pooled, masked), over(spread, masked, index, dx)]
            del sizes[dy.block]
    return next_block
