"""Concatenation without copies: producers write straight into their piece of the whole."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from singa_lite.operation import Instruction, Operand
from singa_lite.passes.program import Program
from singa_lite.tensor import Shape, contiguous_strides


def assembled_in_place(program: Program) -> Program:
    """Leave out each copy of a whole block into a piece of another; the first block becomes that piece.

    That holds for the pieces of a concatenation, and for chains of them (a densely connected net: all in one
    block). The copied block must be an intermediate that is used only through views in its own layout and not
    written after the copy, and the other block must be written by such copies only.
    """
    return _Assembly(program).result()


class _Assembly:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.instructions: list[Instruction | None] = list(program.instructions)
        self.uses: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.writers: dict[int, set[int]] = defaultdict(set)
        self.allowed: dict[int, set[int]] = defaultdict(set)
        for place, instruction in enumerate(program.instructions):
            for position, operand in enumerate(instruction.operands):
                if operand is not None:
                    self.uses[operand.block].append((place, position))
            for operand in instruction.writes:
                self.writers[operand.block].add(place)
            if instruction.kernel == "copy":
                self.allowed[instruction.writes[0].block].add(place)

    def result(self) -> Program:
        for place, instruction in enumerate(self.program.instructions):
            if instruction.kernel == "copy":
                self._try(place)
        kept = [instruction for instruction in self.instructions if instruction is not None]
        return self.program.with_instructions(kept) if len(kept) < len(self.instructions) else self.program

    def _try(self, place: int) -> None:
        instruction = self.instructions[place]
        part, piece = instruction.operands if instruction is not None else (None, None)
        if part is None or piece is None or not self._fits(place, part, piece):
            return
        self.instructions[place] = None
        whole = piece.block
        self.writers[whole].discard(place)
        for user, position in self.uses.pop(part.block):
            if user != place:
                self._move(user, position, part, piece)
                self.uses[whole].append((user, position))
        self.uses[whole] = [use for use in self.uses[whole] if use[0] != place]
        self.writers[whole] |= self.writers[part.block]
        self.allowed[whole] |= self.writers.pop(part.block)

    def _fits(self, place: int, part: Operand, piece: Operand) -> bool:
        sizes = self.program.sizes
        if part.block not in sizes or piece.block not in sizes or part.block == piece.block:
            return False
        whole_part = part.offset == 0 and part.nbytes == sizes[part.block]
        if not whole_part or part.shape != piece.shape or part.dtype != piece.dtype or 0 in part.shape:
            return False
        if part.strides != contiguous_strides(part.shape, part.dtype):
            return False
        if not self.writers[piece.block] <= self.allowed[piece.block]:
            return False
        if any(writer > place for writer in self.writers[part.block]):
            return False
        return all(self._is_plain(user, position, part.strides) for user, position in self.uses[part.block])

    def _is_plain(self, user: int, position: int, strides: Shape) -> bool:
        """Whether an operand sees its block in the block's own layout, perhaps only a part of it."""
        instruction = self.instructions[user]
        operand = instruction.operands[position] if instruction is not None else None
        return operand is None or operand.strides == strides

    def _move(self, user: int, position: int, part: Operand, piece: Operand) -> None:
        instruction = self.instructions[user]
        operand = instruction.operands[position] if instruction is not None else None
        if instruction is None or operand is None:
            return
        offset, rest = piece.offset, operand.offset
        for inner, outer in zip(part.strides, piece.strides, strict=True):
            index, rest = divmod(rest, inner)
            offset += index * outer
        moved = Operand(piece.block, operand.shape, operand.dtype, piece.strides, offset)
        operands = (*instruction.operands[:position], moved, *instruction.operands[position + 1 :])
        self.instructions[user] = replace(instruction, operands=operands)
