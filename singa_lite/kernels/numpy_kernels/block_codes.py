"""State of 8 bits in blocks: floats from scales and codes, and back, each float to the nearest code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.interface.state_format import dynamic_tree
from singa_lite.kernels.numpy_kernels.scratch import BufferSpec

_TINY = np.finfo(np.float32).tiny


class _Codes(NamedTuple):
    """A table of codes. numbers: what each code stands for. first, border: by the upper 16 bits of a float32, of all
    floats that have them: the code of the smallest, and the float beyond which it is one more.
    """

    numbers: Array
    first: Array
    border: Array


@cache
def _codes(squares: bool) -> _Codes:
    """A square above 0 never becomes 0: a step that is divided by its root would be without bound."""
    numbers = dynamic_tree(signed=not squares)
    middles = (numbers[1:] + numbers[:-1]) / 2
    if squares:
        middles[0] = 0
    ends = np.arange(2**16, dtype=np.uint32)[:, None] << 16 | np.array([0, 0xFFFF], np.uint32)
    least, most = np.sort(ends.view(np.float32), axis=1).T
    first = np.searchsorted(middles, least).clip(0, 255)
    border = np.where(np.searchsorted(middles, most) > first, middles[first.clip(0, 254)], np.float32(np.inf))
    return _Codes(numbers, first.astype(np.uint8), border.astype(np.float32))


def buffers(shape: tuple[int, int, int]) -> list[BufferSpec]:
    """What `read` and `write` work in. shape: (groups, blocks, elements) of a piece at most."""
    return [
        (shape, np.intp),
        (shape, np.float32),
        (shape, np.float32),
        (shape, np.uint8),
        (shape, np.bool_),
        (shape[:2], np.float32),
    ]


def read(kept: Array, out: Array, squares: bool, work: Sequence[Array]) -> None:
    """out: floats (groups, blocks, elements) of the groups kept (groups, bytes)."""
    index, numbers, *_ = (buffer[: len(out)] for buffer in work)
    scales, codes = _parts(kept, out.shape)
    np.copyto(index, codes)
    np.take(_codes(squares).numbers, index, out=numbers, mode="clip")
    np.multiply(numbers, scales[:, :, None], out=out)


def write(x: Array, kept: Array, squares: bool, work: Sequence[Array]) -> None:
    """kept = x, each block's scale the largest magnitude in it; NaN where that is not finite, 0 below normal floats."""
    index, numbers, borders, first, is_above, scales = (buffer[: len(x)] for buffer in work)
    table = _codes(squares)
    kept_scales, codes = _parts(kept, x.shape)
    np.abs(x, out=numbers, casting="same_kind")
    np.max(numbers, axis=2, out=scales)
    np.copyto(scales, np.nan, where=~np.isfinite(scales))
    np.copyto(scales, 0, where=scales < _TINY)
    np.copyto(kept_scales, scales)
    np.divide(x, np.maximum(scales, _TINY, out=scales)[:, :, None], out=numbers, casting="same_kind")
    np.right_shift(numbers.view(np.uint32), 16, out=index)
    np.take(table.border, index, out=borders, mode="clip")
    np.take(table.first, index, out=first, mode="clip")
    np.add(first, np.greater(numbers, borders, out=is_above), out=codes)


def _parts(kept: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Views of groups: scales (groups, blocks) and codes (groups, blocks, elements)."""
    groups, blocks, elements = shape
    codes = kept[:, 4 * blocks : 4 * blocks + blocks * elements]
    return kept[:, : 4 * blocks].view(np.float32), codes.reshape(groups, blocks, elements)
