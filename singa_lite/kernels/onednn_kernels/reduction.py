"""Sums along axes, in stages of a thousand terms or so: then float32 is exact enough for any number of them.

Along memory the library has a reduction. Across memory it has plain loops only; there a row of ones times the matrix
serves, which goes at the speed of memory. Extremes are left to the next set: the library's lose NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.library import algorithms, layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.conversion import written_as
from singa_lite.kernels.onednn_kernels.library.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine

#: dnnl_reduction_sum
_SUM = 0x2FFF4
#: Most terms of a stage: across memory they are added one by one, along it in sixteen lanes.
_ACROSS, _ALONG = 1 << 7, 1 << 12
#: A stage of fewer terms than _FEWEST leaves too much to the next one: before that, _MORE times the limit is allowed.
_FEWEST, _MORE = 16, 8
#: From so many elements on the library is faster than the host.
_ELEMENTS = 1 << 12


class _Run(NamedTuple):
    """Axes that lie evenly one behind the other, all of them summed over or all kept. stride: in elements."""

    extent: int
    stride: int
    summed: bool


class Stage(NamedTuple):
    """One summation, of an array (outer, groups, terms, inner) of this type to (outer, groups, 1, inner) in float32."""

    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]
    dtype: DType = layouts.FLOAT

    def primitive(self, alpha: float) -> Primitive:
        """`alpha` is applied to the sums, or by the row of factors that `across` takes, which has the array's type."""
        outer, groups, terms, inner = self.shape
        dtype = str(self.dtype)
        if self.across:
            factors = memory_descs.dense((1, 1, 1, terms), dtype)
            result = memory_descs.dense((outer, groups, 1, inner))
            lines = p.memory_desc(self.shape, self.strides, dtype)
            return Primitive("matmul", factors, lines, None, result, post_ops=self._post_ops(alpha))
        lines, result = p.memory_desc(self.shape[:3], self.strides[:3], dtype), memory_descs.dense((outer, groups, 1))
        return Primitive("reduction", _SUM, lines, result, 0.0, 0.0, post_ops=self._post_ops(alpha))

    def _post_ops(self, alpha: float) -> list[p.PostOp]:
        by_factors = self.across and self.dtype == layouts.FLOAT  # bfloat16 has few factors
        return [] if alpha == 1 or by_factors else [("eltwise", algorithms.LINEAR, alpha, 0.0)]

    @property
    def across(self) -> bool:
        """Whether the terms lie across memory, each row of them along it."""
        return self.shape[3] > 1

    def add(self, routine: Routine, source: BufferView, target: BufferView, alpha: float) -> bool:
        """The step: target = alpha * sums of source. Whether the library has more than plain loops for it."""
        primitive = self.primitive(alpha)
        if self.across:
            factors = routine.temporary(self.shape[2:3], self.dtype)
            routine.call(_filler(1.0 if self._post_ops(alpha) else alpha), factors)
            routine.run(primitive, {f.SRC: factors, f.WEIGHTS: source, f.DST: target})
        else:
            routine.run(primitive, {f.SRC: source, f.DST: target})
        return "ref" not in primitive.implementation


def reduce_sum(x: TensorSpec, y: TensorSpec, *, axes: tuple[int, ...], alpha: float) -> Routine | None:
    """Axes summed over need not be neighbours in memory; y lies without gaps, its axes in the order of x's."""
    if not layouts.are_stored(x, y) or (layouts.is_narrow(y) and y.ndim == 0):
        return None
    if x.size < _ELEMENTS and layouts.are_floats(x, y):
        return _on_host(x, y, axes, alpha)
    summed = {axis % x.ndim for axis in axes}
    if not _lies_as(y, x, summed):
        return None
    routine = Routine()
    with _in_float32(routine, y) as target:
        return routine if _add_stages(routine, x, _runs(x, summed), target, alpha) else None


def _in_float32(routine: Routine, y: TensorSpec) -> AbstractContextManager[BufferView]:
    """Gives what the steps inside are to write: y, or a copy in float32, which is rounded afterwards."""
    if layouts.are_floats(y):
        return nullcontext(y)
    return written_as(routine, y, memory_descs.desc_of(y), p.memory_desc(y.shape, layouts.strides_of(y)))


