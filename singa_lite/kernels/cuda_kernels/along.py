"""Element by element with a vector along one axis: biases, factors of samples."""

from __future__ import annotations

from singa_lite.kernels.cuda_kernels.elementwise import mapped
from singa_lite.kernels.cuda_kernels.routine import Routine, Types, Value
from singa_lite.kernels.kernel_set import TensorSpec


def mapped_along(
    axis: int,
    file: str,
    kernel: str,
    y: TensorSpec,
    *reads: TensorSpec,
    values: tuple[Value, ...] = (),
    types: Types | None = None,
) -> Routine | None:
    """`mapped`, the last of the reads a vector along `axis` of y."""
    *others, vector = reads
    axis %= y.ndim
    shape = tuple(extent if i == axis else 1 for i, extent in enumerate(y.shape))
    strides = tuple(vector.strides[0] if i == axis else 0 for i in range(y.ndim))
    seen = TensorSpec(shape, vector.dtype, strides)
    routine = mapped(file, kernel, y, *others, seen, values=values, types=types)
    return None if routine is None else routine.over({seen: vector})
