"""bfloat16 for what is sent: the upper half of a float32's bits, rounded to the nearest, and the rest that is kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from singa_lite.common.array_types import Array

#: Elements that are worked on at a time: their temporaries stay in a cache.
BLOCK = 1 << 15
_QUIET_NAN = np.uint16(0x7FC0)


def narrow(values: Array, rest: Array, is_idle: bool) -> None:
    """values + rest, rounded to bfloat16, are the new values; what rounding took away is the new rest.

    So what is not sent in one step is sent in a later one (Seide and others, "1-bit stochastic gradient descent",
    2014). Of one axis, float32. is_idle: there are no values of this step. What is not finite leaves no rest.
    """
    if is_idle:
        values.fill(0)
    with np.errstate(invalid="ignore", over="ignore"):
        for at in blocks(values.size):
            whole = values[at] + rest[at]
            values[at] = wide(bits_of(whole))
            np.subtract(whole, values[at], out=whole)
            rest[at] = np.where(np.isfinite(whole), whole, 0)


def round_sums(values: Array, rest: Array) -> None:
    """Rounds this rank's own sums to bfloat16, as other ranks receive them, and adds the rounding errors to the rest.
    Sums that came from others are rounded already.

    With `narrow` that is error feedback both ways: Tang and others, "DoubleSqueeze", 2019, where whoever sums keeps its
    error by itself; here it goes with what the same rank sends next. Of one axis, float32.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        for at in blocks(values.size):
            sent = wide(bits_of(values[at]))
            left = np.subtract(values[at], sent)
            rest[at] += np.where(np.isfinite(left), left, 0)
            values[at] = sent


def bits_of(values: Array) -> Array:
    """Of float32, rounded to the nearest, ties to even; NaN is the quiet one. uint16 of their shape."""
    bits = values.view(np.uint32)
    rounded = ((bits + (np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1)))) >> 16).astype(np.uint16)
    rounded[np.isnan(values)] = _QUIET_NAN
    return rounded


def pack(values: Array, bits: Array) -> None:
    """bits = values that bfloat16 holds exactly. One axis, equally long."""
    for at in blocks(values.size):
        np.right_shift(values[at].view(np.uint32), 16, out=bits[at], casting="unsafe")


def pack_rounded(values: Array, bits: Array) -> None:
    """bits = values, rounded. One axis, equally long."""
    for at in blocks(values.size):
        bits[at] = bits_of(values[at])


def unpack(bits: Array, values: Array) -> None:
    """values = what the bits hold. One axis, equally long."""
    for at in blocks(values.size):
        values[at] = wide(bits[at])


def wide(part: Array) -> Array:
    """The values of bits; values as they are."""
    return (part.astype(np.uint32) << 16).view(np.float32) if part.dtype == np.uint16 else part


def blocks(elements: int) -> Iterator[slice]:
    """Elements that are worked on at a time."""
    for start in range(0, elements, BLOCK):
        yield slice(start, min(start + BLOCK, elements))
