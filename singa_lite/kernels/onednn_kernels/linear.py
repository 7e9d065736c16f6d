"""Matrix products: oneDNN's matmul, other ways for small batches, whose time goes into reading the weight, and NumPy's
BLAS where the library is slow (`blas_product.py`).

The primitive `matmul` copies a weight in C order into blocks, in its scratch, if it is transposed or its columns are a
power of two. For a batch of a few dozen rows that costs more than it saves.
"""

from __future__ import annotations

from singa_lite.kernels.call import Call
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels import bfloat16, blas_product
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.conversion import read_as
from singa_lite.kernels.onednn_kernels.library.post_ops import POST_OPS
from singa_lite.kernels.onednn_kernels.library.primitive import Primitive
from singa_lite.kernels.onednn_kernels.matrix import Matrix, matrix_of
from singa_lite.kernels.onednn_kernels.product_by_pieces import by_pieces, meets_itself
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine
from singa_lite.kernels.widening import NARROW

#: The most rows for which `inner_product` reads a weight in C order as it is; for more it makes blocks as well.
_ROWS_WITHOUT_BLOCKS = 96
#: The most rows, and the fewest elements of a transposed weight, for which two small transpositions cost less.
_ROWS_TO_SWAP, _ELEMENTS_TO_SWAP = 64, 1 << 18
#: In how many products each element of a factor must be, at least, for its conversion to bfloat16 to cost less than it
#: saves: it moves 6 bytes, some 0.3 ns, and a product in bfloat16 takes 3 ps less than one in float32.
_REUSE = 128
#: What a product is added to is what the result holds.
_INTO: tuple[p.PostOp, ...] = (("sum", 1.0, 0, 0),)


def matmul(call: Call) -> Routine | None:
    """For strides that leave no gaps between the elements of a row or of a column; `matmul_add` too."""
    operands = call["a"], call["b"], call["y"]
    left, right, result = map(matrix_of, operands)
    if not layouts.are_stored(*operands) or left is None or right is None or result is None:
        return None
    left = left.transposed if call.settings["transpose_a"] else left
    right = right.transposed if call.settings["transpose_b"] else right
    rows = left.in_one if len(right.shape) == 2 else None
    if rows is not None and result.in_one is not None:
        left, result = rows, result.in_one
    axes = len(result.shape)
    return _product(left.among(axes), right.among(axes), result, post_ops=_INTO if call.kernel == "matmul_add" else ())


def linear(call: Call) -> Routine | None:
    """The bias is added, and the activation applied, before the result is stored."""
    operands, bias = (call["x"], call["weight"], call["y"]), call.optional("bias")
    post_ops = POST_OPS.get(call.text("activation"))
    left, right, result = map(matrix_of, operands)
    if post_ops is None or left is None or right is None or result is None:
        return None
    if not layouts.are_stored(*operands) or not layouts.are_floats(bias):
        return None
    return _product(left, right, result, bias, post_ops)


def _product(
    left: Matrix, right: Matrix, result: Matrix, bias: TensorSpec | None = None, post_ops: tuple[p.PostOp, ...] = ()
) -> Routine | None:
    """result = left @ right + bias, in the fastest way that the library has for it."""
    if layouts.factors_of(left.tensor, right.tensor, result.tensor) == NARROW:
        if layouts.are_floats(left.tensor, result.tensor) and left.lies_by_rows:
            return None  # a weight that is stored in bfloat16 beside activations that are not: none of these is rounded
        return _narrow_product(left, right, result, bias, post_ops)
    if post_ops in ((), POST_OPS["relu"]) and blas_product.is_faster(left, right, result):
        return blas_product.product(left, right, result, bias, relu=bool(post_ops))
    rows = result.shape[0] if len(result.shape) == 2 and left.lies_by_rows else 0
    if 0 < rows <= _ROWS_WITHOUT_BLOCKS and right.lies_by_rows:
        primitive = _inner_product(left, right, result, bias, post_ops)
        if primitive is not None:
            return _one_step(primitive, left, right, result, bias)
    large = right.transposed.lies_by_rows and right.tensor.size >= _ELEMENTS_TO_SWAP
    if 0 < rows <= _ROWS_TO_SWAP and large and bias is None and not post_ops:
        return _swapped(left, right, result)
    if bias is None and not post_ops and meets_itself(left, right, result):
        return by_pieces(left, right, result)
    vector = None if bias is None else memory_descs.dense((1, *bias.shape))
    primitive = p.usable("matmul", left.desc, right.desc, vector, result.desc, post_ops=post_ops)
    return None if primitive is None else _one_step(primitive, left, right, result, bias)


