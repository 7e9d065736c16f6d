"""Lt: products by cuBLASLt, with the algorithm that its heuristic names for each; in any stream, also one captured."""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from singa_lite.kernels.cuda_kernels.libraries import cublaslt
from singa_lite.kernels.cuda_kernels.libraries.cublaslt import CublasLt, CublasLtError, Object
from singa_lite.kernels.cuda_kernels.libraries.cublaslt_header import (
    Algorithm,
    Compute,
    DataType,
    Heuristic,
    LayoutAttribute,
    MatmulAttribute,
    PreferenceAttribute,
    Reduction,
)
from singa_lite.kernels.cuda_kernels.libraries.product import Layout, Product
from singa_lite.kernels.cuda_kernels.source import HALVES
from singa_lite.kernels.kernel_set import Launch

#: NVIDIA's advice for Hopper, and enough for those before it.
WORKSPACE_LIMIT = 32 << 20
#: Where tensors start that are no pieces of others, bytes; more makes no difference to the library.
ALIGNMENT = 256

DATA_TYPES = {
    "float16": DataType.R_16F,
    "bfloat16": DataType.R_16BF,
    "float32": DataType.R_32F,
    "float64": DataType.R_64F,
}

#: Addresses or alignments of A, B, D and the bias; 0 for one that is left out.
Four = tuple[int, int, int, int]


class Choice(NamedTuple):
    """An algorithm and the bytes of workspace that it wants."""

    algorithm: Algorithm
    workspace_bytes: int


class Lt:
    """The multiplier on cuBLASLt. Made and used with its GPU as the current device, which its handle belongs to.

    stream: pointer of the stream that launches go to; workspace_limit: bytes that an algorithm may want.
    """

    def __init__(self, stream: int, workspace_limit: int = WORKSPACE_LIMIT, library: CublasLt | None = None) -> None:
        self.stream = stream
        self.workspace_limit = workspace_limit
        self.library = library or cublaslt.load()
        self.handle = Object(self.library, "")
        self._layouts: dict[Product, tuple[Object, ...]] = {}
        self._choices: dict[tuple[Product, Four, int], Choice | None] = {}

    def workspace_bytes(self, product: Product) -> int | None:
        """Of the algorithm for operands that are aligned; None if the library has none for the product."""
        choice = self.algorithm(product, aligned(product), self.workspace_limit)
        return None if choice is None else choice.workspace_bytes

    def algorithm(self, product: Product, alignments: Four, workspace_limit: int) -> Choice | None:
        """The fastest one within the limit for operands so aligned; asked for once, and never while capturing."""
        key = product, alignments, workspace_limit
        if key not in self._choices:
            self._choices[key] = self._ask(*key)
        return self._choices[key]

    def bind(self, product: Product, addresses: Sequence[int], workspace: int) -> Launch:
        """The product over these addresses."""
        a, b, d, bias = given = four(addresses)
        choice = self._choice(product, given)
        of_a, of_b, of_d = self._layout_of(product)
        one, held = scalars(product)
        return partial(
            self.library["Matmul"],
            self.handle,
            describe(self.library, product, bias),
            c.byref(one),
            *(a, of_a, b, of_b),
            c.byref(held),
            *(d, of_d, d, of_d),  # C, which is not read where its factor is 0, and D
            c.byref(choice.algorithm),
            workspace,
            choice.workspace_bytes,
            self.stream,
        )

    def _choice(self, product: Product, addresses: Four) -> Choice:
        """Pieces of tensors are aligned less: theirs is another algorithm, within the workspace of the usual one."""
        usual, found = aligned(product), four(alignment(address) for address in addresses)
        choice = self.algorithm(product, usual, self.workspace_limit)
        if choice is not None and found != usual:
            choice = self.algorithm(product, found, choice.workspace_bytes)
        if choice is None:
            raise LookupError(f"cuBLASLt: wanted an algorithm for operands aligned to {found} bytes of {product}")
        return choice

    def _ask(self, product: Product, alignments: Four, workspace_limit: int) -> Choice | None:
        of_a, of_b, of_d = self._layout_of(product)
        description = describe(self.library, product, alignments[3])
        wish = prefer(self.library, product, workspace_limit, alignments)
        found, count = Heuristic(), c.c_int()
        try:
            self.library["MatmulAlgoGetHeuristic"](
                self.handle, description, of_a, of_b, of_d, of_d, wish, 1, c.byref(found), c.byref(count)
            )
        except CublasLtError as error:
            if not error.is_unsupported:
                raise
            return None
        return Choice(found.algo, found.workspaceSize) if count.value and not found.state else None

    def _layout_of(self, product: Product) -> tuple[Object, ...]:
        if product not in self._layouts:
            self._layouts[product] = layouts(self.library, product)
        return self._layouts[product]