def _add_stages(routine: Routine, x: TensorSpec, runs: list[_Run], result: BufferView, alpha: float) -> bool:
    """Add the steps. Whether the library has code for them."""
    source: BufferView = x
    dtype = x.dtype
    while source is not result:
        stage = _stage(runs)
        if stage is None:
            return False
        runs = _remaining_runs(runs, stage)
        last = not any(run.summed for run in runs)
        target = result if last else routine.temporary((prod(run.extent for run in runs),), "float32")
        if not stage._replace(dtype=dtype).add(routine, source, target, alpha if last else 1.0):
            return False
        source, dtype = target, layouts.FLOAT
    return True


def _on_host(x: TensorSpec, y: TensorSpec, axes: tuple[int, ...], alpha: float) -> Routine:
    """The sums on the host, in float64."""

    def add(x: Array, totals: Array, y: Array) -> None:
        np.add.reduce(x, axis=axes, dtype=np.float64, keepdims=y.ndim == x.ndim, out=totals)
        np.multiply(totals, alpha, out=y)

    routine = Routine()
    routine.call(add, x, routine.temporary(y.shape, "float64"), y)
    return routine


def bias_gradient(dy: TensorSpec, db: TensorSpec, *, axis: int) -> Routine | None:
    """Images channels last and dense layers: sums of columns."""
    others = tuple(other for other in range(dy.ndim) if other != axis % dy.ndim)
    return reduce_sum(dy, db, axes=others, alpha=1.0)


def _lies_as(y: TensorSpec, x: TensorSpec, summed: set[int]) -> bool:
    """Whether y lies without gaps, the axes that are kept in the same order as in x."""
    kept = [axis for axis in layouts.order_of(x) if axis not in summed]
    axes_of_y = {axis: index for index, axis in enumerate(sorted(kept))} if y.ndim < x.ndim else {a: a for a in kept}
    wanted = ordered_strides([x.shape[axis] for axis in kept], range(len(kept)))
    strides = layouts.strides_of(y)
    return all(
        strides[axes_of_y[axis]] == stride or x.shape[axis] == 1 for axis, stride in zip(kept, wanted, strict=True)
    )


def _runs(x: TensorSpec, summed: set[int]) -> list[_Run]:
    """The axes of x as runs, in the order of memory."""
    strides = layouts.strides_of(x)
    return _merged([_Run(x.shape[axis], strides[axis], axis in summed) for axis in layouts.order_of(x)])


def _merged(axes: list[_Run]) -> list[_Run]:
    """As few runs as there can be."""
    runs: list[_Run] = []
    for run in (run for run in axes if run.extent > 1):
        if runs and runs[-1].summed == run.summed and runs[-1].stride == run.extent * run.stride:
            run = run._replace(extent=run.extent * runs.pop().extent)
        runs.append(run)
    return runs


def _stage(runs: list[_Run]) -> Stage | None:
    """The first sum, of the outermost run that is summed over; None where memory is too uneven for it."""
    index = [run.summed for run in runs].index(True) if any(run.summed for run in runs) else len(runs)
    if index > 1 or index == len(runs):
        return None
    run, behind = runs[index], runs[index + 1 :]
    inner = prod(other.extent for other in behind)
    dense = ordered_strides([other.extent for other in behind], range(len(behind)))
    if tuple(other.stride for other in behind) != dense or (not behind and run.stride != 1):
        return None
    limit = _ACROSS if behind else _ALONG
    terms = _divisor(run.extent, limit)
    if terms < _FEWEST:
        terms = _divisor(run.extent, _MORE * limit)
    if run.stride <= 0 or terms < min(run.extent, _FEWEST):
        return None
    size = run.extent * run.stride
    outer = runs[0] if index else _Run(1, size, False)
    strides = outer.stride, terms * run.stride, run.stride, 1
    return Stage((outer.extent, run.extent // terms, terms, inner), strides)


def _divisor(extent: int, most: int) -> int:
    """The largest divisor of the extent that is at most `most`."""
    return max(n for n in range(1, min(extent, most) + 1) if extent % n == 0)


def _remaining_runs(runs: list[_Run], stage: Stage) -> list[_Run]:
    """The runs that a stage leaves, without gaps."""
    outer, groups, _, _ = stage.shape
    index = [run.summed for run in runs].index(True)
    axes = [(outer, False), (groups, True), *((run.extent, run.summed) for run in runs[index + 1 :])]
    strides = ordered_strides([extent for extent, _ in axes], range(len(axes)))
    return _merged([_Run(extent, stride, summed) for (extent, summed), stride in zip(axes, strides, strict=True)])


def _filler(value: float) -> Callable[[Array], None]:
    return lambda array: array.fill(value)
