"""The head by tiles: scores, their loss and their derivative exist for some rows at a time.

    recorded:   z = x @ w;  losses, p = loss of z;  d = its derivative;  dx = d @ w^T;  dw = x^T @ d
    here:       for the rows of one tile after the other: the same of these rows, but that dw += x^T @ d

The sums over rows are made tile by tile, in the order of the rows, which rounds otherwise than one product does; all
else is the same arithmetic. A gradient that nobody needs but an update stands whole then until the last tile, where it
could be made, applied and dropped some rows at a time (`tiles.py`): so this is done only where it lowers the sum of
both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program, Rewriter, narrow
from singa_lite.compiler.ir.uses import Uses
from singa_lite.compiler.rewrite.fusions import ADDED
from singa_lite.compiler.rewrite.scores import LOSS, Scores, cut_along, parted, scores_of, sums
from singa_lite.kernels.interface import SIGNATURES

#: Fewest rows of a tile: of fewer the library's products take a tenth longer, and one copies the weight into blocks.
LEAST_ROWS = 128
#: Bytes of such a tile beyond which it has half of the rows, where no gradient of a weight is added up tile by tile.
LARGE = 32 << 20
#: Bytes of a tile of more rows, in times of the target's `tile_bytes`, and what is worth it, in these too.
TILES, WORTH = 8, 4
#: Most tiles, so that a batch that fits no machine is planned as soon as any other.
MOST_TILES = 32


def by_tiles_of_rows(program: Program) -> Program:
    """Tiles of rows in the place of each product whose result only losses, metrics and their derivatives use.

    That holds where the scores are a whole intermediate block of at least two tiles, and less is live with tiles.
    """
    uses = Uses(program.instructions)
    make, placed = Rewriter(program), dict[int, list[Instruction]]()
    for step, instruction in enumerate(program.instructions):
        if instruction.kernel != LOSS or step in placed:
            continue
        scores = scores_of(program, uses, step)
        order = None if scores is None or placed.keys() & set(scores.steps) else parted(program, scores)
        if scores is None or order is None or not _pays(program, uses, scores):
            continue
        lead, behind = ([program.instructions[s] for s in steps] for steps in order)
        placed |= {step: [] for step in range(scores.steps[0], scores.steps[-1] + 1)}
        placed[scores.steps[0]] = [*lead, *Tiles(program, scores, make).calls(), *behind]
    return make.replaced(placed)


def rows_of_tiles(program: Program, scores: Scores) -> int:
    """Rows of each tile, but for the last."""
    each = scores.scores.nbytes // scores.rows
    trains = any(sums(program.instructions[step]) for step in scores.steps)
    least = LEAST_ROWS if trains or LEAST_ROWS * each <= LARGE else LEAST_ROWS // 2
    most = max(least, TILES * program.target.tile_bytes // each)
    count = min(-(-scores.rows // most), MOST_TILES)
    return -(-scores.rows // count)


def _pays(program: Program, uses: Uses, scores: Scores) -> bool:
    """Whether less is live at the head so. A gradient that may be made later, or in tiles, is then there beside it."""
    tile = rows_of_tiles(program, scores) * (scores.scores.nbytes // scores.rows)
    beside = sum(_waiting(program, uses, program.instructions[step]) for step in scores.steps)
    saved = scores.scores.nbytes - tile - beside
    return tile < scores.scores.nbytes and saved >= WORTH * program.target.tile_bytes


def _waiting(program: Program, uses: Uses, product: Instruction) -> int:
    """Bytes of a sum over rows that only an update uses, or a further sum for one; it need not be there at the head."""
    if product.kernel != "matmul" or not sums(product):
        return 0
    made = product.writes[0]
    users = [program.instructions[step] for step in uses.steps[made.block][1:]]
    later = all(i.kernel in ("add", ADDED) or SIGNATURES[i.kernel].facts.by_elements for i in users)
    return made.nbytes if later else 0


@dataclass(frozen=True)
class Tiles:
    """The calls of all tiles of rows. log_sums: where to put the logs of the sums of e**score; None: nowhere."""

    program: Program
    scores: Scores
    make: Rewriter
    log_sums: Operand | None = None

    def calls(self) -> Iterator[Instruction]:
        """Tile by tile."""
        steps, per = self._order(), rows_of_tiles(self.program, self.scores)
        for start in range(0, self.scores.rows, per):
            stop = min(start + per, self.scores.rows)
            tiles = self._blocks(stop - start)
            for step in steps:
                yield from self._call(self.program.instructions[step], tiles, start, stop)
                if step == steps[0] and self.log_sums is not None:
                    loss = next(i for s in self.scores.steps if (i := self.program.instructions[s]).kernel == LOSS)
                    operands = tiles[self.scores.scores.block], narrow(self.log_sums, 0, start, stop)
                    yield self.make.call(loss, operands, "log_sum_exp", {})

    def _blocks(self, rows: int) -> dict[int, Operand]:
        """A tile of its own for each of the large blocks."""
        (_, classes), dtype = self.scores.scores.shape, self.scores.scores.dtype
        return {block: self.make.new_rows(rows, classes, dtype) for block in sorted(self.scores.large)}

    def _order(self) -> list[int]:
        """The product, what only reads its result for itself, and then the others: what they need is less then."""
        first, *rest = self.scores.steps
        calls = {step: self.program.instructions[step] for step in rest}
        blocks = {step: {o.block for o in i.operands if o is not None} for step, i in calls.items()}
        alone = [
            step
            for step, i in calls.items()
            if not any(o.block in blocks[other] for o in i.writes for other in rest if other != step)
            and not sums(i)
            and all(o.block == self.scores.scores.block for o in i.reads if o.block in self.scores.large)
        ]
        return [first, *alone, *(step for step in rest if step not in alone)]

    def _call(self, i: Instruction, tiles: dict[int, Operand], start: int, stop: int) -> Iterator[Instruction]:
        operands = tuple(self._cut(i, name, tiles, start, stop) for name in i.by_name)
        if start == 0 or not sums(i):
            yield self.make.call(i, operands)
        elif i.kernel == "matmul":
            yield self.make.call(i, operands, "matmul_add")
        else:
            yield from self._added(i, operands)

    def _cut(self, i: Instruction, name: str, tiles: dict[int, Operand], start: int, stop: int) -> Operand | None:
        """Of an operand of a call, the tile or what belongs to its rows; all of what has no rows."""
        operand = i.by_name[name]
        if operand is None or name not in cut_along(i):
            return operand
        return tiles[operand.block] if operand.block in tiles else narrow(operand, 0, start, stop)

    def _added(self, i: Instruction, operands: tuple[Operand | None, ...]) -> Iterator[Instruction]:
        """Sums of a tile, and their sum with those of the tiles before it."""
        dy, total = operands
        if total is None:
            raise ValueError("a sum has a result")
        part = self.make.new_operand(total.shape, total.dtype)
        yield self.make.call(i, (dy, part))
        yield self.make.call(i, (total, part, total), "add", {})
