"""Cases of the kernels over values that are stored in bfloat16; `tests/test_parameter_dtype.py` has what they round."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from kernel_case import Case, Tensors, garbage

Made = tuple[Tensors, dict[str, Any]]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def shape(big: bool) -> tuple[int, int]:
    """Of which all extents differ."""
    return (811, 1027) if big else (7, 5)


def build_round_by_chance(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    """Numbers that bfloat16 holds, which stay as they are."""
    x = rng.normal(size=shape(big)).astype(BFLOAT16)
    return [x.astype(dtype), np.array([3, 5, 9], np.int64), np.full(x.shape, np.nan, BFLOAT16)], {"start": 11}


def build_split_error(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    value, error = stored(rng, big)
    return [wide(value, error).astype(dtype), np.full(value.shape, np.nan, BFLOAT16), np.full_like(error, 99)], {}


def build_add_error(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    return [*stored(rng, big), garbage(shape(big), dtype)], {}


def build_add_stored(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    return [*stored(rng, big), rng.normal(size=shape(big)).astype(dtype)], {"alpha": -0.75}


def stored(rng: np.random.Generator, big: bool) -> tuple[np.ndarray, np.ndarray]:
    """Values, and what was left over."""
    x = rng.uniform(1.1, 1.9, shape(big)) * np.exp2(rng.integers(-3, 4, shape(big)))
    return x.astype(BFLOAT16), rng.integers(-128, 128, x.shape, np.int8)


def wide(value: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Both in one: the last of 8 bits of a mantissa is 2**-7 of the power of two below the number."""
    x = value.astype(float)
    return x + error * np.exp2(np.floor(np.log2(np.abs(x))) - 7 - 8)


def split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest number of 8 bits, up in between, and the rest."""
    last = np.exp2(np.floor(np.log2(np.abs(x))) - 7)
    value = np.floor(x / last + 0.5) * last
    return value, (x - value) / last * 256


CASES: dict[str, Case] = {
    "round_by_chance": Case(build_round_by_chance),
    "split_error": Case(build_split_error),
    "add_error": Case(build_add_error),
    "add_stored": Case(build_add_stored),
}
FORMULAS = {
    "round_by_chance": lambda x, start: x,
    "split_error": split,
    "add_error": wide,
    "add_stored": lambda value, error, y, alpha: y + alpha * wide(value, error),
}
