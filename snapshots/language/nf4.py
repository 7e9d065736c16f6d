"""Weights of bitsandbytes's NF4 as numbers: 4 bits each, an entry of a table times the largest of its block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.raw import ByteArray
from singa_lite.snapshots.readers.safetensors import TensorInfo
from singa_lite.tensor import Shape

#: Where a weight's state lies beside it.
STATE = ".quant_state.bitsandbytes__nf4"
#: All that lies beside a weight.
BESIDE = (STATE, ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map")

Arrays = Mapping[str, tuple[TensorInfo, ByteArray]]


class PackedWeight:
    """A weight in NF4. name: of its bytes in the files; shape: (outputs, inputs). SnapshotError for a damaged one."""

    def __init__(self, where: str, name: str, arrays: Arrays) -> None:
        self._where, self._name, self._arrays = f"{where}: {name}", name, arrays
        data = self._bytes(STATE).tobytes()
        raw.allow(self._where, "its state", raw.json_cost(data), len(data))
        state: dict[str, Any] = raw.parse_json(self._where, "its state", data)
        shape, block, nested = (state.get(key) for key in ("shape", "blocksize", "nested_blocksize"))
        self.shape: Shape = tuple(shape) if isinstance(shape, list) else ()
        sizes = [*self.shape, block, *([] if nested is None else [nested])]
        whole = all(type(size) is int and size > 0 for size in sizes)
        if len(self.shape) != 2 or not whole or prod(self.shape) != 2 * self._bytes("").size:
            raise SnapshotError(
                f"{self._where}: wanted a shape of its bytes and sizes of blocks, received {str(state)[:200]}"
            )
        self._block, self._nested, self._offset = block, nested, state.get("nested_offset", 0.0)
        if type(self._offset) is not float and type(self._offset) is not int:
            raise SnapshotError(f"{self._where}: wanted a number as nested_offset, received {str(self._offset)[:100]}")

    def rows(self, count: int, use: Callable[[NDArray[np.float32]], ByteArray]) -> ByteArray:
        """Returns use(numbers) of `count` rows at a time, one below the other."""
        width, packed, table = self.shape[1], self._bytes("").reshape(-1), self._table(".quant_map", 16)
        largest = self._largest()
        pieces = []
        for row in range(0, self.shape[0], count):
            begin, end = row * width, min(row + count, self.shape[0]) * width
            pair = packed[begin // 2 : -(-end // 2)]
            codes = np.stack([pair >> 4, pair & 15], axis=-1).reshape(-1)[begin % 2 :][: end - begin]
            numbers = table[codes] * largest[np.arange(begin, end) // self._block]
            pieces.append(use(numbers.reshape(-1, width)))
        return np.concatenate(pieces)

    def _largest(self) -> NDArray[np.float32]:
        """The factor of each block."""
        blocks = -(-prod(self.shape) // self._block)
        if self._nested is None:
            return self._table(".absmax", blocks)
        codes = self._bytes(".absmax").reshape(-1)
        scales = self._table(".nested_absmax", -(-blocks // self._nested))
        if codes.size != blocks:
            raise SnapshotError(f"{self._where}.absmax: wanted {blocks} bytes, received {codes.size}")
        found = self._table(".nested_quant_map", 256)[codes] * scales[np.arange(blocks) // self._nested]
        return (found + np.float32(self._offset)).astype(np.float32)

    def _table(self, name: str, count: int) -> NDArray[np.float32]:
        info, data = self._entry(name)
        if info.code != "F32" or prod(info.shape) != count:
            raise SnapshotError(f"{self._where}{name}: wanted {count} F32, received {info.code} {info.shape}")
        return np.frombuffer(data.tobytes(), "<f4")

    def _bytes(self, name: str) -> ByteArray:
        info, data = self._entry(name)
        if info.code != "U8":
            raise SnapshotError(f"{self._where}{name}: wanted bytes, U8, received {info.code}")
        return data

    def _entry(self, name: str) -> tuple[TensorInfo, ByteArray]:
        if f"{self._name}{name}" not in self._arrays:
            raise SnapshotError(f"{self._where}: wanted a tensor {self._name + name!r} beside it, received none")
        return self._arrays[f"{self._name}{name}"]
