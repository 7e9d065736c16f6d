"""Concatenation without copies: producers write straight into their piece of the whole.

A concatenation is recorded as copies, and while it is copied, each block is there twice:

    a -> [AAA]   --copy-->  [AAA|   ]               a -> [AAA|   ]
    b -> [BBB]   --copy-->  [   |BBB]     becomes   b -> [   |BBB]
         two blocks, and the whole                       the whole alone, written piece by piece

The blocks of a and b become views of the whole, in the strides of its rows, and the copies go. Where a whole is itself
copied into a larger one, it becomes a piece in turn, so that all of a densely connected net ends in one block: k layers
then hold k pieces instead of 1 + 2 + ... + k.

Why a pass, and not layers that are handed views to write into: a layer does not know who takes its output, and what
decides is all of the block's users, forward and backward, which only the record has.

Why so many conditions: who used the block now uses a view with other strides. That must be possible (no user sees the
block reshaped), must change no bit (a library may sum in another order for other strides, so the target is asked), and
must keep every read (each byte of the whole has one writer).

Why forms with copies stay as rivals: the whole is there from its first piece on, perhaps long before all are, and
then copies may cost less. Which it is depends on the order, so `order` decides. And values that lie in one block can
only be dropped together, so within a limit copies may take less time. So some of the wholes are left to copies: first
the largest alone, as it holds most bytes, then the next one too, and so on to all of them.

Inference engines do this too, for the forward pass (OpenVINO calls it in-place concat).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

from singa_lite.common.strides import laid_out, memory_order
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.tensor import Shape

#: Forms of a program at most, from all concatenations in place to all by copies, and its length above which there are
#: these two alone.
FORMS, MOST_INSTRUCTIONS = 5, 4000


def assembled_in_place(program: Program) -> Program:
    """Leave out each copy of a whole block into a piece of another; the first block becomes that piece.

    That holds for the pieces of a concatenation, and for chains of them (a densely connected net: all in one
    block), with the axes in any order in memory. The copied block must be an intermediate without gaps that is used
    only through views in its own layout, by kernels whose results its new strides cannot change, and not written
    after the copy. The other block must be written by such copies only, each to bytes of its own, and its axes lie
    in the same order.

    The target says which kernels' results may depend on any strides, so that no operand of theirs moves but those that
    it names, and which may where other strides change than that of axis 0. What has moved asks it again for scratch. A
    whole that is there from its first piece on may cost more than the copies: forms in which the largest wholes are
    left to copies are rivals of the result, with ever more of them; the last one is the program as it was.
    """
    assembly = _Assembly(program)
    if not assembly.taken:
        return program
    wholes = sorted(assembly.taken.items(), key=lambda entry: (-program.sizes[entry[0]], entry[0]))
    some = []
    for count in _rungs(program, len(wholes)):
        steps = [step for _, taken in wholes[:count] for step in taken]
        form = _Assembly(program, assembly.free, steps).result()
        some.append(replace(form, order=f"{program.order}, with some copies"))
    rivals = (*program.rivals, *some, replace(program, order=f"{program.order}, with copies"))
    return replace(assembly.result(), rivals=rivals)


def _rungs(program: Program, wholes: int) -> list[int]:
    """How many of the wholes are left to copies, in each form but the first and the last."""
    count = min(wholes, FORMS - 1) if len(program.instructions) <= MOST_INSTRUCTIONS else 1
    return [wholes * rung // count for rung in range(1, count)]


class _Assembly:
    """A program whose copies are left out. but: steps of copies that stay; free: what the target said before.

    taken: {block of a whole: the copies that became pieces of it}.
    """

    def __init__(
        self, program: Program, free: dict[int, Collection[str]] | None = None, but: Collection[int] = ()
    ) -> None:
        self.program = program
        self.target = program.target
        self.instructions = dict(enumerate(program.instructions))  # by step, those that stay
        self.uses: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.writers: dict[int, set[int]] = defaultdict(set)
        self.allowed: dict[int, set[int]] = defaultdict(set)
        self.free: dict[int, Collection[str]] = {} if free is None else free
        self.taken: dict[int, list[int]] = {}
        for step, instruction in enumerate(program.instructions):
            for index, operand in enumerate(instruction.operands):
                if operand is not None:
                    self.uses[operand.block].append((step, index))
            for operand in instruction.writes:
                self.writers[operand.block].add(step)
            if instruction.kernel == "copy":
                self.allowed[instruction.writes[0].block].add(step)
        for step, instruction in enumerate(program.instructions):
            if instruction.kernel == "copy" and step not in but:
                self._try(step)

    def result(self) -> Program:
        """The program without them, and without rivals."""
        kept = tuple(self._asked(step, instruction) for step, instruction in self.instructions.items())
        return replace(self.program, instructions=kept, rivals=())

    def _try(self, step: int) -> None:
        (source,), (piece,) = self.instructions[step].reads, self.instructions[step].writes
        if not self._fits(step, source, piece):
            return
        del self.instructions[step]
        whole = piece.block
        self.taken.setdefault(whole, []).extend([*self.taken.pop(source.block, []), step])
        self.writers[whole].discard(step)
        for user, index in self.uses.pop(source.block):
            if user != step:
                self._move(user, index, source, piece)
                self.uses[whole].append((user, index))
        self.uses[whole] = [use for use in self.uses[whole] if use[0] != step]
        self.writers[whole] |= self.writers[source.block]
        self.allowed[whole] |= self.writers.pop(source.block)

    def _fits(self, step: int, source: Operand, piece: Operand) -> bool:
        sizes = self.program.sizes
        if source.block not in sizes or piece.block not in sizes or source.block == piece.block:
            return False
        is_whole = source.offset == 0 and source.nbytes == sizes[source.block]
        if not is_whole or source.shape != piece.shape or source.dtype != piece.dtype or 0 in source.shape:
            return False
        order = memory_order(source.shape, source.strides)
        if not _lie_alike(source, laid_out(source.shape, order, source.dtype.itemsize)):
            return False
        if memory_order(piece.shape, piece.strides) != order:
            return False
        if not self.writers[piece.block] <= self.allowed[piece.block] or not self._is_alone(step, piece):
            return False
        if any(writer > step for writer in self.writers[source.block]):
            return False
        uses = [(user, index) for user, index in self.uses[source.block] if user != step]
        outer_alone = source.strides[1:] == piece.strides[1:]
        particular = self.target.strides_matter if outer_alone else self.target.inner_strides_matter
        return all(self._is_plain(user, index, source, particular) for user, index in uses)

    def _is_alone(self, step: int, piece: Operand) -> bool:
        """Whether no other instruction writes bytes of the piece."""
        return all(
            are_disjoint(piece, operand)
            for writer in self.writers[piece.block] - {step}
            for operand in self.instructions[writer].writes
            if operand.block == piece.block
        )

    def _is_plain(self, user: int, index: int, source: Operand, particular: Collection[str]) -> bool:
        """Whether an operand sees its block in the block's own layout, perhaps only a part of it.

        particular: kernels whose results the strides may change.
        """
        instruction, operand = self.instructions[user], self.instructions[user].operands[index]
        if operand is None:
            return True
        if instruction.kernel in particular and not self._is_free(user, index):
            return False
        if operand.dtype != source.dtype or len(operand.shape) != len(source.shape):
            return False
        # Equal strides are not enough: of a column (3, 1), the transpose (1, 3) has the same.
        begin = _indices(operand, source.strides, _falling(source))
        inside = all(i + extent <= limit for i, extent, limit in zip(begin, operand.shape, source.shape, strict=True))
        return inside and _lie_alike(operand, source.strides)

    def _is_free(self, step: int, index: int) -> bool:
        """Whether the strides of this operand change no bit. Asked once: to tell for other strides takes long."""
        given = self.program.instructions[step]
        if step not in self.free:
            self.free[step] = self.target.free_of_strides(given.kernel, given.operands, given.settings)
        return SIGNATURES[given.kernel].tensors[index] in self.free[step]

    def _asked(self, step: int, moved: Instruction) -> Instruction:
        """The instruction with the scratch that it needs where its operands are now."""
        if moved is self.program.instructions[step]:
            return moved
        return self.target.call(moved, moved.kernel, moved.operands, moved.settings)

    def _move(self, user: int, index: int, source: Operand, piece: Operand) -> None:
        instruction, operand = self.instructions[user], self.instructions[user].operands[index]
        if operand is None:
            return
        begin = _indices(operand, source.strides, _falling(source))
        offset = piece.offset + sum(index * stride for index, stride in zip(begin, piece.strides, strict=True))
        moved = Operand(piece.block, operand.shape, operand.dtype, piece.strides, offset)
        operands = (*instruction.operands[:index], moved, *instruction.operands[index + 1 :])
        self.instructions[user] = instruction.with_operands(operands)


def _lie_alike(operand: Operand, strides: Shape) -> bool:
    """Whether these are its strides, but for axes of extent 1, whose strides say nothing."""
    return all(e == 1 or s == t for e, s, t in zip(operand.shape, operand.strides, strides, strict=True))


def _falling(*operands: Operand) -> list[int]:
    """The axes of operands with the same strides, by falling stride; of equal ones, those of larger extent first."""
    strides = operands[0].strides
    extents = [max(extents) for extents in zip(*(operand.shape for operand in operands), strict=True)]
    return sorted((axis for axis, stride in enumerate(strides) if stride), key=lambda a: (-strides[a], -extents[a]))


def _indices(operand: Operand, strides: Shape, order: Sequence[int]) -> list[int]:
    """Where the operand begins along each axis of a layout with these strides, which fall in this order."""
    indices, rest = [0] * len(strides), operand.offset
    for axis in order:
        indices[axis], rest = divmod(rest, strides[axis])
    return indices


def are_disjoint(a: Operand, b: Operand) -> bool:
    """Whether two views of a block share no byte; False where that is not easily seen."""
    if a.stop <= b.offset or b.stop <= a.offset:
        return True
    if a.strides != b.strides:
        return False
    order = _falling(a, b)
    if not (_is_box(a, order) and _is_box(b, order)):
        return False
    begin, other_begin = _indices(a, a.strides, order), _indices(b, b.strides, order)
    return any(
        begin[axis] + a.shape[axis] <= other_begin[axis] or other_begin[axis] + b.shape[axis] <= begin[axis]
        for axis in order
    )


def _is_box(operand: Operand, order: Sequence[int]) -> bool:
    """Whether the operand stays within the extents that its strides imply, which fall in this order."""
    begin = _indices(operand, operand.strides, order)
    return all(
        begin[inner] + operand.shape[inner] <= operand.strides[outer] // operand.strides[inner]
        for outer, inner in pairwise(order)
    )
