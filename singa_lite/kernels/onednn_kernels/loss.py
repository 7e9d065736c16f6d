"""Cross entropy by class ids where the classes lie innermost: scores (n, c), and of images channels last.

The scores are a matrix then, one row a position; work on one number a row is done on the host.
"""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.ids import check_ids
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.library import algorithms as a
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.primitive import PostOp, Primitive
from singa_lite.kernels.onednn_kernels.reduction import Stage
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine
from singa_lite.kernels.routine import Temporary
from singa_lite.kernels.unweighted import clear_unweighted

#: dnnl_reduction_max
_LARGEST = 0x2FFF2
#: Elements up to which the host is as fast, as the library's threads take time to wake.
_SMALL = 1 << 15
#: Images of up to this many classes and elements are transposed first: the library is slow on many short rows.
_FEW_CLASSES, _LARGE = 32, 1 << 22


class _Scores:
    """Shapes of scores (n, c, ...) whose classes lie innermost, and the host's part of the work on them."""

    def __init__(self, x: TensorSpec) -> None:
        self.samples, self.classes = x.shape[:2]
        self.rows = x.size // self.classes
        self.axes = (0, *range(2, x.ndim), 1)

    @property
    def matrix(self) -> p.MemoryDesc:
        return memory_descs.dense((self.rows, self.classes))

    def fit(self, target: TensorSpec, *tensors: TensorSpec) -> bool:
        """Whether the tensors are such scores and the target one of class ids, without gaps."""
        first = tensors[0]
        innermost = layouts.strides_of(first) == ordered_strides(first.shape, self.axes)
        countable = target.dtype.kind == "i" or (target.dtype.kind == "u" and target.dtype.itemsize < 8)
        ids = countable and target.ndim == first.ndim - 1 and self.classes > 1
        return ids and innermost and layouts.same_layout(*tensors) and _lies_in_order(target)

    def index_classes(self, target: Array, indices: Array) -> None:
        """indices = where in the flat matrix each row's own class is. IndexError where an id names no class."""
        unsigned = target.view(f"u{target.dtype.itemsize}")
        if np.maximum.reduce(unsigned, axis=None) >= self.classes:
            check_ids("class ids", target, self.classes)
        indices.fill(self.classes)
        indices[0] = 0
        np.add.accumulate(indices, out=indices)
        np.add(indices, target.reshape(-1), out=indices)

    def view(self, array: Array, *shape: int) -> Array:
        """The elements in the order of memory."""
        return array.transpose(self.axes).reshape(shape)

    def pick(self, x: Array, target: Array, indices: Array, picked: Array) -> None:
        """picked = the score of each row's own class."""
        self.index_classes(target, indices)
        np.take(self.view(x, -1), indices, out=picked, mode="clip")

    def normalize(self, x: Array, top: Array, total: Array, p: Array) -> None:
        """p = e**z / total, total = sums of e**z, z = x - top, top = the largest of each row."""
        values, powers = self.view(x, self.rows, -1), self.view(p, self.rows, -1)
        np.maximum.reduce(values, axis=1, out=top)
        np.subtract(values, top[:, None], out=powers)
        np.exp(powers, out=powers)
        np.add.reduce(powers, axis=1, out=total)
        np.divide(powers, total[:, None], out=powers)

    def means(self, numbers: Array, totals: Array, losses: Array) -> None:
        """losses = means over each sample's positions."""
        np.add.reduce(numbers.reshape(self.samples, -1), axis=1, dtype=np.float64, out=totals)
        np.divide(totals, self.rows // self.samples, out=losses)


def softmax_cross_entropy(x: TensorSpec, target: TensorSpec, losses: TensorSpec, p: TensorSpec) -> Routine | None:
    """p = e**z / sum, z = x - the largest of its row; losses = log of the sum - z of the own class."""
    scores = _Scores(x)
    if not scores.fit(target, x, p) or not layouts.are_floats(losses):
        return None
    routine = Routine()
    indices, own, totals = _vectors(routine, scores)
    top, total = (routine.temporary((scores.rows,), "float32") for _ in range(2))
    routine.call(scores.pick, x, target, indices, own)
    if x.size <= _SMALL:
        routine.call(scores.normalize, x, top, total, p)
    elif scores.rows > scores.samples and scores.classes <= _FEW_CLASSES and x.size <= _LARGE:
        _by_planes(routine, scores, x, top, total, p)
    else:
        _by_rows(routine, scores, x, top, total, p)

    def finish(own: Array, top: Array, total: Array, totals: Array, losses: Array) -> None:
        np.subtract(own, top, out=own)
        np.log(total, out=total)
        np.subtract(total, own, out=total)
        scores.means(total, totals, losses)

    routine.call(finish, own, top, total, totals, losses)
    return routine


def _vectors(routine: Routine, scores: _Scores) -> tuple[Temporary, Temporary, Temporary]:
    """Index and score of each row's own class, and a sum of each sample."""
    rows = (scores.rows,)
    sums = routine.temporary((scores.samples,), "float64")
    return routine.temporary(rows, "int64"), routine.temporary(rows, "float32"), sums


def _by_rows(
    routine: Routine, scores: _Scores, x: TensorSpec, top: BufferView, total: BufferView, result: TensorSpec
) -> None:
    rows, classes = scores.rows, scores.classes
    column = memory_descs.dense((rows, 1))
    routine.run(Primitive("reduction", _LARGEST, scores.matrix, column, 0.0, 0.0), {f.SRC: x, f.DST: top})
    stage = Stage((rows, 1, classes, 1), (classes, classes, 1, 1))
    _normalize(routine, scores.matrix, column, stage, x, top, total, result)


def _by_planes(
    routine: Routine, scores: _Scores, x: TensorSpec, top: BufferView, total: BufferView, result: TensorSpec
) -> None:
    """By planes of one class each, their positions innermost."""
    rows, classes = scores.rows, scores.classes
    plane, turned = memory_descs.dense((1, rows)), p.memory_desc((rows, classes), (1, rows))
    planes = routine.temporary((classes, rows), "float32")
    routine.run(p.Reorder(scores.matrix, turned), {f.SRC: x, f.DST: planes})
    largest = Primitive("binary", a.MAXIMUM, plane, plane, plane)
    for label in range(1, classes):
        one = planes.part(rows * label, rows, "float32")
        routine.run(largest, {f.SRC: planes if label == 1 else top, f.SRC_1: one, f.DST: top})
    stage = Stage((1, 1, classes, rows), (classes * rows, classes * rows, rows, 1))
    _normalize(routine, memory_descs.dense((classes, rows)), plane, stage, planes, top, total, planes)
    routine.run(p.Reorder(turned, scores.matrix), {f.SRC: planes, f.DST: result})


def _normalize(
    routine: Routine,
    whole: p.MemoryDesc,
    line: p.MemoryDesc,
    stage: Stage,
    source: BufferView,
    top: BufferView,
    total: BufferView,
    result: BufferView,
) -> None:
    """result = e**(source - top) / total, total = its sums."""
    power = [("eltwise", a.EXP, 0.0, 0.0)]
    minus = Primitive("binary", a.SUBTRACT, whole, line, whole, post_ops=power)
    routine.run(minus, {f.SRC: source, f.SRC_1: top, f.DST: result})
    stage.add(routine, result, total, 1.0)
    _nan_where_huge(routine, line, total)
    routine.run(Primitive("binary", a.DIVIDE, whole, line, whole), {f.SRC: result, f.SRC_1: total, f.DST: result})


def _nan_where_huge(routine: Routine, line: p.MemoryDesc, total: BufferView) -> None:
    """total += 0 * (1e20 * total): NaN if huge. The library's e**NaN is about 1e38, each true power is at most 1."""
    zero_or_nan: list[PostOp] = [
        ("eltwise", a.LINEAR, 1e20, 0.0),
        ("eltwise", a.LINEAR, 0.0, 0.0),
        ("binary", a.ADD, line),
    ]
    made = Primitive("binary", a.MAXIMUM, line, line, line, post_ops=zero_or_nan)
    routine.run(made, {f.SRC: total, f.SRC_1: total, f.post_op(2): total, f.DST: total})


def softmax_cross_entropy_derivative(
    dlosses: TensorSpec, p: TensorSpec, target: TensorSpec, dx: TensorSpec
) -> Routine | None:
    """dx = p times its sample's factor; the host then writes the elements of the targets' classes."""
    scores = _Scores(p)
    if not scores.fit(target, p, dx) or not layouts.are_floats(dlosses):
        return None
    routine = Routine()
    indices, own, _ = _vectors(routine, scores)
    factors = routine.temporary((scores.samples,), "float32")

    def begin(dlosses: Array, p: Array, target: Array, indices: Array, own: Array, factors: Array) -> None:
        np.divide(dlosses, scores.rows // scores.samples, out=factors)
        scores.pick(p, target, indices, own)
        np.subtract(own, 1, out=own)
        of_samples = own.reshape(scores.samples, -1)
        np.multiply(of_samples, factors[:, None], out=of_samples)

    def finish(dlosses: Array, dx: Array, indices: Array, own: Array) -> None:
        scores.view(dx, -1)[indices] = own
        clear_unweighted(dlosses, dx)

    def scale(p: Array, factors: Array, dx: Array) -> None:
        samples = scores.samples, -1
        np.multiply(scores.view(p, *samples), factors[:, None], out=scores.view(dx, *samples))

    routine.call(begin, dlosses, p, target, indices, own, factors)
    if p.size <= _SMALL:
        routine.call(scale, p, factors, dx)
    else:
        samples, factor = (
            memory_descs.dense((scores.samples, p.size // scores.samples)),
            memory_descs.dense((scores.samples, 1)),
        )
        multiply = Primitive("binary", a.MULTIPLY, samples, factor, samples)
        routine.run(multiply, {f.SRC: p, f.SRC_1: factors, f.DST: dx})
    routine.call(finish, dlosses, dx, indices, own)
    return routine


def _lies_in_order(spec: TensorSpec) -> bool:
    return layouts.strides_of(spec) == ordered_strides(spec.shape, range(spec.ndim))
