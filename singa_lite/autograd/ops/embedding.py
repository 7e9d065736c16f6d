"""Rows of a table by ids."""

from __future__ import annotations

from singa_lite.autograd.ops.op import Op, checked_tensor
from singa_lite.common.checks import integer
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Tensor


class Embedding(Op):
    """y = weight[ids]; the gradient is a table of which only the rows that occur are not 0. padding: -1 for none."""

    def __init__(self, padding: int) -> None:
        self.padding = padding

    def forward(self, ids: Tensor, weight: Tensor) -> Tensor:
        if ids.dtype.kind not in "iu":
            raise TypeError(f"embedding: wanted ids of an integer dtype, received {ids.dtype}")
        if weight.ndim != 2:
            raise ShapeError(f"embedding: wanted a weight (rows, features), received {weight.shape}")
        y = self.device.empty((*ids.shape, weight.shape[1]), weight.dtype)
        self.device.run("embedding", ids, weight, y)
        self.table = weight.shape
        self.save(ids)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if index == 0:
            return super().backward(index, *dys)
        gradient = self.device.empty(self.table, dys[0].dtype)
        self.device.run("embedding_gradient", self.kept(0), dys[0], gradient, first=0, padding=self.padding)
        return gradient


def embedding(ids: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """weight[ids]. ids: integers (...), from 0 to below rows; weight: (rows, features); result (..., features).

    padding_idx: the row that gets no gradient. An id that names no row is an IndexError on a CPU, NaN on a GPU.
    """
    rows = checked_tensor("embedding", weight).shape[0] if checked_tensor("embedding", weight).ndim else 0
    padding = -1 if padding_idx is None else integer("embedding padding_idx", padding_idx, 0, max(rows - 1, 0))
    return Embedding(padding)(ids, weight)