def _narrow_product(
    left: Matrix, right: Matrix, result: Matrix, bias: TensorSpec | None, post_ops: tuple[p.PostOp, ...]
) -> Routine | None:
    """The same of factors in bfloat16, to which those in float32 are converted; None where that is too much work."""
    reuse = (left, result.shape[-1]), (right, result.shape[-2])
    worth = all(layouts.is_narrow(factor.tensor) or times >= _REUSE for factor, times in reuse)
    if not worth or not bfloat16.multiplies():
        return None
    blocks = memory_descs.any_layout(right.shape, NARROW)
    wanted = right.desc if layouts.is_narrow(right.tensor) else blocks
    vector = None if bias is None else memory_descs.dense((1, *bias.shape))
    primitive = p.usable("matmul", left.as_factor(NARROW), wanted, vector, result.desc, post_ops=post_ops)
    return None if primitive is None else _one_step(primitive, left, right, result, bias, NARROW)


def _one_step(
    primitive: Primitive, left: Matrix, right: Matrix, result: Matrix, bias: TensorSpec | None, dtype: str = "float32"
) -> Routine:
    """The primitive; factors of another type than this one, and a bias with gaps, are converted."""
    routine = Routine()
    views: dict[int, BufferView | None] = {f.SRC: left.tensor, f.WEIGHTS: right.tensor, f.DST: result.tensor}
    if str(left.tensor.dtype) != dtype:
        views[f.SRC] = read_as(routine, left.tensor, left.desc, left.as_factor(dtype))
    if str(right.tensor.dtype) != dtype:
        views[f.WEIGHTS] = read_as(routine, right.tensor, right.desc, primitive.memory_desc(f.WEIGHTS))
    if bias is not None:
        views[f.BIAS] = read_as(routine, bias, memory_descs.desc_of(bias), memory_descs.dense(bias.shape))
    routine.run(primitive, views)
    return routine


def _inner_product(
    left: Matrix, right: Matrix, result: Matrix, bias: TensorSpec | None, post_ops: tuple[p.PostOp, ...]
) -> Primitive | None:
    vector = None if bias is None else memory_descs.dense(bias.shape)
    operands = left.desc, right.transposed.desc, vector, result.desc
    return p.usable("inner_product_forward", f.FORWARD_TRAINING, *operands, post_ops=post_ops)


def _swapped(left: Matrix, right: Matrix, result: Matrix) -> Routine | None:
    """result^T = right^T @ left^T: right is read by its rows, only the two small matrices are transposed."""
    columns, rows = left.transposed, result.transposed
    before, behind = memory_descs.dense(columns.shape), memory_descs.dense(rows.shape)
    primitive = p.usable("matmul", right.transposed.desc, before, None, behind)
    if primitive is None:
        return None
    routine = Routine()
    source, target = (routine.temporary(desc.nbytes) for desc in (before, behind))
    routine.run(p.Reorder(columns.desc, before), {f.SRC: left.tensor, f.DST: source})
    routine.run(primitive, {f.SRC: right.tensor, f.WEIGHTS: source, f.DST: target})
    routine.run(p.Reorder(behind, rows.desc), {f.SRC: target, f.DST: result.tensor})
    return routine


#: {kernel: what makes its routine}.
KERNELS = {"matmul": matmul, "matmul_add": matmul, "linear": linear}
