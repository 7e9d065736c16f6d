"""Matrix products by NumPy over host memory, from the very description that cuBLASLt gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
        """Room for partial sums."""
        partial = 4 * product.batch * product.m * product.n
        return partial if product.k >= SPLIT_FROM and partial <= WORKSPACE_LIMIT else 0

    def bind(self, product: Product, addresses: Sequence[int], workspace: int) -> Launch:
        """The product over host memory."""
        a, b, d, bias, aux = addresses
        assert a and b and d, "an operand is left out"
        assert bool(bias) == product.epilogue.has_bias, "a bias too few or too many"
        assert bool(aux) == product.epilogue.has_aux, "an aux too few or too many"
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
            _finish(product, left, right, result, vector, aux)
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
    nbytes = product.bias_size * np.dtype(product.output).itemsize
    return host_bytes(address, nbytes).view(product.output)


def _op(matrices: np.ndarray, transpose: bool) -> np.ndarray:
    return matrices.swapaxes(1, 2) if transpose else matrices


def _multiply(left: np.ndarray, right: np.ndarray, result: np.ndarray) -> None:
    if left.dtype.itemsize < 4:  # sums of halves are float32
        result[...] = left.astype(np.float32) @ right.astype(np.float32)
    else:
        np.matmul(right.swapaxes(1, 2), left.swapaxes(1, 2), out=result.swapaxes(1, 2))


def _finish(
    product: Product, left: np.ndarray, right: np.ndarray, d: np.ndarray, vector: np.ndarray | None, aux: int
) -> None:
    """The epilogue, by its bits."""
    epilogue = product.epilogue
    if epilogue.adds_bias:
        d += vector[:, None]
    if epilogue & Epilogue.RELU:
        if aux:
            _masks(aux, product)[...] = np.packbits(d.swapaxes(1, 2) > 0, axis=-1, bitorder="little")
        np.maximum(d, 0, out=d)
    if epilogue & Epilogue.GELU:
        if aux:
            _inputs(aux, product)[...] = d
        d[...] = gelu_by_tanh(d)
    if epilogue & 8:
        bits = np.unpackbits(_masks(aux, product), axis=-1, count=product.m, bitorder="little")
        d *= bits.swapaxes(1, 2)
    if epilogue & 64:
        d *= gelu_by_tanh_derivative(_inputs(aux, product))
    if epilogue & 16:
        vector[...] = d[0].sum(axis=1)
    if epilogue & Epilogue.BGRADA:
        vector[...] = left[0].sum(axis=1)
    if epilogue & Epilogue.BGRADB:
        vector[...] = right[0].sum(axis=0)


def _masks(address: int, product: Product) -> np.ndarray:
    """(batch, columns, bytes of the bits of a column)."""
    leading, stride = (extent // 8 for extent in product.aux)
    used = -(-product.m // 8)
    flat = host_bytes(address, (product.batch - 1) * stride + (product.n - 1) * leading + used)
    return as_strided(flat, (product.batch, product.n, used), (stride, leading, 1))


def _inputs(address: int, product: Product) -> np.ndarray:
    return _matrices(address, product.output, Layout(product.m, product.n, *product.aux), product.batch)


def gelu_by_tanh(x: Any) -> Any:
    """The approximation that the library has."""
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_by_tanh_derivative(x: Any) -> Any:
    """Of the same."""
    root = np.sqrt(2 / np.pi)
    bent = np.tanh(root * (x + 0.044715 * x**3))
    return (1 + bent) / 2 + x / 2 * (1 - bent**2) * root * (1 + 3 * 0.044715 * x**2)
