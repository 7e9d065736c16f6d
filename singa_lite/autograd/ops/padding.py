"""Zeros around a tensor, and its inside: each is the other's derivative."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from singa_lite.autograd.ops.op import Op, checked_tensor
from singa_lite.autograd.ops.shape import numbers, piece
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Shape, Tensor

#: (before, behind) along each axis.
Margins = tuple[tuple[int, int], ...]


class Pad(Op):
    """y = x with zeros around it; the derivative is a view of dy."""

    def __init__(self, margins: Margins) -> None:
        self.margins = margins

    def forward(self, x: Tensor) -> Tensor:
        self.extents = x.shape
        return within_zeros(self, x, self.margins)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return inside(dys[0], self.margins, self.extents)


class Crop(Op):
    """y = the inside of x, a view; the derivative has zeros around dy."""

    def __init__(self, margins: Margins) -> None:
        self.margins = margins

    def forward(self, x: Tensor) -> Tensor:
        extents = tuple(n - before - behind for n, (before, behind) in zip(x.shape, self.margins, strict=True))
        if min(extents, default=1) < 1:
            raise ShapeError(f"crop: wanted margins that leave something of x {x.shape}, received {self.margins}")
        return inside(x, self.margins, extents)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return within_zeros(self, dys[0], self.margins)


def inside(x: Tensor, margins: Margins, extents: Shape) -> Tensor:
    """The view of x without its margins."""
    start = sum(before * stride for (before, _), stride in zip(margins, x.strides, strict=True))
    return x.view(extents, x.strides, start)


def within_zeros(op: Op, x: Tensor, margins: Margins) -> Tensor:
    """A new tensor with x inside and zeros around it, its axes in memory as those of x. Each byte is written once."""
    shape = tuple(n + before + behind for n, (before, behind) in zip(x.shape, margins, strict=True))
    y: Tensor = op.device.empty(shape, x.dtype, x.memory_order())
    left = y
    for axis, (before, behind) in enumerate(margins):
        extent = left.shape[axis]
        for start, stop in ((0, before), (extent - behind, extent)):
            if start < stop:
                op.device.run("fill", piece(left, axis, start, stop), value=0.0)
        left = piece(left, axis, before, extent - behind)
    op.device.run("copy", x, left)
    return y


def pad(x: Tensor, margins: Sequence[Sequence[int]]) -> Tensor:
    """Returns x with zeros around it. margins: (before, behind) for each of x's last axes, as in `numpy.pad` for all.

    >>> print(autograd.pad(tensor.as_tensor([[1.0, 2.0]]), [(0, 1), (2, 0)]))
    [[0. 0. 1. 2.]
     [0. 0. 0. 0.]]
    """
    return Pad(_margins("pad", x, margins))(x)


def crop(x: Tensor, margins: Sequence[Sequence[int]]) -> Tensor:
    """Returns x without its margins, as a view: the reverse of `pad`.

    >>> print(autograd.crop(tensor.as_tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), [(1, 0), (0, 1)]))
    [[4. 5.]]
    """
    return Crop(_margins("crop", x, margins))(x)


def _margins(where: str, x: Tensor, given: object) -> Margins:
    axes = checked_tensor(where, x).ndim
    if not isinstance(given, Sequence | np.ndarray) or np.ndim(given) == 0 or isinstance(given, str):
        raise TypeError(f"{where}: wanted margins, a pair (before, behind) an axis, received {given!r}")
    pairs = [numbers(where, "margins, a pair (before, behind) an axis", each) for each in given]
    if len(pairs) > axes or any(len(each) != 2 or min(each) < 0 for each in pairs):
        raise ValueError(
            f"{where}: wanted margins (before, behind) of at least 0 for the last of {axes} axes, received {given!r}"
        )
    return ((0, 0),) * (axes - len(pairs)) + tuple((before, behind) for before, behind in pairs)
