"""Temporaries of the NumPy kernels: stated beforehand, carved out of the bytes that the caller gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from singa_lite.common.array_types import Array
from singa_lite.kernels.kernel_set import TensorSpec

Bytes = NDArray[np.uint8]
#: What rules of scratch go by: a tensor, or all that is known of it before there are bytes.
Shaped: TypeAlias = Array | TensorSpec
#: Shape and dtype of a buffer in the scratch.
BufferSpec = tuple[tuple[int, ...], DTypeLike]
Function = TypeVar("Function", bound=Callable[..., None])

ALIGNMENT = 64

#: Elements that blocked kernels work on at a time: 16 Ki of float32 are 64 KiB, so a few operands stay in L2.
BLOCK = 16 * 1024

#: Scratch rule of each kernel function that needs scratch.
RULES: dict[Callable[..., object], Callable[..., int]] = {}


def scratch(rule: Callable[..., int]) -> Callable[[Function], Function]:
    """State the bytes of scratch of the decorated kernel; `rule` takes the kernel's own arguments."""

    def enter(function: Function) -> Function:
        RULES[function] = rule
        return function

    return enter


def aligned(nbytes: int) -> int:
    """nbytes rounded up to the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def bytes_for(*buffers: BufferSpec) -> int:
    """Bytes that `carve` needs for these buffers."""
    total = 0
    for shape, dtype in buffers:
        size = 1
        for extent in shape:
            size *= extent
        total += aligned(size * np.dtype(dtype).itemsize)
    return total


def carve(scratch: Bytes, *buffers: BufferSpec) -> list[Array]:
    """Arrays of these shapes and dtypes, one behind the other in the scratch bytes, of which there are none for arrays
    without elements.
    """
    arrays, start = [], 0
    for shape, dtype in buffers:
        nbytes = bytes_for((shape, dtype))
        arrays.append(np.ndarray(shape, dtype, scratch[start : start + nbytes].data if nbytes else None))
        start += nbytes
    return arrays


def blocks(*arrays: Array, limit: int = BLOCK) -> Iterator[tuple[Array, ...]]:
    """Pieces of equally shaped arrays, at most `limit` elements each, the same piece of all at a time.

    Contiguous arrays are cut flat; with any other strides the first axis is split until pieces are small enough,
    so that no piece is ever a copy.
    """
    if all(a.flags.c_contiguous for a in arrays):
        flat = [a.reshape(-1) for a in arrays]
        for start in range(0, flat[0].size, limit):
            yield tuple(a[start : start + limit] for a in flat)
    elif arrays[0].size <= limit:
        yield arrays
    elif arrays[0].shape[0] == 1:
        yield from blocks(*(a[0] for a in arrays), limit=limit)
    else:
        half = arrays[0].shape[0] // 2
        yield from blocks(*(a[:half] for a in arrays), limit=limit)
        yield from blocks(*(a[half:] for a in arrays), limit=limit)
