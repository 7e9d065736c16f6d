"""Temporaries of kernels that work block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.scratch import (
    BLOCK,
    RULES,
    BufferSpec,
    Bytes,
    Shaped,
    blocks,
    bytes_for,
    carve,
)

Function = Callable[..., None]


@dataclass(frozen=True)
class Temporaries:
    """One block's temporaries of a blocked kernel: `floats` of x's dtype (float32 at least), `masks` of bool.

    `bytes` is the kernel's scratch rule and `blocks` cuts the same bytes up, so that the two cannot disagree.
    """

    floats: int = 0
    masks: int = 0

    def buffers(self, x: Shaped) -> list[BufferSpec]:
        """Shape and dtype of each temporary for tensors of x's size and dtype."""
        shape = (min(x.size, BLOCK),)
        return [(shape, np.result_type(x.dtype, np.float32))] * self.floats + [(shape, np.bool_)] * self.masks

    def bytes(self, x: Shaped, *others: object, **settings: object) -> int:
        """Scratch bytes of a kernel whose first tensor is x."""
        return bytes_for(*self.buffers(x))

    def blocks(self, scratch: Bytes, *arrays: Array) -> Iterator[tuple[Array, ...]]:
        """The blocks of equally shaped arrays, and behind them temporaries of the block's shape."""
        temporaries = carve(scratch, *self.buffers(arrays[0]))
        for block in blocks(*arrays):
            yield *block, *(shaped(t, block[0].shape) for t in temporaries)


def by_blocks(floats: int = 0, masks: int = 0) -> Callable[[Function], Function]:
    """Makes a kernel of a function that does one block: it is given the block's tensors, then these temporaries."""
    temporaries = Temporaries(floats, masks)

    def kernel_of(function: Function) -> Function:
        @wraps(function)
        def kernel(*tensors: Array, scratch: Bytes, **settings: object) -> None:
            for block in temporaries.blocks(scratch, *tensors):
                function(*block, **settings)

        RULES[kernel] = temporaries.bytes
        return kernel

    return kernel_of
