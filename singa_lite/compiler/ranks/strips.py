"""Strips: a few elements of each rank's part of a gradient, which are summed together.

    gradient   | part of rank 0 | part of rank 1 | part of rank 2 |
    strip 0     ==               ==               ==
    strip 1       ==               ==               ==

`parts_of` divides a strip among the ranks as it divides the gradient. A sum that would be more than may be under way
goes strip by strip, each copied beside the gradient; `own_parts.py` does more where it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from singa_lite.compiler.ir.collectives import in_line, landing, nbytes_of, parts_in, values_of
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.rewriter import Rewriter
from singa_lite.kernels.collective import Collective, collective_of

#: Into how many strips a gradient is cut at most.
MOST_STRIPS = 256
#: Of what may be under way, a strip takes this part, and so does what comes from the others: two are under way.
OF_FLIGHT = 4


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


def summed(make: Rewriter, begin: Instruction, end: Instruction, strip: Strip) -> Iterator[Instruction]:
    """The sum of what is in a strip's memory."""
    operands = strip.memory, landing(make, begin, strip.memory), begin.operands[2]
    yield make.call(begin, operands)
    yield make.call(end, operands)


def is_too_much(begin: Instruction) -> bool:
    """Whether a sum that leaves each rank its part is more than may be under way."""
    call = collective_of(begin.settings)
    return call.of_own_part and nbytes_of(begin) > call.in_flight_bytes


def summed_by_strips(make: Rewriter, begin: Instruction, end: Instruction, tile_bytes: int) -> Iterator[Instruction]:
    """The sum strip by strip, each copied beside the whole."""
    rank, values = collective_of(begin.settings).rank, values_of(begin)
    for strip in strips(make, begin, tile_bytes):
        for other, cut in enumerate(strip.cuts):
            if cut.stop > cut.start:
                yield make.call(begin, (in_line(values, cut), strip.place(other)), "copy", {})
        yield from summed(make, begin, end, strip)
        own = strip.cuts[rank]
        if own.stop > own.start:
            yield make.call(end, (strip.place(rank), in_line(values, own)), "copy", {})
