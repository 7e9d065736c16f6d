"""Products by NumPy's BLAS: those for which the library's code is slow where there is no AVX-512.

With AVX-512 the library copies what it multiplies into blocks first. Its code for AVX2 does so for large products only;
in others it goes down the columns of the stored rows. Where these lie a multiple of 2 KiB apart, they meet in the same
few sets of the cache, and a product takes up to 2.8 times as long (docs/measurements.md, "Without AVX-512"). BLAS
copies always. It runs on one thread here, as its waiting threads would take the cores from OpenMP's, so the workers of
`kernels/workers.py` do a part of the result each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from singa_lite.common import threads
from singa_lite.common.array_types import Array
from singa_lite.kernels import workers
from singa_lite.kernels.kernel_set import Launch, TensorSpec
from singa_lite.kernels.onednn_kernels import one_thread
from singa_lite.kernels.onednn_kernels.library.library import load
from singa_lite.kernels.onednn_kernels.matrix import Matrix
from singa_lite.kernels.onednn_kernels.routine import Arrays, Routine
from singa_lite.kernels.routine import Step

#: Elements from one row to the next, of which a multiple is slow.
_SLOW_PITCH = 512
#: The library copies from this sum of 1 / rows and 1 / columns of the result down (`nocopy_checker_avx2` in its
#: `src/cpu/x64/gemm/gemm_driver.cpp`).
_COPIED = 0.0038
#: Rows or columns of a result, and multiplications, from which on BLAS is faster.
_LEAST_ROWS, _LEAST = 8, 1 << 18
#: Multiplications from which on a product is shared, and rows or columns of a part.
_LEAST_SHARED, _LEAST_PART = 1 << 22, 64


def is_faster(left: Matrix, right: Matrix, result: Matrix) -> bool:
    """Whether left @ right is faster by BLAS than by the library, as far as it can do it."""
    if len(result.shape) != 2 or not result.lies_by_rows or load().has_avx512:
        return False
    rows, columns = result.shape
    is_large = min(rows, columns) >= _LEAST_ROWS and rows * columns * left.shape[1] >= _LEAST
    return is_large and 1 / rows + 1 / columns >= _COPIED and (_is_slow(left.transposed) or _is_slow(right))


def _is_slow(factor: Matrix) -> bool:
    """Whether the columns of its stored rows are gone down, one element of a row after that of another."""
    return factor.lies_by_rows and factor.shape[0] > 1 and factor.strides[0] % _SLOW_PITCH == 0


def product(left: Matrix, right: Matrix, result: Matrix, bias: TensorSpec | None, relu: bool) -> Routine:
    """result = left @ right + bias; relu: the larger of 0 and that."""
    routine = Routine()
    routine.steps.append(_Product(left, right, result, bias, relu))
    return routine


class _Product(Step[Arrays]):
    """The product, a part of it in each slot."""

    def __init__(self, left: Matrix, right: Matrix, result: Matrix, bias: TensorSpec | None, relu: bool) -> None:
        self.left, self.right, self.result, self.bias, self.relu = left, right, result, bias, relu
        is_shared = result.shape[0] * result.shape[1] * left.shape[1] >= _LEAST_SHARED
        self.slots = max(min(one_thread.slots(), max(result.shape) // _LEAST_PART), 1) if is_shared else 1

    def bind(self, binding: Arrays) -> Launch:
        """The product over these arrays."""
        left, right, result = (_array(binding, matrix) for matrix in (self.left, self.right, self.result))
        parts = list(_parts(_Part(left, right, result, binding[self.bias], self.relu), self.slots))
        if len(parts) == 1:
            return threads.on_one_blas_thread(parts[0].multiply)
        work = partial(_multiply, parts)
        return threads.on_one_blas_thread(workers.sharing(len(parts), [work] * len(parts)))


class _Part(NamedTuple):
    """A part of the columns, or of the rows, of a result, and what makes it."""

    left: Array
    right: Array
    result: Array
    bias: Array | None
    relu: bool

    def multiply(self) -> None:
        """Make it."""
        np.matmul(self.left, self.right, out=self.result)
        if self.bias is not None:
            np.add(self.result, self.bias, out=self.result)
        if self.relu:
            np.maximum(self.result, 0, out=self.result)


def _array(binding: Arrays, matrix: Matrix) -> Array:
    array = binding.array(matrix.tensor)
    strides = tuple(step * array.itemsize for step in matrix.strides)
    return np.lib.stride_tricks.as_strided(array, matrix.shape, strides)


def _parts(whole: _Part, count: int) -> Iterator[_Part]:
    """Of the longer axis of the result, as each part copies the whole of the factor along the other one."""
    left, right, result, bias, relu = whole
    extent, is_wide = max(result.shape), result.shape[1] >= result.shape[0]
    for part in range(count):
        own = slice(extent * part // count, extent * (part + 1) // count)
        if is_wide:
            yield _Part(left, right[:, own], result[:, own], None if bias is None else bias[own], relu)
        else:
            yield _Part(left[own], right, result[own], bias, relu)


def _multiply(parts: Sequence[_Part], taken: Iterator[int]) -> None:
    for index in taken:
        parts[index].multiply()
