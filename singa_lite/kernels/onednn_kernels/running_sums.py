"""Sums of activations piece upon piece, element by element, and of the parts of a piece.

A pass over memory from the front to the back is as fast as memory is, if what is added to stays in the caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from singa_lite.kernels.onednn_kernels import algorithms as a
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels import primitive as p
from singa_lite.kernels.onednn_kernels.columns import Columns
from singa_lite.kernels.onednn_kernels.primitive import PostOp, Primitive
from singa_lite.kernels.onednn_kernels.routine import Operand

#: Elements of a piece: its sum, and what is added to it, stay in the caches of the cores.
_PIECE = 1 << 18
#: Parts of a piece, and parts of those. Each begins where as many channels do, often at the same place of a page, and
#: of such places the first cache holds eight.
_PARTS = 7

#: Post-ops: the result is added to what is there; it is squared.
ACCUMULATE: PostOp = ("sum", 1.0, 0, 0)
SQUARE: PostOp = ("eltwise", a.SQUARE, 0.0, 0.0)


class Link(NamedTuple):
    """What is done with each element of a piece: an algorithm of two operands, the second one of this form."""

    algorithm: int
    form: p.Form
    operand: Operand


class RunningSums:
    """Adds steps over pieces of `rows` pixels, their parts and the parts of those, of `part_rows` pixels."""

    def __init__(self, columns: Columns) -> None:
        self._columns, self._work = columns, columns.work
        units = min(columns.rows // columns.unit, max(1, _PIECE // (columns.channels * columns.unit)))
        parts = -(-units // _PARTS)
        self.rows, *self.part_rows = (count * columns.unit for count in (units, parts, -(-parts // _PARTS)))
        #: With the forms, which are told apart by where they are.
        self._made: dict[Any, tuple[Primitive, tuple[p.Form, ...]]] = {}

    def pixels(self, tensor: Operand, start: int, count: int) -> Operand:
        """So many pixels of a tensor from that one on."""
        channels = self._columns.channels
        return self._work.part(tensor, start * channels, count * channels)

    def run(
        self, form: p.Form, source: Operand, links: Sequence[Link], ends: Sequence[PostOp], target: Operand
    ) -> None:
        """Add a step: the links over a source of this form, one after the other, then post-ops, into the target."""
        first, *others = links
        forms = form, *(link.form for link in links)
        key = *map(id, forms), *(link.algorithm for link in links), *ends
        if key not in self._made:
            post_ops = [*(("binary", link.algorithm, link.form) for link in others), *ends]
            primitive = self._work.make("binary", first.algorithm, form, first.form, form, post_ops=post_ops)
            self._made[key] = primitive, forms
        operands = {f.SRC: source, f.SRC_1: first.operand, f.DST: target}
        operands |= {f.post_op(index): link.operand for index, link in enumerate(others)}
        self._work.run(self._made[key][0], operands)

    def fold(self, tensor: Operand, start: int, count: int, part: int, total: Operand) -> None:
        """Add steps: so many pixels of a tensor from that one on are added to the total, `part` of them at a time."""
        whole, rest = divmod(count, part)
        if whole:
            self._add_up(tensor, range(start, start + whole * part, part), part, total)
        if rest:
            self._add_up(tensor, [start + whole * part], rest, total)

    def _add_up(self, tensor: Operand, starts: Sequence[int], count: int, total: Operand) -> None:
        form = self._columns.piece_form(count)
        first, *others = (self.pixels(tensor, start, count) for start in starts)
        if others:
            self.run(form, first, [Link(a.ADD, form, other) for other in others], [ACCUMULATE], total)
        else:
            self.run(form, first, [Link(a.ADD, form, total)], [], total)
