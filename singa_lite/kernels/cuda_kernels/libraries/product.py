"""Product: a matrix product as cuBLASLt wants it told, column by column, and the call that does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from singa_lite.kernels.cuda_kernels.libraries.cublaslt_header import Epilogue
from singa_lite.kernels.cuda_kernels.libraries.matrix import Matrix
from singa_lite.kernels.cuda_kernels.routine import LibraryCall
from singa_lite.kernels.kernel_set import Launch


class Layout(NamedTuple):
    """A matrix by columns: element (row, column) of matrix i lies at row + column * leading + i * stride."""

    rows: int
    columns: int
    leading: int
    stride: int = 0


@dataclass(frozen=True)
class Product:
    """D = epilogue(op(A) @ op(B)), op transposing where asked; `batch` of them. accumulate: D += op(A) @ op(B).

    inputs, output: dtypes of A and B, of D and the bias. a, b, d: as they lie, before op. tf32: float32 factors may be
    rounded to 10 bits. The bias, as long as D has rows, is packed and the same for the batch.
    """

    inputs: str
    output: str
    a: Layout
    b: Layout
    d: Layout
    transpose_a: bool = False
    transpose_b: bool = False
    batch: int = 1
    epilogue: Epilogue = Epilogue.DEFAULT
    tf32: bool = False
    accumulate: bool = False

    def __post_init__(self) -> None:
        """ValueError for what does not fit together: the library would answer with a bare status."""
        a = (self.a.columns, self.a.rows) if self.transpose_a else (self.a.rows, self.a.columns)
        b = (self.b.columns, self.b.rows) if self.transpose_b else (self.b.rows, self.b.columns)
        if a[1] != b[0] or (a[0], b[1]) != (self.d.rows, self.d.columns):
            raise ValueError(f"product: wanted (m, k) @ (k, n) = (m, n), received {a} @ {b} = {self.d[:2]}")
        if any(layout.leading < layout.rows for layout in (self.a, self.b, self.d)):
            raise ValueError(f"product: wanted leading dimensions from the rows on, received {self}")
        if self.epilogue.sums and self.batch > 1:
            raise ValueError(f"product: wanted a bias gradient of one product, received {self.batch} products")

    @property
    def m(self) -> int:
        """Rows of D."""
        return self.d.rows

    @property
    def n(self) -> int:
        """Columns of D."""
        return self.d.columns

    @property
    def k(self) -> int:
        """Products summed for each element."""
        return self.a.rows if self.transpose_a else self.a.columns


class Multiplier(Protocol):
    """Does products. Addresses: of A, B, D and the bias, 0 for one that is left out."""

    def workspace_bytes(self, product: Product) -> int | None:
        """Bytes of workspace that it wants; None if it cannot do the product."""

    def bind(self, product: Product, addresses: Sequence[int], workspace: int) -> Launch:
        """The product over these addresses."""


class Multiplication(LibraryCall):
    """A product as a library call of a routine: its operands are A, B, D and the bias."""

    def __init__(self, product: Product, multiplier: Multiplier, scratch_bytes: int) -> None:
        self.product = product
        self.multiplier = multiplier
        self.scratch_bytes = scratch_bytes

    def bind(self, addresses: Sequence[int], scratch: int, nbytes: int) -> Launch:
        """The product over tensors at these addresses."""
        return self.multiplier.bind(self.product, addresses, scratch)


def layout(found: Matrix) -> Layout:
    """Returns the same memory by columns, which shows the transposed of a matrix by rows."""
    rows, columns = (found.rows, found.columns) if found.by_columns else (found.columns, found.rows)
    return Layout(rows, columns, found.leading, found.stride)
