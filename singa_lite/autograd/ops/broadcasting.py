"""Operations of two tensors by NumPy's broadcasting rule: the common shape, and derivatives summed back to each.

Beside them the cast, which brings two tensors to one dtype.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from singa_lite.autograd.ops.op import Cast, Op, checked_tensor
from singa_lite.common.checks import real
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Shape, Tensor, checked_dtype, operand

#: What stands on either side of an operator, a tensor on one of them at least.
Term = Tensor | ArrayLike


class Broadcasting(Op, ABC):
    """Base of the binary operations: y has the common shape, derivatives are summed back to the inputs' shapes.

    A subclass names its `kernel` and gives `backward`.
    """

    kernel: str

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        self.shapes = a.shape, b.shape
        y = self.result(a, b)
        self.device.run(self.kernel, a, b, y)
        self.keep(a, b, y)
        return y

    def result(self, a: Tensor, b: Tensor, *others: Tensor) -> Tensor:
        """A new tensor of the common shape, which lies as the first of a and b that has this shape."""
        shape = common_shape(self.kernel, a, b, *others)
        order = next((t.memory_order() for t in (a, b) if t.shape == shape), "")
        return self.device.empty(shape, a.dtype, order)

    def keep(self, a: Tensor, b: Tensor, y: Tensor) -> None:
        """Save what the derivatives need."""

    @abstractmethod
    def backward(self, index: int, *dys: Tensor) -> Tensor:
        """The derivative by input `index`."""

    def summed(self, dy: Tensor, index: int, alpha: float = 1.0) -> Tensor:
        """alpha * dy, summed over the axes along which input `index` was broadcast."""
        shape = self.shapes[index]
        if dy.shape == shape:
            return dy if alpha == 1.0 else self.computed("scale", dy, alpha=alpha, beta=0.0)
        padded = (1,) * (dy.ndim - len(shape)) + shape
        axes = tuple(axis for axis, extent in enumerate(padded) if extent != dy.shape[axis])
        axes += tuple(axis for axis in range(dy.ndim - len(shape)) if axis not in axes)
        total = self.device.empty(padded, dy.dtype)
        self.device.run("reduce_sum", dy, total, axes=tuple(sorted(axes)), alpha=alpha)
        return total.view(shape)


def common_shape(where: str, a: Tensor, b: Tensor, *others: Tensor) -> Shape:
    """The shape to which all broadcast. ShapeError where they do not; TypeError where a and b differ in dtype."""
    shapes = [t.shape for t in (a, b, *others)]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(
            f"{where}: wanted shapes that broadcast together, received {' and '.join(map(str, shapes))}"
        ) from None
    if a.dtype != b.dtype:
        raise TypeError(f"{where}: wanted equal dtypes, received {a.dtype} and {b.dtype}")
    return shape


def both(where: str, a: Term, b: Term) -> tuple[Tensor, Tensor]:
    """Two tensors, of which one may be given as a number or anything NumPy makes an array of, in the other's dtype."""
    if isinstance(a, Tensor):
        return a, _other_operand(where, b, a)
    right = checked_tensor(where, b)
    return _other_operand(where, a, right), right


def _other_operand(where: str, given: Term, other: Tensor) -> Tensor:
    """A tensor as it is, a number as one of no axes that is filled where it is used, all else as `operand` makes it."""
    found = operand(given, other)
    if isinstance(found, Tensor):
        return found
    made: Tensor = other.device.empty((), other.dtype)
    other.device.run("fill", made, value=plain_number(where, found))
    return made


def plain_number(where: str, value: object) -> float:
    """The number as a float. TypeError for what is none."""
    found = float(value) if isinstance(value, bool | np.bool_ | Tensor) else real(value)
    if found is None:
        raise TypeError(f"{where}: wanted a number, received {value!r}")
    return found


def cast(x: Tensor, dtype: DTypeLike) -> Tensor:
    """Returns x in another float dtype, or x itself if it has that dtype. x: any shape.

    >>> autograd.cast(tensor.ones((2, 3)), "float64").dtype
    dtype('float64')
    """
    wanted = checked_dtype("cast", dtype)
    if checked_tensor("cast", x).dtype == wanted:
        return x
    return Cast(wanted)(x)