def alignment(address: int) -> int:
    """The power of two that an address is a multiple of; 0 for one that is left out."""
    return min(address & -address, ALIGNMENT)


def aligned(product: Product) -> Four:
    """The alignments of whole tensors as the product's operands."""
    return ALIGNMENT, ALIGNMENT, ALIGNMENT, ALIGNMENT if product.epilogue.has_bias else 0


def four(numbers: Iterable[int]) -> Four:
    """The numbers as a tuple; ValueError if they are not four."""
    a, b, d, bias = numbers
    return a, b, d, bias


def scalars(product: Product) -> tuple[c.c_float, c.c_float] | tuple[c.c_double, c.c_double]:
    """The factors of the product, 1, and of what D held before, 0 unless that is added."""
    held = 1 if product.accumulate else 0
    if product.inputs == "float64":
        return c.c_double(1), c.c_double(held)
    return c.c_float(1), c.c_float(held)


def compute(product: Product) -> Compute:
    """How the library multiplies and sums."""
    if product.inputs == "float64":
        return Compute.COMPUTE_64F
    use_tf32 = product.tf32 and product.inputs == "float32"
    return Compute.COMPUTE_32F_FAST_TF32 if use_tf32 else Compute.COMPUTE_32F


def describe(library: CublasLt, product: Product, bias: int) -> Object:
    """The product's descriptor. It holds the address of the bias, so every call has its own.

    The heuristic looks at the alignment of an address only, so it may be given that.
    """
    scale = DataType.R_64F if product.inputs == "float64" else DataType.R_32F
    made = Object(library, "MatmulDesc", compute(product), scale)
    made.set(MatmulAttribute.TRANSA, product.transpose_a)
    made.set(MatmulAttribute.TRANSB, product.transpose_b)
    made.set(MatmulAttribute.EPILOGUE, product.epilogue)
    if product.epilogue.has_bias:
        made.set(MatmulAttribute.BIAS_POINTER, bias)
    return made


def layouts(library: CublasLt, product: Product) -> tuple[Object, ...]:
    """Of A, B and D; C is like D."""
    operands = (product.a, product.inputs), (product.b, product.inputs), (product.d, product.output)
    return tuple(_layout(library, layout, dtype, product.batch) for layout, dtype in operands)


def prefer(library: CublasLt, product: Product, workspace_limit: int, alignments: Four) -> Object:
    """What the heuristic must keep to. Partial sums are not rounded to the halves of a result."""
    made = Object(library, "MatmulPreference")
    sums = Reduction.COMPUTE_TYPE if product.output in HALVES else Reduction.MASK
    made.set(PreferenceAttribute.REDUCTION_SCHEME_MASK, sums)
    made.set(PreferenceAttribute.MAX_WORKSPACE_BYTES, workspace_limit)
    a, b, d, _ = alignments
    made.set(PreferenceAttribute.MIN_ALIGNMENT_A_BYTES, a)
    made.set(PreferenceAttribute.MIN_ALIGNMENT_B_BYTES, b)
    made.set(PreferenceAttribute.MIN_ALIGNMENT_C_BYTES, d)
    made.set(PreferenceAttribute.MIN_ALIGNMENT_D_BYTES, d)
    return made


def _layout(library: CublasLt, layout: Layout, dtype: str, batch: int) -> Object:
    made = Object(library, "MatrixLayout", DATA_TYPES[dtype], layout.rows, layout.columns, layout.leading)
    if batch > 1:
        made.set(LayoutAttribute.BATCH_COUNT, batch)
        made.set(LayoutAttribute.STRIDED_BATCH_OFFSET, layout.stride)
    return made
