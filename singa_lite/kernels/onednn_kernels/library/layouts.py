"""In which order, and with which gaps, the elements of a tensor lie in memory, by its `TensorSpec`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from singa_lite.common.strides import memory_order, ordered_strides
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.widening import NARROW

FLOAT = np.dtype(np.float32)
#: Axes of an image from the outermost to the innermost: rows, columns, then channels.
CHANNELS_LAST = (0, 2, 3, 1)
#: Axes of filters (k, c, kh, kw): kernels innermost, as the forward convolution reads them without a copy.
KERNELS_LAST = (2, 3, 1, 0)


def are_floats(*specs: TensorSpec | None) -> bool:
    """Whether all are float32, the only float type in which the library trains on every CPU."""
    return all(spec is None or spec.dtype == FLOAT for spec in specs)


def is_narrow(spec: TensorSpec) -> bool:
    """Whether it is bfloat16, in which activations and their derivatives may be stored."""
    return spec.dtype.name == NARROW


def are_stored(*specs: TensorSpec) -> bool:
    """Whether each is float32 or bfloat16."""
    return all(spec.dtype == FLOAT or is_narrow(spec) for spec in specs)


def are_of_one_type(*specs: TensorSpec) -> bool:
    """Whether all are float32, or all bfloat16."""
    return are_stored(*specs) and len({spec.dtype.name for spec in specs}) == 1


def factors_of(*specs: TensorSpec) -> str:
    """The type of both operands of a product, by how these are stored: bfloat16 if any is."""
    return NARROW if any(map(is_narrow, specs)) else FLOAT.name


def are_interleaved(spec: TensorSpec) -> bool:
    """Whether an axis begins anew before the one within it has ended, as in every other column of an odd number.

    The library takes no such strides.
    """
    axes = sorted((stride, extent) for extent, stride in zip(spec.shape, spec.strides, strict=True) if extent > 1)
    return any(0 < outer < stride * extent for (stride, extent), (outer, _) in pairwise(axes))


def strides_of(spec: TensorSpec) -> tuple[int, ...]:
    """Strides in elements. Along axes of extent 1, where they do not matter, those of the layout that the rest has."""
    size = spec.dtype.itemsize
    strides = tuple(stride // size for stride in spec.strides)
    orders = (CHANNELS_LAST, range(4)) if spec.ndim == 4 else (range(spec.ndim),)
    for axes in orders:
        wanted = ordered_strides(spec.shape, axes)
        if all(e == 1 or a == b for e, a, b in zip(spec.shape, strides, wanted, strict=True)):
            return wanted
    return strides


def order_of(spec: TensorSpec) -> tuple[int, ...]:
    """The axes from the outermost to the innermost."""
    return memory_order(spec.shape, strides_of(spec))


def is_dense(spec: TensorSpec, axes: Sequence[int] | None = None) -> bool:
    """Whether the elements lie without gaps, the axes in this order, outermost first, or in any order."""
    wanted = ordered_strides(spec.shape, order_of(spec) if axes is None else axes)
    return all(e == 1 or a == b for e, a, b in zip(spec.shape, strides_of(spec), wanted, strict=True))


def lies_in_order(spec: TensorSpec, axes: Sequence[int]) -> bool:
    """Whether the axes lie in this order, outermost first, perhaps with gaps. Extents of 1 fit any order."""
    reach = 0
    for axis in reversed(axes):
        extent, stride = spec.shape[axis], spec.strides[axis]
        if extent == 1:
            continue
        if stride < max(reach, spec.dtype.itemsize):
            return False
        reach = stride * extent
    return True
