"""Products with weights in quantised blocks, as files hold them, and the formats of such blocks.

A weight is bytes: uint8 (rows, bytes of a row), a row for each output. The numbers of a row lie in blocks one behind
the other, each with scales of its own. Formats have the names and the layout of ggml's, which the package `gguf` reads
and writes; "f16" and "bf16" are blocks of one number. Weights are only read: there is no gradient by one.
"""

from __future__ import annotations

from typing import NamedTuple

from singa_lite.kernels.interface.signature import Facts, Read, Write, kernel


class BlockFormat(NamedTuple):
    """How many numbers a block has, and how many bytes."""

    numbers: int
    nbytes: int

    def row_bytes(self, columns: int) -> int:
        """Bytes of a row of so many numbers. ValueError where they fill no whole blocks."""
        if columns < 1 or columns % self.numbers:
            raise ValueError(f"wanted rows of whole blocks of {self.numbers} numbers, received {columns}")
        return columns // self.numbers * self.nbytes

    def columns(self, row_bytes: int) -> int:
        """Numbers of a row of so many bytes. ValueError where they are no whole blocks."""
        if row_bytes < 1 or row_bytes % self.nbytes:
            raise ValueError(f"wanted rows of whole blocks of {self.nbytes} bytes, received {row_bytes}")
        return row_bytes // self.nbytes * self.numbers


#: In the order in which the loops in C number them.
FORMATS = {
    "q4_0": BlockFormat(32, 18),
    "q4_1": BlockFormat(32, 20),
    "q8_0": BlockFormat(32, 34),
    "q4_k": BlockFormat(256, 144),
    "q5_k": BlockFormat(256, 176),
    "q6_k": BlockFormat(256, 210),
    "f16": BlockFormat(1, 2),
    "bf16": BlockFormat(1, 2),
}


@kernel(Facts(activations=("y",)))
def dequantize(blocks: Read, y: Write, *, format: str) -> None:
    """y = the numbers of the blocks, as the package `gguf` gives them, to the bit in float32. y: (rows, columns)."""


@kernel(Facts(by_samples=("ids", "y")))
def quantized_embedding(ids: Read, blocks: Read, y: Write, *, format: str) -> None:
    """y = the rows of the weight that ids name, as `embedding` of the numbers gives. y: (..., columns)."""


@kernel(Facts(strides_matter=True, multiplies="blocks", by_samples=("x", "y")))
def quantized_linear(x: Read, blocks: Read, bias: Read | None, y: Write, *, format: str) -> None:
    """y = x @ weight^T + bias. x: (n, columns); bias: (rows,); y: (n, rows)."""


@kernel(Facts(strides_matter=True, multiplies="blocks", by_samples=("dy", "dx")))
def quantized_linear_derivative(dy: Read, blocks: Read, dx: Write, *, format: str) -> None:
    """dx = dy @ weight. dy: (n, rows); dx: (n, columns)."""
