"""How updates keep state in fewer bits: the dtype of a state tensor tells which way.

Of the value's dtype and shape: plain numbers. uint16 of the value's shape: bfloat16, the upper half of a float32's
bits, rounded up or down by chance so that the mean is right. Rounded to nearest, Adam's second moment would stand
still, as 0.001 of it is less than half of the last bit. uint8 (groups, bytes): 8 bits an element in blocks of at most
2048 elements, each with the largest magnitude in it as float32 (Dettmers and others, "8-bit Optimizers via Block-wise
Quantization", arXiv 2110.02861).

A block is some whole rows (axis 0) of the value in C order, or where a row has more than 2048 elements an equal part of
a row. So a border between rows, a multiple of `Blocks.rows` from the first, is a border between blocks as well, and a
value can be updated by tiles to the same bits. A group is what such rows have: float32 scales, one for each of its
blocks, then one byte an element, each block's padded to the same length. Bytes of 0 are a state of zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

#: Elements of a block at most; tensors with fewer than twice as many are kept as they are.
BLOCK_ELEMENTS = 2048
LEAST_ELEMENTS = 2 * BLOCK_ELEMENTS

BFLOAT16 = np.dtype(np.uint16)
BLOCKED = np.dtype(np.uint8)


@dataclass(frozen=True)
class Blocks:
    """How a value of a shape is cut. rows: of the value in a group; blocks: in a group; elements: of each block."""

    rows: int
    blocks: int
    elements: int

    @classmethod
    def of(cls, shape: tuple[int, ...]) -> Blocks:
        """Those of a value of this shape, of at least one axis and one element."""
        columns = prod(shape[1:])
        if columns <= BLOCK_ELEMENTS:
            rows = BLOCK_ELEMENTS // columns
            return cls(rows, 1, rows * columns)
        blocks = -(-columns // BLOCK_ELEMENTS)
        return cls(1, blocks, -(-columns // blocks))

    @property
    def group_bytes(self) -> int:
        """Of scales and codes; a multiple of 4, so that the next group's scales are aligned."""
        return -(-(4 * self.blocks + self.blocks * self.elements) // 4) * 4

    def groups(self, rows: int) -> int:
        """How many groups so many rows of the value have."""
        return -(-rows // self.rows)


def blocked_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """The shape of the uint8 tensor that keeps state for a value of this shape."""
    blocks = Blocks.of(shape)
    return blocks.groups(shape[0]), blocks.group_bytes


def dynamic_tree(signed: bool) -> NDArray[np.float32]:
    """The 256 numbers that a byte stands for, rising, to be multiplied by the block's scale (float32).

    Dynamic tree quantization (section 2.2 there): 7 decades, the upper ones with more fractions; in decade 10**-e there
    are the middles of 2**(6 - e) equal parts of 0.1 to 1, of twice as many where no bit is a sign. And 0, and 1.
    """
    numbers = [0.0, 1.0]
    for exponent in range(7):
        borders = np.linspace(0.1, 1, 2 ** (6 - exponent + (not signed)) + 1)
        middles = 10.0**-exponent * (borders[1:] + borders[:-1]) / 2
        numbers += [*middles, *(-middles if signed else ())]
    return np.sort(np.array(numbers, np.float32))
