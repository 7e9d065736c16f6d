"""Cases of the kernels over quantised blocks, and what ggml's formats say of the numbers of a block, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernel_case import Case, Tensors, garbage
from kernel_cases_pointwise import normal
from singa_lite.kernels.interface.quantized import FORMATS

Made = tuple[Tensors, dict[str, Any]]
#: Rows and columns of a weight, by numbers of a block: of 32 or fewer, and of 256.
SHAPES = {False: {32: (7, 96), 256: (3, 256), 1: (7, 45)}, True: {32: (1037, 1056), 256: (523, 1280), 1: (1037, 1055)}}


def random_blocks(rng: np.random.Generator, rows: int, columns: int, format: str) -> np.ndarray:
    """Bytes of which any two are a float16 from 2**-7 to 1, and any other number what it may be."""
    return rng.integers(0x20, 0x3C, (rows, FORMATS[format].row_bytes(columns)), np.uint8)


def half(block: np.ndarray, at: int) -> np.ndarray:
    """The float16 that begins at this byte."""
    return block[at : at + 2].copy().view(np.float16).astype(np.float64)


def scale_and_minimum(block: np.ndarray, group: int) -> tuple[int, int]:
    """As `get_scale_min_k4` of ggml unpacks 12 bytes."""
    at = block[4:16].astype(int)
    if group < 4:
        return at[group] & 63, at[group + 4] & 63
    low, high = at[group + 4] & 15, at[group + 4] >> 4
    return low | (at[group - 4] >> 6) << 4, high | (at[group] >> 6) << 4


def numbers_of(block: np.ndarray, format: str) -> list[float]:
    """The numbers of one block, as `ggml-quants.c` reads it."""
    byte, made = block.astype(int), []
    if format == "f16":
        return [*half(block, 0)]
    if format == "bf16":
        return [float((np.uint32(block.copy().view(np.uint16)[0]) << 16).view(np.float32))]
    if format in ("q4_0", "q4_1"):
        d, low = half(block, 0)[0], -8 * half(block, 0)[0] if format == "q4_0" else half(block, 2)[0]
        codes = byte[2 if format == "q4_0" else 4 :]
        return [d * code + low for code in (*(codes & 15), *(codes >> 4))]
    if format == "q8_0":
        return [half(block, 0)[0] * code for code in block[2:].view(np.int8).astype(int)]
    if format == "q6_k":
        scales, d = block[192:208].view(np.int8).astype(int), half(block, 208)[0]
        for place in range(256):
            group, within = divmod(place, 128)
            quarter, at = divmod(within, 32)
            low = byte[64 * group + 32 * (quarter % 2) + at] >> 4 * (quarter // 2) & 15
            high = byte[128 + 32 * group + at] >> 2 * quarter & 3
            made.append(d * scales[place // 16] * ((low | high << 4) - 32))
        return made
    codes = byte[16 if format == "q4_k" else 48 :]
    for place in range(256):
        group, at = divmod(place, 32)
        scale, minimum = scale_and_minimum(block, group)
        code = codes[32 * (group // 2) + at] >> 4 * (group % 2) & 15
        if format == "q5_k":
            code |= (byte[16 + at] >> group & 1) << 4
        made.append(half(block, 0)[0] * scale * code - half(block, 2)[0] * minimum)
    return made


def numbers(blocks: np.ndarray, format: str) -> np.ndarray:
    """All numbers of a weight, float64 (rows, columns)."""
    each = blocks.reshape(blocks.shape[0], -1, FORMATS[format].nbytes)
    return np.array([[n for block in row for n in numbers_of(block, format)] for row in each], np.float64)


def weight(rng: np.random.Generator, format: str, big: bool) -> tuple[np.ndarray, int, int]:
    """Blocks, rows and columns of the weight of a case."""
    rows, columns = SHAPES[big][FORMATS[format].numbers]
    return random_blocks(rng, rows, columns, format), rows, columns


def plain(format: str) -> Case:
    """blocks, y."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        blocks, rows, columns = weight(rng, format, big)
        return [blocks, garbage((rows, columns), dtype)], {"format": format}

    return Case(build)


def by_ids(format: str, kind: type) -> Case:
    """ids, blocks, y."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        blocks, rows, columns = weight(rng, format, big)
        ids = rng.integers(0, min(rows, 100), (29, 37) if big else (1, 3)).astype(kind)
        return [ids, blocks, garbage((*ids.shape, columns), dtype)], {"format": format}

    return Case(build)


def product(
    format: str, back: bool = False, bias: bool = False, shape: tuple[int, int] | None = None, count: int = 523
) -> Case:
    """x, blocks, bias, y; or dy, blocks, dx. Of a big case: shape of the weight, and count of rows of x or dy."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        blocks, rows, columns = weight(rng, format, big)
        if shape is not None and big:
            rows, columns = shape
            blocks = random_blocks(rng, rows, columns, format)
        n, (into, out) = count if big else 3, (rows, columns) if back else (columns, rows)
        x, y = normal(rng, (n, into), dtype), garbage((n, out), dtype)
        beside = [] if back else [normal(rng, (rows,), dtype) if bias else None]
        return [x, blocks, *beside, y], {"format": format}

    return Case(build)


CASES: dict[str, Case] = {
    **{"dequantize" + (f":{name}" if at else ""): plain(name) for at, name in enumerate(FORMATS)},
    "quantized_embedding": by_ids("q8_0", np.int64),
    "quantized_embedding:groups": by_ids("q6_k", np.int32),
    "quantized_embedding:halves": by_ids("f16", np.uint8),
    "quantized_linear": product("q4_1", bias=True),
    "quantized_linear:groups": product("q4_k"),
    "quantized_linear:few rows": product("q8_0", shape=(1037, 2080), count=3),
    "quantized_linear:few rows, halves": product("f16", bias=True, shape=(1037, 2083), count=8),
    "quantized_linear_derivative": product("q4_1", back=True),
    "quantized_linear_derivative:groups": product("q6_k", back=True),
    # Of which the columns of a block of all rows are more than a tile.
    "quantized_linear_derivative:long": product("q8_0", back=True, shape=(20011, 96), count=67),
}
FORMULAS = {
    "dequantize": numbers,
    "quantized_embedding": lambda ids, blocks, format: numbers(blocks, format)[ids],
    "quantized_linear": lambda x, blocks, bias, format: x @ numbers(blocks, format).T + (0 if bias is None else bias),
    "quantized_linear_derivative": lambda dy, blocks, format: dy @ numbers(blocks, format),
}
