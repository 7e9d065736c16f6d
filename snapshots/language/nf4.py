"""Weights of bitsandbytes's NF4 as numbers: 4 bits each, an entry of a table times the largest of its block."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.raw import ByteArray
from singa_lite.snapshots.readers.safetensors import TensorInfo

#: Where a weight's state lies beside it, and all that does.
STATE = ".quant_state.bitsandbytes__nf4"
BESIDE = (STATE, ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map")

Arrays = Mapping[str, tuple[TensorInfo, ByteArray]]


def numbers(where: str, name: str, arrays: Arrays) -> NDArray[np.float32]:
    """Returns a weight (outputs, inputs). name: of its bytes in the files; SnapshotError for a damaged one."""
    where = f"{where}: {name}"

    def part(suffix: str, code: str, count: int | None = None) -> NDArray[Any]:
        info, data = arrays.get(name + suffix, (None, None))
        if info is None or data is None or info.code != code or (count is not None and prod(info.shape) != count):
            raise SnapshotError(f"{where}{suffix}: wanted {count or 'some'} {code}, received {info and info[:2]}")
        return np.frombuffer(data.tobytes(), info.stored_dtype)

    packed, data = part("", "U8"), part(STATE, "U8").tobytes()
    raw.allow(where, "its state", raw.json_cost(data), len(data))
    state: dict[str, Any] = raw.parse_json(where, "its state", data)
    shape, block, nested, offset = (
        state.get(key, 0) for key in ("shape", "blocksize", "nested_blocksize", "nested_offset")
    )
    sizes = [*(shape if isinstance(shape, list) else []), block, *([nested] if nested else [])]
    are_sizes = all(type(size) is int and size > 0 for size in sizes) and isinstance(offset, int | float)
    if not are_sizes or len(sizes) != 3 + bool(nested) or sizes[0] * sizes[1] != 2 * packed.size:
        raise SnapshotError(f"{where}: wanted the shape of its bytes and sizes of blocks, received {str(state)[:200]}")
    blocks = -(-2 * packed.size // block)
    if not nested:
        largest = part(".absmax", "F32", blocks)
    else:
        scales = part(".nested_absmax", "F32", -(-blocks // nested))[np.arange(blocks) // nested]
        steps = part(".nested_quant_map", "F32", 256)[part(".absmax", "U8", blocks)]
        largest = steps * scales + np.float32(offset)
    codes = np.stack([packed >> 4, packed & 15], axis=-1).reshape(-1)  # the first number in the high half
    found = part(".quant_map", "F32", 16)[codes]
    found *= np.repeat(largest, block)[: found.size]
    return found.reshape(shape)
