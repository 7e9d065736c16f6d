"""Own parts: a large gradient of which each rank updates its part is made, summed and applied by strips of all parts.

    recorded:   g = x^T @ dy;   own part of g = sum;   adam(own part of g, own part of w)
    here:       t = some rows of x^T @ dy of each rank's part;   own rows of t = sum;   adam(own rows of t, ... of w)

So it never exists whole, as `tiles.py` has it for one process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from singa_lite.common.strides import laid_out
from singa_lite.compiler.ir.collectives import BEGIN, WAIT, has_any, in_line, kind_of, parts_in, values_of
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program, narrow
from singa_lite.compiler.ranks.in_pieces import strips, summed
from singa_lite.compiler.rewrite.tiles import PRODUCTS, Tiling
from singa_lite.kernels.collective import collective_of
from singa_lite.kernels.interface import SIGNATURES

#: With more ranks a strip would be made by too many small products.
MOST_RANKS = 64


class _OwnedSum(NamedTuple):
    """begin, end: steps of the sum; updates: steps of what uses this rank's part."""

    begin: int
    end: int
    updates: Sequence[int]


def made_by_strips(program: Program) -> Program:
    """Split each product that only makes a large gradient of which this rank needs its part, the sum, and the updates.

    It is a matrix product, or the gradient of a table of embeddings, of which each rank has whole rows (`Collective`).
    """
    return _OwnParts(program).result() if has_any(program) else program


class _OwnParts(Tiling):
    """Cuts the gradients of which this rank updates its part."""

    def moved(self, step: int, product: Instruction) -> dict[int, list[Instruction]]:
        """As of tiles: the strips at the step of the last update, or of the end of the sum where there is none."""
        found = self._found(step, product)
        if found is None:
            return {}
        gone = [step, found.begin, found.end, *found.updates]
        return {**{one: [] for one in gone}, gone[-1]: list(self._strips(product, found))}

    def _found(self, step: int, product: Instruction) -> _OwnedSum | None:
        if product.kernel not in PRODUCTS:
            return None
        a, b, gradient = product.operands
        if a is None or b is None or gradient is None or not self.is_large(gradient):
            return None
        first, *users = self.uses.steps[gradient.block]
        if first != step or len(users) < 2 or not self._is_own_part(users[0], users[1], product):
            return None
        begin, end, *updates = users
        if updates != [*range(end + 1, end + 1 + len(updates))]:
            return None
        if not all(self._takes_own(self.instructions[one], self.instructions[begin]) for one in updates):
            return None
        changed = any(self.uses.is_changed(block, step + 1, users[-1]) for block in (a.block, b.block))
        return None if changed else _OwnedSum(begin, end, updates)

    def _is_own_part(self, begin: int, end: int, product: Instruction) -> bool:
        """Whether this is a sum of all that the product makes, of which each rank has whole rows."""
        first, gradient, axis = self.instructions[begin], product.writes[0], self.axis(product)
        if (kind_of(first), kind_of(self.instructions[end])) != (BEGIN, WAIT):
            return False
        call = collective_of(first.settings)
        has_rows = call.of_own_part and call.ranks <= MOST_RANKS and call.unit == gradient.shape[1 - axis]
        may_be_cut = axis == 0 or product.kernel == "matmul"
        return has_rows and may_be_cut and values_of(first).nbytes == gradient.nbytes

    def _takes_own(self, update: Instruction, begin: Instruction) -> bool:
        """Whether it is an update by this rank's part, element by element, or keeps it, as for a norm of all."""
        own = self._own(begin)
        taken = [operand for operand in update.operands if operand is not None and operand.block == own.block]
        return taken == [own] and (update.kernel == "copy" or SIGNATURES[update.kernel].facts.by_elements)

    def _own(self, begin: Instruction) -> Operand:
        """This rank's part of what is summed."""
        call = collective_of(begin.settings)
        return in_line(values_of(begin), parts_in(begin)[call.rank])

    def _strips(self, product: Instruction, found: _OwnedSum) -> Iterator[Instruction]:
        begin, end = self.instructions[found.begin], self.instructions[found.end]
        rank = collective_of(begin.settings).rank
        own, start = self._own(begin), parts_in(begin)[rank].start
        for strip in strips(self.make, begin, self.tile_bytes):
            for other, cut in enumerate(strip.cuts):
                if cut.stop > cut.start:
                    yield from self._rows(product, cut, strip.place(other))
            yield from summed(self.make, begin, end, strip.memory)
            mine = slice(strip.cuts[rank].start - start, strip.cuts[rank].stop - start)
            if mine.stop > mine.start:
                for update in found.updates:
                    yield from self._update_of(self.instructions[update], own, strip.place(rank), mine)

    def _rows(self, product: Instruction, cut: slice, place: Operand) -> Iterator[Instruction]:
        """What makes a rank's rows, elements of the gradient, in their place."""
        axis, gradient = self.axis(product), product.writes[0]
        row = gradient.shape[1 - axis]
        start, stop = cut.start // row, cut.stop // row
        shape = (stop - start, row) if axis == 0 else (row, stop - start)
        strides = laid_out(shape, (axis, 1 - axis), gradient.dtype.itemsize)
        yield from self.made(product, place._replace(shape=shape, strides=strides), axis, start, stop)

    def _update_of(self, update: Instruction, own: Operand, summed: Operand, cut: slice) -> Iterator[Instruction]:
        """The update of elements of this rank's part, by their sums."""
        pieces = [summed if operand == own else _cut(operand, own, cut) for operand in update.operands]
        yield from self.counted(update, pieces, cut.stop == own.shape[0])


def _cut(operand: Operand | None, own: Operand, cut: slice) -> Operand | None:
    """What goes with these elements of this rank's part: of all that has its shape."""
    return operand if operand is None or operand.shape != own.shape else narrow(operand, 0, cut.start, cut.stop)
