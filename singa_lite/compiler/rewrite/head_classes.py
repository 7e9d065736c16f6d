"""The head by tiles of rows and of classes: neither the scores nor the gradient of a large weight exists whole.

    recorded:   z = x @ w;  losses, p = loss of z;  d = its derivative;  dx = d @ w^T;  dw = x^T @ d;  update of w
    here:       for some rows at a time: z, losses, lse = log of the sum of e**z, d and dx of these rows
                then, for some classes at a time: z = x @ w again;  d from z and lse;  dw = x^T @ d;  update of these

That is one product more, so it is done only where memory is short (`Target.class_tiles`). A table that an embedding
shares gets the rows that occur before each update, at the end of the step. Where clipping makes the gradient twice, for
the norm and for the update, the classes are gone through twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program, narrow
from singa_lite.compiler.rewrite.fusions import ADDED
from singa_lite.compiler.rewrite.head import Tiles, rows_of_tiles
from singa_lite.compiler.rewrite.scores import LOSS, Scores, parted, scores_of, sums
from singa_lite.compiler.rewrite.tiles import Tiling, has_blocks

DERIVATIVE, SMOOTHING, AGAIN = f"{LOSS}_derivative", "smooth_labels_derivative", "softmax_classes_derivative"
#: Bytes of the scores of a tile of classes, in times of the target's `tile_bytes`: of fewer, calls are many.
SCORES = 8
#: Kernels of which it matters how many calls there are.
_PARTS = "matmul", DERIVATIVE, SMOOTHING


class _Head(NamedTuple):
    """rows: the scores, without the gradients; gradients: {step of the product that makes one: those that use it up}.

    derivative: the step of the derivative by the scores; share: of smoothed labels.
    """

    rows: Scores
    gradients: dict[int, list[int]]
    derivative: int
    share: float


def by_tiles_of_classes(program: Program) -> Program:
    """Tiles of rows and then of classes, where the target wants them, in the place of each head with a large gradient.

    That holds for scores as in `scores.py`, with ids for targets, whose gradient only element-wise updates use, rows of
    a table that are added before these among them.
    """
    return _ClassTiling(program).result() if program.target.class_tiles else program


class _ClassTiling(Tiling):
    #: The head whose tiles are made.
    _head: _Head

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._log_sums: Operand | None = None
        self._large: frozenset[int] = frozenset()

    def result(self) -> Program:
        """The program with tiles in the place of each such head, and all else as it is."""
        placed = dict[int, list[Instruction]]()
        for step, instruction in enumerate(self.instructions):
            head = self._found(step) if instruction.kernel == LOSS and step not in placed else None
            order = None if head is None else parted(self.program, head.rows)
            if head is None or order is None:
                continue
            first, last = head.rows.steps[0], head.rows.steps[-1]
            used = {*head.gradients, *chain.from_iterable(head.gradients.values())}
            if placed.keys() & {*range(first, max(used) + 1)}:
                continue
            lead, behind = ([self.instructions[s] for s in steps if s not in used] for steps in order)
            self._head, self._log_sums = head, self.make.new_operand((head.rows.rows,), head.rows.scores.dtype)
            tiles = Tiles(self.program, head.rows, self.make, self._log_sums).calls()
            placed |= {step: [] for step in (*range(first, last + 1), *used)}
            placed[first] = [*lead, *tiles, *behind]
            for gradient, updates in head.gradients.items():
                applied = [self.instructions[update] for update in updates]
                placed[updates[-1]] = list(self.tiles(self.instructions[gradient], applied))
        return self.make.replaced(placed)

    # ---- what is found

    def _found(self, step: int) -> _Head | None:
        """The head with this loss; None for one that is to stay as it is."""
        scores = scores_of(self.program, self.uses, step)
        if scores is None or rows_of_tiles(self.program, scores) >= scores.rows:
            return None
        self._large = scores.large
        steps = {kernel: [s for s in scores.steps if self.instructions[s].kernel == kernel] for kernel in _PARTS}
        if len(steps[DERIVATIVE]) != 1 or len(steps[SMOOTHING]) > 1:
            return None
        products = [s for s in steps["matmul"] if sums(self.instructions[s])]
        gradients = {one: self.updates(one, self.instructions[one]) for one in products}
        rows = replace(scores, steps=tuple(one for one in scores.steps if one not in gradients))
        shares = [float(str(self.instructions[s].settings["share"])) for s in steps[SMOOTHING]]
        head = _Head(rows, gradients, *steps[DERIVATIVE], *(shares or [0.0]))
        return head if gradients and self._is_plain(head) and self._is_there(head) else None

    def _is_plain(self, head: _Head) -> bool:
        """Whether what the gradient is made of is the derivative of the loss of these very scores, by ids."""
        derivative = self.instructions[head.derivative].by_name
        target, p, dx = derivative["target"], derivative["p"], derivative["dx"]
        if target is None or p is None or dx is None or len(target.shape) != 1 or p.block != dx.block:
            return False
        writers = [self.instructions[s] for s in self.uses.writers[dx.block]]
        losses = [i for i in writers if i.kernel == LOSS]
        of_scores = len(losses) == 1 and losses[0].by_name["x"] == head.rows.scores
        alone = all(i.kernel in (LOSS, DERIVATIVE, SMOOTHING) for i in writers)
        return of_scores and alone and all(dx in self.instructions[s].reads for s in head.gradients)

    def _is_there(self, head: _Head) -> bool:
        """Whether the gradients are used behind the scores, and what these are made of is then there, as it was."""
        product, derivative = head.rows.steps[0], self.instructions[head.derivative].by_name
        read = [(operand, product) for operand in self.instructions[product].reads]
        read += [(o, head.derivative) for name in ("dlosses", "target") if (o := derivative[name]) is not None]
        return all(
            updates
            and updates[0] > head.rows.steps[-1]
            and not any(self.uses.is_changed(operand.block, at + 1, updates[0] - 1) for operand, at in read)
            for updates in head.gradients.values()
        )

    def _may_be_cut(self, user: Instruction, product: Instruction) -> bool:
        """By classes: state in blocks and rows that are added, where these are the outermost axis."""
        if self.axis(product) != 0:
            return super()._may_be_cut(user, product) and not has_blocks(user) and user.kernel != ADDED
        return user.kernel == ADDED or super()._may_be_cut(user, product)

    # ---- what is made

    def axis(self, product: Instruction) -> int:
        """That of the classes."""
        a, _, _ = product.operands
        return 0 if a is not None and a.block in self._large else 1

    def rows(self, product: Instruction, axis: int) -> int:
        """Classes of a tile."""
        scores = self._head.rows.scores
        return max(
            super().rows(product, axis), SCORES * self.program.target.tile_bytes // (scores.nbytes // scores.shape[1])
        )

    def made(self, product: Instruction, tile: Operand, axis: int, start: int, stop: int) -> Iterator[Instruction]:
        """The scores of some classes again, their derivative over them, and their gradient."""
        head, scores = self._head, self._head.rows.scores
        z = self.make.new_rows(scores.shape[0], stop - start, scores.dtype)
        again, derivative = (self.instructions[s] for s in (head.rows.steps[0], head.derivative))
        yield self.make.call(again, _columns(again, z, start, stop))
        named = derivative.by_name
        settings = {"first": start, "classes": scores.shape[1], "share": head.share}
        operands = (named["dlosses"], z, self._log_sums, named["target"], z)
        yield self.make.call(derivative, operands, AGAIN, settings)
        a, b, _ = product.operands
        yield self.make.call(product, (z, b, tile) if axis == 0 else (a, z, tile))


def _columns(product: Instruction, z: Operand, start: int, stop: int) -> tuple[Operand | None, ...]:
    """Operands of the product that makes some columns of the scores."""
    if product.kernel == "linear":
        x, weight, bias, _ = product.operands
        some = None if bias is None else narrow(bias, 0, start, stop)
        return x, None if weight is None else narrow(weight, 1, start, stop), some, z
    a, b, _ = product.operands
    return a, None if b is None else narrow(b, 0 if product.settings["transpose_b"] else 1, start, stop), z
