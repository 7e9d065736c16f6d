"""Matrix products: oneDNN's matmul, and two other ways for small batches, whose time goes into reading the weight.

The primitive `matmul` copies a weight in C order into blocks, in its scratch, if it is transposed or its columns are a
power of two. For a batch of a few dozen rows that costs more than it saves.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels import algorithms, bfloat16, layouts, memory_descs
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels import primitive as p
from singa_lite.kernels.onednn_kernels.conversion import read_as
from singa_lite.kernels.onednn_kernels.library import OneDNNError
from singa_lite.kernels.onednn_kernels.post_ops import POST_OPS
from singa_lite.kernels.onednn_kernels.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import Routine, RowSlice
from singa_lite.kernels.widening import NARROW
from singa_lite.strides import ordered_strides

Extents = tuple[int, ...]

#: The fewest elements to which the library adds a bias faster than NumPy; elements of the rows that it works on.
_ELEMENTS_TO_ADD, _ROW = 1 << 15, 1 << 12
#: The most rows for which `inner_product` reads a weight in C order as it is; for more it makes blocks as well.
_ROWS_WITHOUT_BLOCKS = 96
#: The most rows, and the fewest elements of a transposed weight, for which two small transpositions cost less.
_ROWS_TO_SWAP, _ELEMENTS_TO_SWAP = 64, 1 << 18
#: In how many products each element of a factor must be, at least, for its conversion to bfloat16 to cost less than it
#: saves: it moves 6 bytes, some 0.3 ns, and a product in bfloat16 takes 3 ps less than one in float32.
_REUSE = 128
#: Rows of a multiple of so many bytes lie in the same few sets of a cache. Where there are at least two pieces of so many
#: elements, and so many rows, a product is done by pieces of them, copied apart. A gap is as many elements.
_SAME_SETS, _APART, _LEAST_ROWS, _GAP = 4096, 1 << 19, 128, 16
#: What a product is added to is what the result holds.
_INTO: p.PostOp = ("sum", 1.0, 0, 0)


class _Matrix(NamedTuple):
    """A tensor, or a view of it, as matrices: its last two axes. strides: in elements."""

    tensor: TensorSpec
    shape: Extents
    strides: Extents

    @property
    def transposed(self) -> _Matrix:
        *lead, rows, columns = self.shape
        *steps, row, column = self.strides
        return _Matrix(self.tensor, (*lead, columns, rows), (*steps, column, row))

    @property
    def desc(self) -> p.MemoryDesc:
        return self.as_factor(str(self.tensor.dtype))

    def as_factor(self, dtype: str) -> p.MemoryDesc:
        """The descriptor of the same elements in another type, lying so too."""
        return p.memory_desc(self.shape, self.strides, dtype)

    @property
    def lies_by_rows(self) -> bool:
        return self.strides[-1] == 1

    @property
    def in_one(self) -> _Matrix | None:
        """All its matrices one below the other, where their rows lie evenly."""
        *lead, rows, columns = self.shape
        below = ordered_strides((*lead, rows), range(len(lead) + 1))
        if self.strides[:-1] != tuple(self.strides[-2] * step for step in below):
            return None
        return _Matrix(self.tensor, (below[0] * self.shape[0], columns), self.strides[-2:])

    def among(self, axes: int) -> _Matrix:
        """With leading axes of extent 1 before its own, `axes` in all."""
        missing, size = axes - len(self.shape), self.strides[0] * self.shape[0]
        return _Matrix(self.tensor, (1,) * missing + self.shape, (size,) * missing + self.strides)


def _matrix(spec: TensorSpec) -> _Matrix | None:
    """None for strides that the library cannot take."""
    strides = list(layouts.strides_of(spec))
    step = 1
    for axis in reversed(range(spec.ndim)):
        if spec.shape[axis] == 1:
            strides[axis] = step
        step = strides[axis] * spec.shape[axis]
    return _Matrix(spec, spec.shape, tuple(strides)) if min(strides) > 0 else None


def matmul(a: TensorSpec, b: TensorSpec, y: TensorSpec, *, transpose_a: bool, transpose_b: bool) -> Routine | None:
    """For strides that leave no gaps between the elements of a row or of a column."""
    left, right, result = map(_matrix, (a, b, y))
    if not layouts.are_stored(a, b, y) or left is None or right is None or result is None:
        return None
    left = left.transposed if transpose_a else left
    right = right.transposed if transpose_b else right
    rows = left.in_one if len(right.shape) == 2 else None
    if rows is not None and result.in_one is not None:
        left, result = rows, result.in_one
    axes = len(result.shape)
    return _product(left.among(axes), right.among(axes), result)


def matmul_add(a: TensorSpec, b: TensorSpec, y: TensorSpec, *, transpose_a: bool, transpose_b: bool) -> Routine | None:
    """Added before the result is stored."""
    left, right, result = map(_matrix, (a, b, y))
    if not layouts.are_stored(a, b, y) or left is None or right is None or result is None:
        return None
    left = left.transposed if transpose_a else left
    right = right.transposed if transpose_b else right
    return _product(left, right, result, post_ops=(_INTO,))


def linear(x: TensorSpec, weight: TensorSpec, bias: TensorSpec | None, y: TensorSpec) -> Routine | None:
    """The bias is added before the result is stored."""
    left, right, result = map(_matrix, (x, weight, y))
    if not _are_products((x, weight, y), bias) or left is None or right is None or result is None:
        return None
    return _product(left, right, result, bias)


def linear_activation(
    x: TensorSpec, weight: TensorSpec, bias: TensorSpec | None, y: TensorSpec, *, activation: str
) -> Routine | None:
    """The activation is applied before the result is stored, too."""
    post_ops = POST_OPS.get(activation)
    left, right, result = map(_matrix, (x, weight, y))
    if post_ops is None or not _are_products((x, weight, y), bias) or left is None or right is None or result is None:
        return None
    return _product(left, right, result, bias, post_ops)


def add_bias(x: TensorSpec, bias: TensorSpec, y: TensorSpec, *, axis: int) -> Routine | None:
    """For x and y that lie alike, without gaps. Several short rows are taken as one, with the bias repeated."""
    if not layouts.are_alike(x, y) or not layouts.are_floats(bias) or x.size < _ELEMENTS_TO_ADD:
        return None
    order = layouts.order_of(x)
    index, channels = order.index(axis % x.ndim), bias.size
    outer, inner = (prod(x.shape[other] for other in axes) for axes in (order[:index], order[index + 1 :]))
    most = min(outer, max(_ROW // channels, 1)) if inner == 1 else 1
    times = max(n for n in range(1, most + 1) if outer % n == 0)
    image, row = (
        memory_descs.dense((outer // times, times * channels, inner)),
        memory_descs.dense((1, times * channels, 1)),
    )
    primitive = _usable("binary", algorithms.ADD, image, row, image)
    if primitive is None:
        return None
    routine = Routine()
    repeated = routine.temporary((times, channels), "float32")
    routine.call(np.copyto, repeated, bias)
    routine.run(primitive, {f.SRC: x, f.SRC_1: repeated, f.DST: y})
    return routine


def _product(
    left: _Matrix, right: _Matrix, result: _Matrix, bias: TensorSpec | None = None, post_ops: tuple[p.PostOp, ...] = ()
) -> Routine | None:
    """result = left @ right + bias, in the fastest way that the library has for it."""
    if layouts.factors_of(left.tensor, right.tensor, result.tensor) == NARROW:
        return _narrow_product(left, right, result, bias, post_ops)
    rows = result.shape[0] if len(result.shape) == 2 and left.lies_by_rows else 0
    if 0 < rows <= _ROWS_WITHOUT_BLOCKS and right.lies_by_rows:
        primitive = _inner_product(left, right, result, bias, post_ops)
        if primitive is not None:
            return _one_step(primitive, left, right, result, bias)
    large = right.transposed.lies_by_rows and right.tensor.size >= _ELEMENTS_TO_SWAP
    if 0 < rows <= _ROWS_TO_SWAP and large and bias is None and not post_ops:
        return _swapped(left, right, result)
    if bias is None and not post_ops and _meets_itself(left, right, result):
        return _by_pieces(left, right, result)
    vector = None if bias is None else memory_descs.dense((1, *bias.shape))
    primitive = _usable("matmul", left.desc, right.desc, vector, result.desc, post_ops=post_ops)
    return None if primitive is None else _one_step(primitive, left, right, result, bias)


def _meets_itself(left: _Matrix, right: _Matrix, result: _Matrix) -> bool:
    """Whether it is x^T dy over many rows of dy that lie in the same sets of the caches. As the library copies these
    together, they push one another out: of rows of 4096 bytes it takes 1.6 times as long.
    """
    plain = len(result.shape) == 2 and left.strides[0] == 1 and right.strides[1] == 1 and result.strides[1] == 1
    is_pitched = right.strides[0] == right.shape[1] and right.strides[0] * 4 % _SAME_SETS == 0
    return plain and is_pitched and right.shape[0] >= 2 * _rows_apart(right) and left.shape[0] > 1


def _rows_apart(right: _Matrix) -> int:
    """How many a piece has at most."""
    return max(_APART // right.shape[1], _LEAST_ROWS)


def _by_pieces(left: _Matrix, right: _Matrix, result: _Matrix) -> Routine | None:
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


def _are_products(operands: tuple[TensorSpec, ...], bias: TensorSpec | None) -> bool:
    return layouts.are_stored(*operands) and layouts.are_floats(bias)


def _narrow_product(
    left: _Matrix, right: _Matrix, result: _Matrix, bias: TensorSpec | None, post_ops: tuple[p.PostOp, ...]
) -> Routine | None:
    """The same of factors in bfloat16, to which those in float32 are converted; None where that is too much work."""
    reuse = (left, result.shape[-1]), (right, result.shape[-2])
    worth = all(layouts.is_narrow(factor.tensor) or times >= _REUSE for factor, times in reuse)
    if not worth or not bfloat16.multiplies():
        return None
    blocks = memory_descs.chosen(right.shape, NARROW)
    wanted = right.desc if layouts.is_narrow(right.tensor) else blocks
    vector = None if bias is None else memory_descs.dense((1, *bias.shape))
    primitive = _usable("matmul", left.as_factor(NARROW), wanted, vector, result.desc, post_ops=post_ops)
    if primitive is None:
        return None
    routine = Routine()
    rows = read_as(routine, left.tensor, left.desc, left.as_factor(NARROW))
    columns = read_as(routine, right.tensor, right.desc, primitive.memory_desc(f.WEIGHTS))
    offset = None if bias is None else read_as(routine, bias, memory_descs.of(bias), memory_descs.dense(bias.shape))
    routine.run(primitive, {f.SRC: rows, f.WEIGHTS: columns, f.BIAS: offset, f.DST: result.tensor})
    return routine


def _one_step(primitive: Primitive, left: _Matrix, right: _Matrix, result: _Matrix, bias: TensorSpec | None) -> Routine:
    routine = Routine()
    offset = None if bias is None else read_as(routine, bias, memory_descs.of(bias), memory_descs.dense(bias.shape))
    operands = {f.SRC: left.tensor, f.WEIGHTS: right.tensor, f.BIAS: offset, f.DST: result.tensor}
    routine.run(primitive, operands)
    return routine


def _inner_product(
    left: _Matrix, right: _Matrix, result: _Matrix, bias: TensorSpec | None, post_ops: tuple[p.PostOp, ...]
) -> Primitive | None:
    vector = None if bias is None else memory_descs.dense(bias.shape)
    operands = left.desc, right.transposed.desc, vector, result.desc
    return _usable("inner_product_forward", f.FORWARD_TRAINING, *operands, post_ops=post_ops)


def _swapped(left: _Matrix, right: _Matrix, result: _Matrix) -> Routine | None:
    """result^T = right^T @ left^T: right is read by its rows, only the two small matrices are transposed."""
    columns, rows = left.transposed, result.transposed
    before, behind = memory_descs.dense(columns.shape), memory_descs.dense(rows.shape)
    primitive = _usable("matmul", right.transposed.desc, before, None, behind)
    if primitive is None:
        return None
    routine = Routine()
    source, target = (routine.temporary(desc.nbytes) for desc in (before, behind))
    routine.run(p.Reorder(columns.desc, before), {f.SRC: left.tensor, f.DST: source})
    routine.run(primitive, {f.SRC: right.tensor, f.WEIGHTS: source, f.DST: target})
    routine.run(p.Reorder(behind, rows.desc), {f.SRC: target, f.DST: result.tensor})
    return routine


def _usable(function: str, *arguments: object, post_ops: tuple[p.PostOp, ...] = ()) -> Primitive | None:
    """The primitive, if the library has more than plain loops for it."""
    try:
        primitive = Primitive(function, *arguments, post_ops=post_ops)
    except OneDNNError as error:
        if error.status != OneDNNError.UNIMPLEMENTED:
            raise
        return None
    return None if "ref" in primitive.implementation else primitive
