"""bfloat16 in uint16: the upper half of a float32's bits, rounded by chance so that the mean is right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Shaped

# Odd constants that spread bits: the golden ratio's, and one of MurmurHash3's finalizer.
_SPREAD, _MIX = np.uint32(0x9E3779B1), np.uint32(0x85EBCA6B)
_QUIET_NAN = np.uint16(0x7FC0)


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


def write(x: Array, kept: Array, key: np.uint32, work: Sequence[Array]) -> None:
    """kept = x, rounded up or down at random: up with the probability that the bits cut off give. NaN becomes the quiet
    one.

    The chance comes from the number's own bits and from `key`, which is another one at each update, not from a
    generator that counts elements: so pieces and layouts do not matter. What bfloat16 holds exactly is kept exactly.
    """
    bits, chance, shifted = (shaped(buffer, x.shape) for buffer in work[:3])
    is_nan = np.isnan(x, out=shaped(work[3], x.shape))
    np.copyto(bits.view(np.float32), x, casting="same_kind")
    np.add(bits, key, out=chance)
    np.multiply(chance, _SPREAD, out=chance)
    np.right_shift(chance, 15, out=shifted)
    np.bitwise_xor(chance, shifted, out=chance)
    np.multiply(chance, _MIX, out=chance)
    np.right_shift(chance, 16, out=chance)
    np.add(bits, chance, out=bits)
    np.right_shift(bits, 16, out=bits)
    np.copyto(kept, bits, casting="same_kind")
    np.copyto(kept, _QUIET_NAN, where=is_nan)
