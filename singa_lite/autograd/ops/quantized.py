"""Products with quantised weights, which are bytes that nobody writes: x has a derivative, the weight has none."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from singa_lite.autograd.ops.linear import bias_gradient
from singa_lite.autograd.ops.op import Op, checked_tensor
from singa_lite.autograd.ops.shape import reshape
from singa_lite.common.errors import ShapeError
from singa_lite.device import device_of
from singa_lite.kernels.interface.quantized import FORMATS
from singa_lite.tensor import Tensor, checked_dtype


class QuantizedLinear(Op):
    """y = x @ weight^T + bias, the weight quantised."""

    optional = (2,)

    def __init__(self, format: str) -> None:
        self.format = format

    def forward(self, x: Tensor, blocks: Tensor, bias: Tensor | None) -> Tensor:
        columns = columns_of("quantized_linear", blocks, self.format)
        rows = blocks.shape[0]
        if x.ndim != 2 or x.shape[1] != columns or (bias is not None and bias.shape != (rows,)):
            raise ShapeError(
                f"quantized_linear: wanted x (..., {columns}), bias ({rows},), received {x.shape}, "
                f"{None if bias is None else bias.shape}"
            )
        self.columns = columns
        self.save(blocks)
        y: Tensor = self.device.empty((x.shape[0], rows), x.dtype)
        self.device.run("quantized_linear", x, blocks, bias, y, format=self.format)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if index == 1:
            return super().backward(index, *dys)
        if index == 2:
            return bias_gradient(self, dys[0], 1)
        dx: Tensor = self.device.empty((dys[0].shape[0], self.columns), dys[0].dtype)
        self.device.run("quantized_linear_derivative", dys[0], self.kept(0), dx, format=self.format)
        return dx


def columns_of(where: str, blocks: Tensor, format: str) -> int:
    """Numbers of a row of a quantised weight. ValueError, TypeError or ShapeError for what is none of this format."""
    if format not in FORMATS:
        raise ValueError(f"{where}: wanted a format of {tuple(FORMATS)}, received {format!r:.100}")
    if checked_tensor(where, blocks).dtype != np.uint8:
        raise TypeError(f"{where}: wanted blocks as bytes, uint8, received {blocks.dtype}")
    if blocks.ndim != 2 or blocks.shape[1] < 1 or blocks.shape[1] % FORMATS[format].nbytes:
        raise ShapeError(
            f"{where}: wanted blocks (rows, bytes of a row) of {FORMATS[format].nbytes} bytes each in format "
            f"{format!r}, received {blocks.shape}"
        )
    return FORMATS[format].columns(blocks.shape[1])


def quantized_linear(x: Tensor, blocks: Tensor, bias: Tensor | None = None, *, format: str) -> Tensor:
    """Returns x @ weight^T + bias over the last axis, of a weight (out, in) in quantised blocks, which has no gradient.

    x: (..., in); blocks: uint8 (out, bytes of a row), such as `tensor.frozen` gives; bias: (out,); result (..., out).
    format: "q4_0", "q4_1", "q8_0", "q4_k", "q5_k", "q6_k", "f16" or "bf16", as the package `gguf` defines them. The
    weight never exists as numbers: some rows or columns of it do, in scratch that plans count.

    >>> blocks = tensor.frozen(np.zeros((3, 40), "uint8"))  # 3 rows of two blocks of 32
    >>> autograd.quantized_linear(tensor.ones((5, 64)), blocks, format="q4_1").shape
    (5, 3)
    """
    if checked_tensor("quantized_linear", x).ndim <= 2:
        return QuantizedLinear(format)(x, blocks, bias)
    rows = QuantizedLinear(format)(reshape(x, (-1, x.shape[-1])), blocks, bias)
    return reshape(rows, (*x.shape[:-1], rows.shape[1]))


def quantized_embedding(ids: Tensor, blocks: Tensor, *, format: str, dtype: DTypeLike = np.float32) -> Tensor:
    """Returns the rows of a quantised weight that ids name, as numbers. ids: integers (...); result (..., columns).

    blocks, format: as of `quantized_linear`. An id that names no row is an IndexError.

    >>> blocks = tensor.frozen(np.zeros((3, 34), "uint8"))
    >>> autograd.quantized_embedding(tensor.as_tensor([[2, 0]]), blocks, format="q8_0").shape
    (1, 2, 32)
    """
    if checked_tensor("quantized_embedding ids", ids).dtype.kind not in "iu":
        raise TypeError(f"quantized_embedding: wanted ids of an integer dtype, received {ids.dtype}")
    columns = columns_of("quantized_embedding", blocks, format)
    y: Tensor = device_of(ids).empty((*ids.shape, columns), checked_dtype("quantized_embedding", dtype))
    y.device.run("quantized_embedding", ids, blocks, y, format=format)
    return y


def dequantize(blocks: Tensor, *, format: str, dtype: DTypeLike = np.float32) -> Tensor:
    """Returns all numbers of a quantised weight (rows, columns). blocks, format: as of `quantized_linear`.

    >>> print(autograd.dequantize(tensor.frozen(np.array([[0, 60, 0, 64]], "uint8")), format="f16"))
    [[1. 2.]]
    """
    shape = checked_tensor("dequantize", blocks).shape[0], columns_of("dequantize", blocks, format)
    y: Tensor = device_of(blocks).empty(shape, checked_dtype("dequantize", dtype))
    y.device.run("dequantize", blocks, y, format=format)
    return y
