"""Conversions between float32 and bfloat16 by the library's reorders, which go through memory with all its threads.

As the processor's instruction rounds: to the nearest, NaN stays NaN, and numbers below 2**-126 become 0.
"""

from __future__ import annotations

from singa_lite.common.array_types import Array
from singa_lite.kernels.kernel_set import Launch, TensorSpec
from singa_lite.kernels.onednn_kernels import one_thread
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.routine import MOST_ELEMENTS


def converted(source: Array, target: Array) -> Launch | None:
    """A call that fills the target; it holds the arrays, as the library knows addresses only.

    None for what the library has no fast code for.
    """
    if not 0 < source.size <= MOST_ELEMENTS or any(stride <= 0 for stride in (*source.strides, *target.strides)):
        return None
    specs = [TensorSpec(array.shape, array.dtype, array.strides) for array in (source, target)]
    if all(map(layouts.is_dense, specs)):
        specs = [TensorSpec((spec.size,), spec.dtype, (spec.dtype.itemsize,)) for spec in specs]
    small = source.size <= one_thread.SMALL
    with one_thread.making_if(small):
        reorder = p.Reorder(*map(memory_descs.desc_of, specs))
    if "jit" not in reorder.implementation:
        return None
    launch = reorder.bind({f.SRC: source, f.DST: target})
    launch.arrays = source, target  # type: ignore[attr-defined]
    return one_thread.running(launch) if small else launch
