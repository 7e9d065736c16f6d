"""Gradient and update by tiles: the gradient of a large weight is made, applied and dropped a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from singa_lite.common.strides import memory_order
from singa_lite.compiler.ir.collectives import BEGIN, kind_of, landing
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program, Rewriter, narrow
from singa_lite.compiler.ir.uses import Uses
from singa_lite.compiler.rewrite.fusions import ADDED
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.interface.state_format import BLOCKED, Blocks

#: Gradients of fewer tiles stay whole: they fit into the caches as they are.
LEAST_TILES = 4
#: What makes gradients.
PRODUCTS = ("matmul", "embedding_gradient")
#: Tiles of all gradients together, where they would be more: each is several calls, which take memory and time to plan,
#: to bind and to launch. Beyond 1 GiB of gradients tiles are larger than 1 MiB.
MOST_TILES = 1024


def tiled(program: Program) -> Program:
    """Split each product that only makes a large gradient, and the update that it is for, into tiles of both.

    So is the gradient of a table of embeddings, whose ids are looked through for each tile of its rows, and so are rows
    of a table that are added to a product, whose factors live until then.

    That holds for a matrix product into a whole intermediate block of at least LEAST_TILES tiles that only element-wise
    updates use, standing one behind the other. The tiles are cut along the outermost axis of the gradient, so the sums
    over the batch are whole in each, and every element is updated once, with the same count of updates. A tile stays in
    the cache between the product and the update: its gradient has at most the target's `tile_bytes`, or, where tiles of
    all gradients would be more than MOST_TILES, that part of all of them. State in blocks
    of 8 bits is cut between blocks, into which rows are gathered; there a gradient with another outermost axis stays
    whole. New instructions are numbered behind the others.
    """
    return Tiling(program).result()


class Tiling:
    """Cuts gradients of a program, and the updates that they are for."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.instructions = program.instructions
        made = {i.operands[-1].block for i in program.instructions if i.kernel in PRODUCTS and i.operands[-1]}
        least = sum(program.sizes.get(block, 0) for block in made) // MOST_TILES
        self.tile_bytes = max(program.target.tile_bytes, least)
        self.make = Rewriter(program)
        self.uses = Uses(program.instructions)

    def result(self) -> Program:
        """The program with tiles."""
        moved: dict[int, list[Instruction]] = {}
        for step, instruction in enumerate(self.instructions):
            moved |= self.moved(step, instruction)
        return self.make.replaced(moved)

    def moved(self, step: int, product: Instruction) -> dict[int, list[Instruction]]:
        """{step: what stands there instead}: the tiles at that of the last update; {} where a product stays."""
        updates = self.updates(step, product)
        if not updates:
            return {}
        tiles = list(self.tiles(product, [self.instructions[update] for update in updates]))
        return {step: [], **{update: [] for update in updates}, updates[-1]: tiles}

    def updates(self, step: int, product: Instruction) -> list[int]:
        """Steps of the updates that use up the gradient which the product makes; none where it must stay whole."""
        if product.kernel not in PRODUCTS:
            return []
        a, b, gradient = product.operands  # of an embedding ids and dy, its factors but for the one-hot rows
        if a is None or b is None or gradient is None or not self.is_large(gradient):
            return []
        first, *users = self.uses.steps[gradient.block]
        if first != step or not users or users != [*range(users[0], users[0] + len(users))]:
            return []
        if product.kernel == "embedding_gradient" and _outermost(gradient) != 0:
            return []
        for user in users:
            instruction = self.instructions[user]
            taken = {o for o in instruction.operands if o is not None and o.block == gradient.block}
            if taken != {gradient} or not self._may_be_cut(instruction, product):
                return []
            if (has_blocks(instruction) or "first" in instruction.settings) and _outermost(gradient) != 0:
                return []
        changed = any(self.uses.is_changed(block, step + 1, users[-1]) for block in (a.block, b.block))
        return [] if changed else users

    def _may_be_cut(self, user: Instruction, product: Instruction) -> bool:
        """Whether it does each row by itself: an update, or rows that are added, if the factors may live until then."""
        if user.kernel != ADDED:
            return SIGNATURES[user.kernel].facts.by_elements
        gradient = product.writes[0]
        return _outermost(gradient) == 0 and all(factor.nbytes <= gradient.nbytes for factor in product.reads)

    def is_large(self, gradient: Operand) -> bool:
        """Whether it has a block for itself, of enough tiles."""
        size = self.program.sizes.get(gradient.block, 0)
        return len(gradient.shape) == 2 and size >= LEAST_TILES * self.tile_bytes and size == gradient.nbytes

    def tiles(self, product: Instruction, updates: Sequence[Instruction]) -> Iterator[Instruction]:
        """The calls in the place of the product and the updates, tile by tile."""
        gradient = product.writes[0]
        axis = self.axis(product)
        extent = gradient.shape[axis]
        rows = self.rows(product, axis)
        if any(map(has_blocks, updates)):
            together = Blocks.of(gradient.shape).rows
            rows = max(rows // together, 1) * together
        for start in range(0, extent, rows):
            stop = min(start + rows, extent)
            shape = (stop - start, gradient.shape[1]) if axis == 0 else (gradient.shape[0], stop - start)
            tile = self.make.new_operand(shape, gradient.dtype, (axis, 1 - axis))
            yield from self.made(product, tile, axis, start, stop)
            landings: list[Operand] = []
            for update in updates:
                if kind_of(update):
                    yield self._summed(update, tile, landings)
                    continue
                yield from self._update(update, gradient, tile, axis, start, stop)

    def axis(self, product: Instruction) -> int:
        """That the gradient is cut along."""
        return _outermost(product.writes[0])

    def rows(self, product: Instruction, axis: int) -> int:
        """Of a tile, along the axis."""
        gradient = product.writes[0]
        return max(1, self.tile_bytes * gradient.shape[axis] // gradient.nbytes)

    def made(self, product: Instruction, tile: Operand, axis: int, start: int, stop: int) -> Iterator[Instruction]:
        """The calls that make the rows (axis 0) or columns (axis 1) of the product from start to stop."""
        a, b, _ = product.operands
        if a is None or b is None:
            raise ValueError("a product has two factors")
        if product.kernel == "embedding_gradient":
            yield self.make.call(product, (a, b, tile), settings={**product.settings, "first": start})
            return
        if axis == 0:
            a = narrow(a, 1 if product.settings["transpose_a"] else 0, start, stop)
        else:
            b = narrow(b, 0 if product.settings["transpose_b"] else 1, start, stop)
        yield self.make.call(product, (a, b, tile))

    def _summed(self, call: Instruction, tile: Operand, landings: list[Operand]) -> Instruction:
        """The beginning or the end of a sum of one tile over the ranks."""
        if kind_of(call) == BEGIN:
            landings.append(landing(self.make, call, tile))
        return self.make.call(call, (tile, landings[-1], call.operands[2]))

    def _update(
        self, update: Instruction, gradient: Operand, tile: Operand, axis: int, start: int, stop: int
    ) -> Iterator[Instruction]:
        """The update of one tile."""
        if update.kernel == ADDED:
            operands = (*update.operands[:2], tile)
            yield self.make.call(update, operands, settings={**update.settings, "first": start})
            return
        pieces = [
            tile if one is not None and one.block == gradient.block else _piece(one, gradient, axis, start, stop)
            for one in update.operands
        ]
        yield from self.counted(update, pieces, stop == gradient.shape[axis], start)

    def counted(
        self, update: Instruction, pieces: Sequence[Operand | None], is_last: bool, first: int = 0
    ) -> Iterator[Instruction]:
        """The update of a piece. All but the last count on a copy, so that each sees the count before the step.

        first: row of the piece, which updates of stored values are given.
        """
        operands = list(pieces)
        count = next((i for i, o in enumerate(operands) if o is not None and o.dtype.kind == "i"), None)
        if count is not None and not is_last:
            own = operands[count]
            copy = own and own._replace(block=self.make.new_block(own.nbytes), offset=0)
            yield self.make.call(update, (own, copy), "copy", {})
            operands[count] = copy
        settings = {**update.settings, "first": first} if "first" in update.settings else update.settings
        yield self.make.call(update, tuple(operands), settings=settings)


def _outermost(gradient: Operand) -> int:
    """The axis that tiles are cut along."""
    return memory_order(gradient.shape, gradient.strides)[0]


def has_blocks(instruction: Instruction) -> bool:
    """Whether it is an update of state that is kept in blocks of 8 bits."""
    return any(operand is not None and operand.dtype == BLOCKED for operand in instruction.operands)


def _piece(operand: Operand | None, gradient: Operand, axis: int, start: int, stop: int) -> Operand | None:
    """What of an update's operand goes with the gradient's rows from start to stop."""
    if operand is not None and operand.dtype == BLOCKED:
        cut = Blocks.of(gradient.shape)
        return narrow(operand, 0, start // cut.rows, cut.groups(stop))
    return operand if operand is None or operand.shape != gradient.shape else narrow(operand, axis, start, stop)
