"""Attention of the rows behind a position over keys and values that are kept: a block for each row of each head."""

from __future__ import annotations

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.routine import Routine, Types
from singa_lite.kernels.cuda_kernels.source import TYPES, are_floats
from singa_lite.kernels.cuda_kernels.walk import power_of_two, steps

#: As in cached_attention.cu: keys of a tile, which are threads of a block, and features of a head at most.
KEYS, FEATURES = 128, 1024
FILE = "cached_attention.cu"
_STEPS = np.dtype([("of", "i8", 4)])
_EXTENTS = np.dtype(
    [
        *((name, "i8") for name in ("rows", "heads", "share", "length", "size", "width")),
        *((name, "i8", 2) for name in ("mask_steps", "first_steps")),
        ("scale", "f8"),
    ]
)


def _cached_attention(call: Call) -> Routine | None:
    """None for heads of more features than a block keeps."""
    q, keys, values, y, position = (call[name] for name in ("q", "keys", "values", "y", "position"))
    mask, first = call.optional("mask"), call.optional("first")
    samples, rows, heads, size = q.shape
    others = [spec.dtype.name for spec in (mask, first) if spec is not None]
    if not are_floats(q, keys, values, y) or size > FEATURES or not TYPES.keys() >= {*others}:
        return None
    extents = np.zeros((), _EXTENTS)
    extents["rows"], extents["heads"], extents["share"] = rows, heads, heads // keys.shape[2]
    extents["length"], extents["size"], extents["scale"] = keys.shape[1], size, call.number("scale")
    extents["width"] = min(KEYS, power_of_two(size))
    for name, spec in (("mask_steps", mask), ("first_steps", first)):
        if spec is not None:
            extents[name] = steps(spec)
    structs = [np.array((steps(spec),), _STEPS) for spec in (q, keys, values, y)]
    types: Types = {
        "T": q.dtype,
        "M": np.bool_ if mask is None else mask.dtype,
        "F": np.int32 if first is None else first.dtype,
    }
    operands = q, keys, values, mask, first, position, y
    grid = samples * rows * heads
    return Routine().launch(FILE, call.kernel, *operands, extents, *structs, types=types, grid=grid, block=KEYS)


KERNELS: dict[str, CallBuilder[Routine]] = {"cached_attention": _cached_attention}
