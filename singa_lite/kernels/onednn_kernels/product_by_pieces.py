"""x^T dy over many rows of dy that lie in the same few sets of the caches, by pieces that are copied apart."""

from __future__ import annotations

from itertools import pairwise

from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.primitive import Primitive
from singa_lite.kernels.onednn_kernels.matrix import Matrix
from singa_lite.kernels.onednn_kernels.routine import Routine, RowSlice

#: Rows of a multiple of so many bytes lie in the same few sets of a cache. Where they give two pieces or more of that
#: many elements, and of so many rows at least, a product is done by pieces, copied apart: a gap is as many elements.
_SAME_SETS, _APART, _LEAST_ROWS, _GAP = 4096, 1 << 19, 128, 16


def meets_itself(left: Matrix, right: Matrix, result: Matrix) -> bool:
    """Whether it is x^T dy over many rows of dy that lie in the same sets of the caches. As the library copies these
    together, they push one another out: of rows of 4096 bytes it takes 1.6 times as long.
    """
    plain = len(result.shape) == 2 and left.strides[0] == 1 and right.strides[1] == 1 and result.strides[1] == 1
    is_pitched = right.strides[0] == right.shape[1] and right.strides[0] * 4 % _SAME_SETS == 0
    return plain and is_pitched and right.shape[0] >= 2 * _rows_apart(right) and left.shape[0] > 1


def _rows_apart(right: Matrix) -> int:
    """How many a piece has at most."""
    return max(_APART // right.shape[1], _LEAST_ROWS)


def by_pieces(left: Matrix, right: Matrix, result: Matrix) -> Routine | None:
    """The sum over pieces of the rows of right, each copied to where its rows lie in different sets."""
    (rows, columns), pitch = right.shape, right.shape[1] + _GAP
    count = -(-rows // _rows_apart(right))
    borders = [rows * at // count for at in range(count + 1)]
    routine = Routine()
    apart = routine.temporary((-(-rows // count), pitch), "float32")

    def add(piece: tuple[int, int]) -> None:
        start, length = piece
        source = p.memory_desc((length, columns), (columns, 1))
        target = p.memory_desc((length, columns), (pitch, 1))
        turned = p.memory_desc((left.shape[0], length), (1, left.strides[1]))
        into: tuple[p.PostOp, ...] = (("sum", 1.0, 0, 0),) if start else ()
        product = Primitive("matmul", turned, target, None, result.desc, post_ops=into)
        given = RowSlice(right.tensor, start, length, columns, columns)
        seen = RowSlice(left.tensor, start, length, left.shape[0], left.strides[1])
        routine.run(p.Reorder(source, target), {f.SRC: given, f.DST: apart})
        routine.run(product, {f.SRC: seen, f.WEIGHTS: apart, f.DST: result.tensor})

    routine.repeat([(start, stop - start) for start, stop in pairwise(borders)], add)
    return routine
