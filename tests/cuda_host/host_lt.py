"""The cuBLASLt library with a GPU of NumPy's: descriptors are its own, products are done from what it says of them."""

from __future__ import annotations

import ctypes as c
from dataclasses import replace
from enum import Enum
from typing import Any

from host_products import HostMultiplier
from singa_lite.kernels.cuda_kernels.cublaslt import CublasLt, CublasLtError, Object
from singa_lite.kernels.cuda_kernels.cublaslt_header import (
    NOT_SUPPORTED,
    Algorithm,
    DataType,
    Epilogue,
    LayoutAttribute,
    MatmulAttribute,
    PreferenceAttribute,
)
from singa_lite.kernels.cuda_kernels.lt import DATA_TYPES
from singa_lite.kernels.cuda_kernels.product import Layout, Product
from singa_lite.kernels.kernel_set import Launch


class LayoutRead(Enum):
    """CUBLASLT_MATRIX_LAYOUT_*: what a layout is made with."""

    TYPE = 0, c.c_uint32
    ROWS = 2, c.c_uint64
    COLS = 3, c.c_uint64
    LD = 4, c.c_int64


class MatmulRead(Enum):
    """CUBLASLT_MATMUL_DESC_*: what a product is made with."""

    COMPUTE_TYPE = 0, c.c_int32
    SCALE_TYPE = 1, c.c_int32


class LibraryOnHost:
    """In the place of `CublasLt`: its functions that want a GPU are those below. wants: bytes of workspace.

    asked: the preferences of each question to the heuristic; done: the products with their compute types; work: the
    workspace, its bytes and the stream of each.
    """

    def __init__(self, real: CublasLt, wants: int = 4096) -> None:
        self.real = real
        self.wants: int | None = wants
        self.asked: list[dict[str, int]] = []
        self.done: list[tuple[Product, int]] = []
        self.work: list[tuple[int, int, int]] = []

    def __getitem__(self, name: str) -> Any:
        """A function, of these or of the library."""
        return getattr(self, f"on_host_{name}", None) or self.real[name]

    def submit(self, launch: Launch, stream: int) -> None:
        """What a product does, on its stream: at once."""
        launch()

    def on_host_Create(self, made: Any) -> None:
        made._obj.value = 1

    def on_host_Destroy(self, made: Any) -> None:
        pass

    def on_host_MatmulAlgoGetHeuristic(self, handle: Object, described: Object, *rest: Any) -> None:
        *_, wish, most, found, count = rest
        self.asked.append({attribute.name: wish.get(attribute) for attribute in PreferenceAttribute})
        limit = wish.get(PreferenceAttribute.MAX_WORKSPACE_BYTES)
        if self.wants is None:
            raise CublasLtError("MatmulAlgoGetHeuristic", NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED")
        assert most == 1
        found._obj.workspaceSize = min(self.wants, limit)
        found._obj.algo.data[0] = len(self.asked)
        count._obj.value = 1

    def on_host_Matmul(self, handle: Object, described: Object, *given: Any) -> None:
        alpha, a, of_a, b, of_b, beta, before, of_c, d, of_d, algorithm, *work = given
        workspace, workspace_bytes, stream = work
        scale = {DataType.R_32F: c.c_float, DataType.R_64F: c.c_double}[DataType(described.get(MatmulRead.SCALE_TYPE))]
        assert (type(alpha._obj), alpha._obj.value, type(beta._obj)) == (scale, 1, scale)
        assert beta._obj.value in (0, 1)
        assert (before, of_c) == (d, of_d)
        assert isinstance(algorithm._obj, Algorithm)
        assert algorithm._obj.data[0] > 0
        product = replace(product_of(described, of_a, of_b, of_d), accumulate=bool(beta._obj.value))
        bias = described.get(MatmulAttribute.BIAS_POINTER)
        self.submit(HostMultiplier().bind(product, (a, b, d, bias), 0), stream)
        self.done.append((product, described.get(MatmulRead.COMPUTE_TYPE)))
        self.work.append((workspace, workspace_bytes, stream))


def product_of(described: Object, a: Object, b: Object, d: Object) -> Product:
    names = {number: name for name, number in DATA_TYPES.items()}
    types = [names[DataType(layout.get(LayoutRead.TYPE))] for layout in (a, b, d)]
    assert types[0] == types[1]
    return Product(
        types[0],
        types[2],
        *map(_layout, (a, b, d)),
        transpose_a=bool(described.get(MatmulAttribute.TRANSA)),
        transpose_b=bool(described.get(MatmulAttribute.TRANSB)),
        batch=d.get(LayoutAttribute.BATCH_COUNT),
        epilogue=Epilogue(described.get(MatmulAttribute.EPILOGUE)),
    )


def _layout(found: Object) -> Layout:
    extents = (found.get(attribute) for attribute in (LayoutRead.ROWS, LayoutRead.COLS, LayoutRead.LD))
    return Layout(*extents, found.get(LayoutAttribute.STRIDED_BATCH_OFFSET))
