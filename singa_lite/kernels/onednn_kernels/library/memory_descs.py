"""oneDNN's memory descriptors of tensors: as they lie, without gaps, or as a primitive chooses."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.library.layouts import strides_of
from singa_lite.kernels.onednn_kernels.library.primitive import MemoryDesc, memory_desc


def desc_of(spec: TensorSpec) -> MemoryDesc:
    """The descriptor of a tensor as it lies."""
    return memory_desc(spec.shape, strides_of(spec), str(spec.dtype))


def dense(shape: tuple[int, ...], dtype: str = "float32", axes: Sequence[int] | None = None) -> MemoryDesc:
    """The descriptor of a tensor without gaps. axes: from the outermost to the innermost, C order where None."""
    return memory_desc(shape, ordered_strides(shape, axes or range(len(shape))), dtype)


def any_layout(shape: tuple[int, ...], dtype: str = "float32") -> MemoryDesc:
    """The descriptor of a tensor that the primitive may lay out as is fastest for it."""
    return memory_desc(shape, None, dtype)
