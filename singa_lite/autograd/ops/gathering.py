"""Rows of a table and elements of a tensor by ids, and tensors one above the other along a new axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from singa_lite.autograd.ops.op import Op, checked_tensor
from singa_lite.autograd.ops.shape import checked_list, concat, reshape, transpose
from singa_lite.common.checks import axis_of, integer, is_bfloat16, is_int
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
        dtype = np.dtype(np.float32) if is_bfloat16(weight.dtype) else weight.dtype
        y = self.device.empty((*ids.shape, weight.shape[1]), dtype)
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
    """Returns weight[ids], a row of the table for each id. ids: integers (...), from 0 to below rows; weight: (rows,
    features); result (..., features).

    padding_idx: the row that gets no gradient. An id that names no row is an IndexError on a CPU, NaN on a GPU.

    >>> table = tensor.as_tensor([[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]])
    >>> print(autograd.embedding(tensor.as_tensor([2, 0]), table))
    [[2.  2.5]
     [0.  0.5]]
    """
    rows = checked_tensor("embedding", weight).shape[0] if checked_tensor("embedding", weight).ndim else 0
    padding = -1 if padding_idx is None else integer("embedding padding_idx", padding_idx, 0, max(rows - 1, 0))
    return Embedding(padding)(ids, weight)


def gather(x: Tensor, ids: Tensor, axis: int = 0) -> Tensor:
    """Returns x's elements along `axis` by their ids, as `numpy.take`: x[ids] for axis 0.

    ids: integers of any shape, from 0 to below x.shape[axis]; result: x's shape with the shape of ids in the place of
    that axis. An element that is taken several times gets the sum of the derivatives, added in the order of the ids.
    An id that names no element is an IndexError on a CPU, NaN on a GPU. For axis 0 of a tensor in C order only what is
    taken is copied; along other axes x is, once.

    >>> x = tensor.as_tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> print(autograd.gather(x, tensor.as_tensor([2, 0]), axis=1))
    [[3. 1.]
     [6. 4.]]
    """
    along = axis_of("gather", axis, checked_tensor("gather", x).shape)
    if checked_tensor("gather ids", ids).dtype.kind not in "iu":
        raise TypeError(f"gather: wanted ids of an integer dtype, received {ids.dtype}")
    axes = (along, *(other for other in range(x.ndim) if other != along))
    first = transpose(x, axes) if along else x
    rows = embedding(ids, reshape(first, (x.shape[along], -1)))
    taken = reshape(rows, (*ids.shape, *first.shape[1:]))
    if not along:
        return taken
    before = range(ids.ndim, ids.ndim + along)
    return transpose(taken, (*before, *range(ids.ndim), *range(ids.ndim + along, taken.ndim)))


def stack(xs: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Returns the tensors, all of one shape, one behind the other along a new axis, which is `axis` of the result.

    >>> autograd.stack([tensor.ones((2, 3)), tensor.zeros((2, 3))], axis=1).shape
    (2, 2, 3)
    """
    shape = checked_list("stack", xs)[0].shape
    if any(x.shape != shape or x.dtype != xs[0].dtype for x in xs):
        raise ShapeError(
            f"stack: wanted tensors of one shape and dtype, received {[f'{x.shape} {x.dtype}' for x in xs]!s:.300}"
        )
    if not is_int(axis):
        raise TypeError(f"stack: wanted an axis, a whole number, received {axis!r}")
    if not -len(shape) - 1 <= axis <= len(shape):
        raise ShapeError(f"stack: wanted an axis from {-len(shape) - 1} to {len(shape)}, received {axis}")
    place = int(axis) % (len(shape) + 1)
    return concat([reshape(x, (*shape[:place], 1, *shape[place:])) for x in xs], place)
