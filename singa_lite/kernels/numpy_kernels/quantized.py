"""Numbers of quantised blocks: formulas of ggml's formats over all blocks of some rows, written into the result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.ids import check_ids
from singa_lite.kernels.interface.quantized import FORMATS
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.pieces import pieces
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Bytes, Shaped, bytes_for, carve, scratch

#: Fills y (rows, blocks, numbers) from blocks (rows, blocks, bytes), with bytes to use in between (rows, blocks, ...).
Formula = Callable[[Array, Array, Array], None]
#: Bytes of scratch of a block: 32 codes, and 16 numbers by which groups are scaled; of bfloat16 its number.
_SPARE = {**dict.fromkeys(("q4_k", "q5_k", "q6_k"), 32 + 16 * 8), "bf16": 4}


def _halves(blocks: Array, start: int) -> Array:
    """The float16 that begins at a byte of each block, (rows, blocks, 1)."""
    return blocks[..., start : start + 2].view(np.float16)


def _nibbles(codes: Array, y: Array) -> None:
    """y = the low halves of the bytes, and behind them the high ones. codes: (..., n); y: (..., 2, n)."""
    np.bitwise_and(codes, 15, out=y[..., 0, :])
    np.right_shift(codes, 4, out=y[..., 1, :])


def _split(y: Array, *extents: int) -> Array:
    """The numbers of each block under these axes, (rows, blocks, *extents)."""
    return y.reshape(*y.shape[:2], *extents)


def _q4_0(blocks: Array, y: Array, spare: Array) -> None:
    _nibbles(blocks[..., 2:], _split(y, 2, 16))
    np.subtract(y, 8, out=y)
    np.multiply(y, _halves(blocks, 0), out=y)


def _q4_1(blocks: Array, y: Array, spare: Array) -> None:
    _nibbles(blocks[..., 4:], _split(y, 2, 16))
    np.multiply(y, _halves(blocks, 0), out=y)
    np.add(y, _halves(blocks, 2), out=y)


def _q8_0(blocks: Array, y: Array, spare: Array) -> None:
    np.multiply(blocks[..., 2:].view(np.int8), _halves(blocks, 0), out=y, dtype=y.dtype)


def _scale_groups(blocks: Array, y: Array, spare: Array) -> None:
    """y = d * scale * y - dmin * minimum of each group of 32: scales and minima are 6 bits each, in 12 bytes."""
    low, high, mixed = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    numbers = spare[..., 32:].view(y.dtype)
    for place, first, shift in ((0, low, 0), (1, high, 4)):
        scales, upper, lower = numbers[..., 8 * place : 8 * place + 8], spare[..., :4], spare[..., 4:8]
        np.bitwise_and(first, 63, out=scales[..., :4])
        np.right_shift(first, 2, out=upper)
        np.bitwise_and(upper, 48, out=upper)
        np.right_shift(mixed, shift, out=lower)
        np.bitwise_and(lower, 15, out=lower)
        np.bitwise_or(upper, lower, out=scales[..., 4:])
        np.multiply(scales, _halves(blocks, 2 * place), out=scales)
    groups = _split(y, 8, 32)
    np.multiply(groups, numbers[..., :8, None], out=groups)
    np.subtract(groups, numbers[..., 8:16, None], out=groups)


def _q4_k(blocks: Array, y: Array, spare: Array) -> None:
    _nibbles(_split(blocks[..., 16:], 4, 32), _split(y, 4, 2, 32))
    _scale_groups(blocks, y, spare)


def _q5_k(blocks: Array, y: Array, spare: Array) -> None:
    _nibbles(_split(blocks[..., 48:], 4, 32), _split(y, 4, 2, 32))
    bits, groups = spare[..., :32], _split(y, 8, 32)
    for group in range(8):
        np.right_shift(blocks[..., 16:48], group, out=bits)
        np.bitwise_and(bits, 1, out=bits)
        np.left_shift(bits, 4, out=bits)
        np.add(groups[..., group, :], bits, out=groups[..., group, :])
    _scale_groups(blocks, y, spare)


def _q6_k(blocks: Array, y: Array, spare: Array) -> None:
    _nibbles(_split(blocks[..., :128], 2, 64), _split(y, 2, 2, 64))
    bits, groups, upper = spare[..., :32], _split(y, 2, 4, 32), _split(blocks[..., 128:192], 2, 32)
    for half in range(2):
        for group in range(4):
            target = groups[..., half, group, :]
            np.right_shift(upper[..., half, :], 2 * group, out=bits)
            np.bitwise_and(bits, 3, out=bits)
            np.left_shift(bits, 4, out=bits)
            np.add(target, bits, out=target)
    np.subtract(y, 32, out=y)
    scales = spare[..., 32:].view(y.dtype)[..., :16]
    np.multiply(blocks[..., 192:208].view(np.int8), _halves(blocks, 208), out=scales, dtype=y.dtype)
    groups = _split(y, 16, 16)
    np.multiply(groups, scales[..., None], out=groups)


def _f16(blocks: Array, y: Array, spare: Array) -> None:
    np.copyto(y, _halves(blocks, 0))


def _bf16(blocks: Array, y: Array, spare: Array) -> None:
    """The upper half of a float32, whose lower one is 0."""
    wide = spare.view(np.uint32)
    np.copyto(wide, blocks.view(np.uint16))
    np.left_shift(wide, 16, out=wide)
    np.copyto(y, wide.view(np.float32))


_FORMULAS: dict[str, Formula] = {
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q8_0": _q8_0,
    "q4_k": _q4_k,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
    "f16": _f16,
    "bf16": _bf16,
}


def _rows(y: Shaped) -> int:
    """How many are done at a time."""
    return max(1, BLOCK // y.shape[-1])


def _spare_buffer(y: Shaped, format: str) -> BufferSpec:
    return (_rows(y), y.shape[-1] // FORMATS[format].numbers, _SPARE.get(format, 0)), np.uint8


@scratch(lambda blocks, y, *, format: bytes_for(_spare_buffer(y, format)))
def dequantize(blocks: Array, y: Array, *, format: str, scratch: Bytes) -> None:
    """Some rows at a time."""
    (spare,) = carve(scratch, _spare_buffer(y, format))
    _fill(blocks, y, format, spare)


def _fill(blocks: Array, y: Array, format: str, spare: Array) -> None:
    numbers, nbytes = FORMATS[format]
    count, step = y.shape[1] // numbers, spare.shape[0]
    for start in range(0, len(y), step):
        some, target = blocks[start : start + step], y[start : start + step]
        rows = len(some)
        with np.errstate(invalid="ignore"):
            _FORMULAS[format](some.reshape(rows, count, nbytes), target.reshape(rows, count, numbers), spare[:rows])


def _row_buffers(ids: Shaped, blocks: Shaped, y: Shaped, format: str) -> list[BufferSpec]:
    """Indices, as many rows of bytes and of numbers, and what is used in between."""
    rows = min(max(ids.size, 1), _rows(y))
    numbers = (rows, y.shape[-1]), y.dtype
    return [((rows,), np.intp), ((rows, blocks.shape[1]), np.uint8), numbers, _spare_buffer(y, format)]


@scratch(lambda ids, blocks, y, *, format: bytes_for(*_row_buffers(ids, blocks, y, format)))
def quantized_embedding(ids: Array, blocks: Array, y: Array, *, format: str, scratch: Bytes) -> None:
    """Some rows are gathered, and then their numbers."""
    check_ids("ids", ids, blocks.shape[0])
    index, rows, numbers, spare = carve(scratch, *_row_buffers(ids, blocks, y, format))
    for some, target in pieces(ids[..., None], y, whole=(ids.ndim,), limit=len(index)):
        count = some.size
        np.copyto(shaped(index, some.shape[:-1]), some[..., 0], casting="unsafe")
        np.take(blocks, index[:count], axis=0, out=rows[:count], mode="clip")
        _fill(rows[:count], numbers[:count], format, spare)
        np.copyto(target, numbers[:count].reshape(target.shape))
