"""Matrix products by NumPy over host memory, from the very description that cuBLASLt gets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from host_loader import host_bytes
from singa_lite.kernels.cuda_kernels.cublaslt_header import Epilogue
from singa_lite.kernels.cuda_kernels.product import Layout, Product
from singa_lite.kernels.kernel_set import Launch

#: Products of so many summands get a workspace, as those that the library splits among blocks.
SPLIT_FROM = 16
WORKSPACE_LIMIT = 32 << 20


class HostMultiplier:
    """Stands in for the library: workspaces like its own, which it fills, and all epilogues."""

    def __init__(self) -> None:
        self.done: list[Product] = []

    def workspace_bytes(self, product: Product) -> int | None:
        partial = 4 * product.batch * product.m * product.n
        return partial if product.k >= SPLIT_FROM and partial <= WORKSPACE_LIMIT else 0

    def bind(self, product: Product, addresses: Sequence[int], workspace: int) -> Launch:
        a, b, d, bias = addresses
        assert a and b and d, "an operand is left out"
        assert bool(bias) == product.epilogue.has_bias, "a bias too few or too many"
        left = _op(_matrices(a, product.inputs, product.a, product.batch), product.transpose_a)
        right = _op(_matrices(b, product.inputs, product.b, product.batch), product.transpose_b)
        result = _matrices(d, product.output, product.d, product.batch)
        vector = _vector(bias, product) if bias else None
        work = host_bytes(workspace, self.workspace_bytes(product) or 0) if workspace else None

        def launch() -> None:
            if work is not None:
                work.fill(0xFF)
            held = result.copy() if product.accumulate else 0
            _multiply(left, right, result)
            if product.accumulate:
                np.add(result, held, out=result)
            _finish(product, left, result, vector)
            self.done.append(product)

        return launch


def _matrices(address: int, dtype: str, layout: Layout, batch: int) -> np.ndarray:
    """(batch, rows, columns), column by column in memory."""
    size = np.dtype(dtype).itemsize
    elements = (batch - 1) * layout.stride + (layout.columns - 1) * layout.leading + layout.rows
    flat = host_bytes(address, elements * size).view(dtype)
    steps = (layout.stride * size, layout.leading * size, size)
    return as_strided(flat, (batch, layout.columns, layout.rows), steps).swapaxes(1, 2)


def _vector(address: int, product: Product) -> np.ndarray:
    nbytes = product.m * np.dtype(product.output).itemsize
    return host_bytes(address, nbytes).view(product.output)


def _op(matrices: np.ndarray, transpose: bool) -> np.ndarray:
    return matrices.swapaxes(1, 2) if transpose else matrices


def _multiply(left: np.ndarray, right: np.ndarray, result: np.ndarray) -> None:
    if left.dtype.itemsize < 4:  # sums of halves are float32
        result[...] = left.astype(np.float32) @ right.astype(np.float32)
    else:
        np.matmul(right.swapaxes(1, 2), left.swapaxes(1, 2), out=result.swapaxes(1, 2))


def _finish(product: Product, left: np.ndarray, d: np.ndarray, vector: np.ndarray | None) -> None:
    epilogue = product.epilogue
    if epilogue.adds_bias:
        d += vector[:, None]
    if epilogue & Epilogue.RELU:
        np.maximum(d, 0, out=d)
    if epilogue.sums:
        vector[...] = left[0].sum(axis=1)
