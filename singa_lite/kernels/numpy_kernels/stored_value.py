"""Values in bfloat16: rounded by chance, or to nearest with what is left over in 8 bits."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels import bfloat16
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Bytes, Shaped, blocks, bytes_for, carve, scratch
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.philox import generator

_HALF_BYTE, _HALF, _LAST = np.uint32(0x7F), np.uint32(0x8000), np.uint32(0xFF00)
_NAN = np.uint16(0x7FC0)


def key_of(count: Array) -> np.uint32:
    """The upper half of the first word of Philox for this update of a parameter."""
    updates, seed, stream = np.asarray(count).view(np.uint64)
    word = generator(np.array([seed, stream, updates], np.uint64)).bit_generator.random_raw()
    return np.uint32(word >> 32)


@scratch(lambda x, count, value: bytes_for(*bfloat16.buffers(x)))
def round_by_chance(x: Array, count: Array, value: Array, *, scratch: Bytes) -> None:
    """As state in bfloat16 is rounded, by a key of the parameter's own."""
    work = carve(scratch, *bfloat16.buffers(x))
    key = key_of(count)
    for piece, target in blocks(x, value.view(np.uint16)):
        bfloat16.write(piece, target, key, work)


@scratch(lambda x, value, error: bytes_for(*_words(x)))
def split_error(x: Array, value: Array, error: Array, *, scratch: Bytes) -> None:
    """Bits of a float32 as a whole number: its upper half, rounded, and a signed byte below it."""
    *words, mask = carve(scratch, *_words(x))
    for piece, target, left in blocks(x, value.view(np.uint16), error):
        bits, rounded = (shaped(word, piece.shape) for word in words)
        np.copyto(bits.view(np.float32), piece)
        np.right_shift(bits, 8, out=rounded)
        np.bitwise_and(rounded, 1, out=rounded)
        np.add(rounded, _HALF_BYTE, out=rounded)
        np.add(bits, rounded, out=bits)
        np.bitwise_and(bits, ~np.uint32(0xFF), out=bits)
        np.add(bits, _HALF, out=rounded)
        np.right_shift(rounded, 16, out=rounded)
        np.copyto(target, rounded, casting="same_kind")
        np.bitwise_and(bits, _LAST, out=bits)
        np.right_shift(bits, 8, out=bits)
        np.copyto(left.view(np.uint8), bits, casting="same_kind")
        is_nan = np.isnan(piece, out=shaped(mask, piece.shape))
        np.copyto(target, _NAN, where=is_nan)
        np.copyto(left, 0, where=is_nan)


@scratch(lambda value, error, y: bytes_for(*_words(y)))
def add_error(value: Array, error: Array, y: Array, *, scratch: Bytes) -> None:
    """The same the other way."""
    *words, _ = carve(scratch, *_words(y))
    for piece, left, target in blocks(value.view(np.uint16), error, y):
        bits, below = (shaped(word, piece.shape).view(np.int32) for word in words)
        np.copyto(bits, piece)
        np.left_shift(bits, 16, out=bits)
        np.copyto(below, left)
        np.left_shift(below, 8, out=below)
        np.add(bits, below, out=bits)
        np.copyto(target, bits.view(np.float32))


def _words(x: Shaped) -> list[BufferSpec]:
    size = (min(BLOCK, x.size),)
    return [(size, np.uint32), (size, np.uint32), (size, np.bool_)]
