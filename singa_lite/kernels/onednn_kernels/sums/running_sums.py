"""Running sums of activations: pieces are added up element by element, then parts of the sum, then lines of a part.

    tensor:  | piece | piece | piece | ...      many pieces become a sum as long as one of them, at most 2**18 elements;
    piece:   | part | part |  ...  | part |     its 7 parts become one, and
    part:    | line | line |  ...  | line |     the 7 lines of that become one:
    line:    a 49th of a piece, few enough numbers to be added up in float64

Each pass goes through memory from the front to the back, which is as fast as memory is, and what it adds to is small
enough to stay in the caches. The sums of single channels, which would jump through memory, are left to the end.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from singa_lite.kernels.onednn_kernels.library import algorithms as a
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.primitive import PostOp, Primitive
from singa_lite.kernels.onednn_kernels.pieces import piece_size
from singa_lite.kernels.onednn_kernels.pitched import SCRATCH, Span
from singa_lite.kernels.onednn_kernels.routine import BufferView
from singa_lite.kernels.onednn_kernels.sums.columns import Columns

#: Elements of a piece at most: its sum, and what is added to it, stay in the caches of the cores.
_PIECE = SCRATCH
#: Parts of a piece, and lines of a part. They are read side by side, and often begin at the same offset in a page: of
#: such addresses the first cache holds eight, the seven that are read and the sum.
_PARTS = 7

#: Post-ops: the result is added to what is there; it is squared.
ACCUMULATE: PostOp = ("sum", 1.0, 0, 0)
SQUARE: PostOp = ("eltwise", a.SQUARE, 0.0, 0.0)


class Link(NamedTuple):
    """What is done with each element of some pixels: an algorithm of two operands, the second one as `desc` says."""

    algorithm: int
    desc: p.MemoryDesc
    operand: BufferView


class RunningSums:
    """Adds steps that sum activations. piece, part, line: pixels of each."""

    def __init__(self, columns: Columns) -> None:
        self._columns, self._work = columns, columns.work
        units = piece_size(columns.pixels // columns.unit, max(1, _PIECE // (columns.channels * columns.unit)))
        units_of_part = -(-units // _PARTS)
        self.piece = units * columns.unit
        self.part = units_of_part * columns.unit
        self.line = -(-units_of_part // _PARTS) * columns.unit
        #: By algorithms, post-ops and the descriptors. These have no hash: they are told apart by `id`, and kept.
        self._made: dict[Hashable, tuple[Primitive, tuple[p.MemoryDesc, ...]]] = {}

    def run(
        self, desc: p.MemoryDesc, source: BufferView, links: Sequence[Link], ends: Sequence[PostOp], target: BufferView
    ) -> None:
        """Add a step: the source goes through the links, one after the other, then the post-ops, into the target."""
        first, *others = links
        descs = desc, *(link.desc for link in links)
        key = *map(id, descs), *(link.algorithm for link in links), *ends
        if key not in self._made:
            post_ops = [*(("binary", link.algorithm, link.desc) for link in others), *ends]
            primitive = self._work.make("binary", first.algorithm, desc, first.desc, desc, post_ops=post_ops)
            self._made[key] = primitive, descs
        operands = {f.SRC: source, f.SRC_1: first.operand, f.DST: target}
        operands |= {f.post_op(index): link.operand for index, link in enumerate(others)}
        self._work.run(self._made[key][0], operands)

    def fold(self, tensor: BufferView, span: Span, pixels: int, total: BufferView) -> None:
        """Add steps: the span of a tensor is cut into parts of so many pixels, which are added to the total.

        The last part may be shorter. It is added to the front of the total.
        """
        whole, rest = divmod(span.length, pixels)
        parts = [Span(span.start + index * pixels, pixels) for index in range(whole)]
        if parts:
            self._add_up(tensor, parts, total)
        if rest:
            self._add_up(tensor, [Span(span.start + whole * pixels, rest)], total)

    def _add_up(self, tensor: BufferView, parts: Sequence[Span], total: BufferView) -> None:
        """Add a step: the total and these parts of one length become the total."""
        desc = self._columns.part_desc(parts[0].length)
        first, *others = (self._columns.part(tensor, part) for part in parts)
        if others:
            self.run(desc, first, [Link(a.ADD, desc, other) for other in others], [ACCUMULATE], total)
        else:
            self.run(desc, first, [Link(a.ADD, desc, total)], [], total)
