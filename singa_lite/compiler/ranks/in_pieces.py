"""Large gradients are summed over the ranks in pieces, so that what comes from the others needs little memory.

    whole:      begin G             wait G           update G
    in pieces:  begin G0, wait G0, begin G1, wait G1, ...     update G

`tiles.py` does more where it can: there the gradient itself never exists whole. Which pieces there are goes by the
gradient's shape alone, here and there, and not by the batch: ranks that have batches of unequal sizes plan equal sums.

A strip is a few elements of each rank's part of a gradient, which are summed together:

    gradient   | part of rank 0 | part of rank 1 | part of rank 2 |
    strip 0     ==               ==               ==
    strip 1       ==               ==               ==

`parts_of` divides a strip among the ranks as it divides the gradient. A sum that would be more than may be under way
goes strip by strip, each copied beside the gradient; `own_parts.py` does more where it can.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from singa_lite.common.strides import memory_order
from singa_lite.compiler.ir.collectives import (
    BEGIN,
    WAIT,
    has_any,
    in_line,
    kind_of,
    landing,
    nbytes_of,
    parts_in,
    values_of,
)
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program, Rewriter, narrow
from singa_lite.kernels.collective import Collective, collective_of
from singa_lite.kernels.interface import SIGNATURES

#: Into how many strips a gradient is cut at most.
MOST_STRIPS = 256
#: Of what may be under way, a strip takes this part, and so does what comes from the others: two are under way.
OF_FLIGHT = 4
#: Sums of fewer pieces stay whole.
LEAST_PIECES = 4


class Strip(NamedTuple):
    """cuts: by rank, the elements of the gradient, as they lie in memory; memory: where they are side by side."""

    cuts: Sequence[slice]
    memory: Operand

    def place(self, rank: int) -> Operand:
        """Where a rank's elements are."""
        start = sum(cut.stop - cut.start for cut in self.cuts[:rank])
        return in_line(self.memory, slice(start, start + self.cuts[rank].stop - self.cuts[rank].start))


def strips(make: Rewriter, begin: Instruction, tile_bytes: int) -> Iterator[Strip]:
    """The strips of a sum that leaves each rank its part, by its beginning. tile_bytes: of a tile of a gradient.

    A rank has at least a quarter of a tile in each.
    """
    call, values, parts = collective_of(begin.settings), values_of(begin), parts_in(begin)
    for cuts in cuts_of(parts, _width(call, values, parts[0].stop, tile_bytes)):
        yield Strip(cuts, make.new_operand((sum(cut.stop - cut.start for cut in cuts),), values.dtype))


def cuts_of(parts: Sequence[slice], width: int) -> Iterator[list[slice]]:
    """Yields, turn by turn, `width` elements of each part, fewer at the end. Laid one behind the other, the pieces of a
    turn are what `parts_of` splits them into.
    """
    for start in range(0, parts[0].stop - parts[0].start, width):
        borders = [(part.start + start, part.stop) for part in parts]
        yield [slice(min(first, stop), min(first + width, stop)) for first, stop in borders]


def _width(call: Collective, values: Operand, largest: int, tile_bytes: int) -> int:
    """Elements of one rank in a strip, whole units."""
    wanted = min(max(tile_bytes // call.ranks, tile_bytes // 4), call.in_flight_bytes // (OF_FLIGHT * call.ranks))
    width = max(wanted // values.dtype.itemsize, -(-largest // MOST_STRIPS))
    return max(width // call.unit, 1) * call.unit


def summed(make: Rewriter, begin: Instruction, end: Instruction, values: Operand) -> Iterator[Instruction]:
    """The sum of these values in the place of those of a recorded one."""
    operands = values, landing(make, begin, values), begin.operands[2]
    yield make.call(begin, operands)
    yield make.call(end, operands)


def summed_in_pieces(program: Program) -> Program:
    """Cut each sum of at least LEAST_PIECES times the target's `tile_bytes`, along its outermost axis.

    One of a single gradient that leaves each rank its part is cut into strips, where it would be more than may be under
    way.
    """
    if not has_any(program):
        return program
    make, made = Rewriter(program), list[Instruction]()
    # Several small gradients are summed in blocks that are written in parts.
    writes = (operand for instruction in program.instructions for operand in instruction.writes)
    packed = {operand.block for operand in writes if operand.nbytes < program.sizes.get(operand.block, 0)}
    begun: dict[tuple[Operand | None, ...], Instruction] = {}  # by operands, the beginnings of sums that are cut
    for instruction in program.instructions:
        kind = kind_of(instruction)
        if kind not in (BEGIN, WAIT) or not _is_to_be_cut(instruction, packed, program.target.tile_bytes):
            made.append(instruction)
        elif kind == BEGIN:
            begun[instruction.operands] = instruction
        else:
            made += _in_pieces(make, begun[instruction.operands], instruction, program.target.tile_bytes)
    return make.program(made) if begun else program


def _is_to_be_cut(call: Instruction, packed: Collection[int], tile_bytes: int) -> bool:
    values = values_of(call)
    if SIGNATURES[call.kernel].facts.by_elements:
        return len(values.shape) > 1 and values.nbytes >= LEAST_PIECES * tile_bytes
    return _is_too_much(call) and values.block not in packed


def _is_too_much(begin: Instruction) -> bool:
    """Whether a sum that leaves each rank its part is more than may be under way."""
    call = collective_of(begin.settings)
    return call.of_own_part and nbytes_of(begin) > call.in_flight_bytes


def _in_pieces(make: Rewriter, begin: Instruction, end: Instruction, tile_bytes: int) -> Iterator[Instruction]:
    """Each begun where the whole is waited for, which is where it was begun until the pass `flight`."""
    rank, values = collective_of(begin.settings).rank, values_of(begin)
    if not _is_too_much(begin):
        axis = memory_order(values.shape, values.strides)[0]
        extent = values.shape[axis]
        rows = max(1, tile_bytes * extent // values.nbytes)
        for start in range(0, extent, rows):
            yield from summed(make, begin, end, narrow(values, axis, start, min(start + rows, extent)))
        return
    for strip in strips(make, begin, tile_bytes):  # each copied beside the whole
        for other, cut in enumerate(strip.cuts):
            if cut.stop > cut.start:
                yield make.call(begin, (in_line(values, cut), strip.place(other)), "copy", {})
        yield from summed(make, begin, end, strip.memory)
        own = strip.cuts[rank]
        if own.stop > own.start:
            yield make.call(end, (strip.place(rank), in_line(values, own)), "copy", {})
