"""bfloat16: the upper half of a float32's bits, rounded by chance so that the mean is right, or with what is left over.

State of updates is uint16, values are ml_dtypes' bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Bytes, Shaped, blocks, bytes_for, carve, scratch
from singa_lite.kernels.philox import generator

# Odd constants that spread bits: the golden ratio's, and one of MurmurHash3's finalizer.
_SPREAD, _MIX = np.uint32(0x9E3779B1), np.uint32(0x85EBCA6B)
_QUIET_NAN = np.uint16(0x7FC0)
#: What a place in memory counts as, and the first places of a block.
_PLACE = np.uint32(0x9E3779B9)
_PLACES = np.arange(BLOCK, dtype=np.uint32) * _PLACE
#: Of a float32's bits: nearly half of what 24 bits leave out, half of what 16 bits leave out, and the byte between.
_HALF_BYTE, _HALF, _LAST = np.uint32(0x7F), np.uint32(0x8000), np.uint32(0xFF00)


def buffers(value: Shaped) -> list[BufferSpec]:
    """What `read` and `write` work in, for at most BLOCK elements."""
    size = (min(BLOCK, value.size),)
    return [(size, np.uint32), (size, np.uint32), (size, np.uint32), (size, np.bool_)]


def read(kept: Array, out: Array, work: Sequence[Array]) -> None:
    """out: floats of kept's shape."""
    bits = shaped(work[0], kept.shape)
    np.copyto(bits, kept)
    np.left_shift(bits, 16, out=bits)
    np.copyto(out, bits.view(np.float32))


def key(t: int, salt: int) -> np.uint32:
    """A number for update t of a parameter and its state number `salt`, spread over 32 bits."""
    mixed = (2 * t + salt + 1) * 0x9E3779B97F4A7C15 % 2**64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    return np.uint32((mixed ^ mixed >> 27) >> 32)


def write(x: Array, kept: Array, key: np.uint32, work: Sequence[Array], places: Array | None = None) -> None:
    """kept = x, rounded up or down at random: up with the probability that the bits cut off give. NaN becomes the quiet
    one.

    The chance comes from the number's own bits and from `key`, which is another one at each update, not from a
    generator that counts elements: so pieces and layouts do not matter. What bfloat16 holds exactly is kept exactly.
    places: numbers that enter too, one for each element.
    """
    bits, chance, shifted = (shaped(buffer, x.shape) for buffer in work[:3])
    is_nan = np.isnan(x, out=shaped(work[3], x.shape))
    np.copyto(bits.view(np.float32), x, casting="same_kind")
    np.add(bits, key, out=chance)
    if places is not None:
        np.add(chance, places, out=chance)
    np.multiply(chance, _SPREAD, out=chance)
    np.right_shift(chance, 15, out=shifted)
    np.bitwise_xor(chance, shifted, out=chance)
    np.multiply(chance, _MIX, out=chance)
    np.right_shift(chance, 16, out=chance)
    np.add(bits, chance, out=bits)
    np.right_shift(bits, 16, out=bits)
    np.copyto(kept, bits, casting="same_kind")
    np.copyto(kept, _QUIET_NAN, where=is_nan)


def key_of(count: Array) -> np.uint32:
    """The upper half of the first word of Philox for this update of a parameter."""
    updates, seed, stream = np.asarray(count).view(np.uint64)
    word = generator(np.array([seed, stream, updates], np.uint64)).bit_generator.random_raw()
    return np.uint32(word >> 32)


@scratch(lambda x, count, value, **_: bytes_for(*buffers(x)))
def round_by_chance(x: Array, count: Array, value: Array, *, start: int, scratch: Bytes) -> None:
    """As state in bfloat16 is rounded, but that places in memory count, too: equal numbers do not move as one."""
    work, key = carve(scratch, *buffers(x)), int(key_of(count))
    order = sorted(range(value.ndim), key=lambda axis: -value.strides[axis])
    for piece, target in blocks(x.transpose(order), value.transpose(order).view(np.uint16)):
        places = _PLACES[: piece.size].reshape(piece.shape)
        write(piece, target, np.uint32((key + start * int(_PLACE)) % 2**32), work, places)
        start += piece.size


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
        np.copyto(target, _QUIET_NAN, where=is_nan)
        np.copyto(left, 0, where=is_nan)


@scratch(lambda value, error, y: bytes_for(*_words(y)))
def add_error(value: Array, error: Array, y: Array, *, scratch: Bytes) -> None:
    """The same the other way."""
    for wide, target in _with_error(value, error, y, scratch):
        np.copyto(target, wide)


@scratch(lambda value, error, y, alpha: bytes_for(*_words(y)))
def add_stored(value: Array, error: Array, y: Array, *, alpha: float, scratch: Bytes) -> None:
    """The same, times a number."""
    for wide, target in _with_error(value, error, y, scratch):
        np.multiply(wide, np.float32(alpha), out=wide)
        np.add(target, wide, out=target)


def _with_error(value: Array, error: Array, y: Array, scratch: Bytes) -> Iterator[tuple[Array, Array]]:
    """Blocks of the value with its error, in float32, and of y."""
    *words, _ = carve(scratch, *_words(y))
    for piece, left, target in blocks(value.view(np.uint16), error, y):
        bits, below = (shaped(word, piece.shape).view(np.int32) for word in words)
        np.copyto(bits, piece)
        np.left_shift(bits, 16, out=bits)
        np.copyto(below, left)
        np.left_shift(below, 8, out=below)
        np.add(bits, below, out=bits)
        yield bits.view(np.float32), target


def _words(x: Shaped) -> list[BufferSpec]:
    size = (min(BLOCK, x.size),)
    return [(size, np.uint32), (size, np.uint32), (size, np.bool_)]
