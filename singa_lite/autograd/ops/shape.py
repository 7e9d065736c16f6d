"""Operations that only change shapes: views where the bytes allow it, copies where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import numpy as np

from singa_lite.autograd.ops.op import Op, checked_tensor
from singa_lite.common.checks import axis_of, is_int
from singa_lite.common.errors import ShapeError
from singa_lite.common.strides import reshaped_strides
from singa_lite.tensor import Shape, Tensor


class Reshape(Op):
    """Gives the same elements in C order another shape: a view where there is one, else a copy."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        if prod(self.shape) != x.size():
            raise ShapeError(f"reshape: wanted {x.size()} elements as in {x.shape}, received shape {self.shape}")
        self.before, self.order = x.shape, x.memory_order()
        return reshaped(x, self.shape)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        """The derivative lies as x does, so that the operations before this one find their tensors alike."""
        dx = reshaped(dys[0], self.before)
        if dx.is_contiguous() and self.order != tuple(range(dx.ndim)):
            return copied(dx, self.order)
        return dx


class Transpose(Op):
    """Axes in another order, as a view."""

    def __init__(self, axes: tuple[int, ...]) -> None:
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        if sorted(self.axes) != list(range(x.ndim)):
            raise ShapeError(f"transpose: wanted each of the {x.ndim} axes once, received {self.axes}")
        return _permuted(x, self.axes)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return _permuted(dys[0], tuple(self.axes.index(axis) for axis in range(len(self.axes))))


class Split(Op):
    """Pieces along an axis, as views; the derivative is the pieces' derivatives side by side."""

    def __init__(self, axis: int, points: tuple[int, ...]) -> None:
        self.axis, self.points = axis, points

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        self.axis = axis_of("split", self.axis, x.shape)
        bounds = (0, *self.points, x.shape[self.axis])
        if any(start >= stop for start, stop in pairwise(bounds)):
            raise ShapeError(
                f"split: wanted rising points between 0 and {x.shape[self.axis]} (axis {self.axis} of {x.shape}), "
                f"received {self.points}"
            )
        self.shape = x.shape
        return tuple(piece(x, self.axis, start, stop) for start, stop in pairwise(bounds))

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return side_by_side(self, dys, self.shape, self.axis)


class Concat(Op):
    """Tensors side by side along an axis; the derivatives are views of dy."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def forward(self, *xs: Tensor) -> Tensor:
        self.axis = axis_of("concat", self.axis, xs[0].shape)
        for x in xs[1:]:
            others = _without_axis(x.shape, self.axis), _without_axis(xs[0].shape, self.axis)
            if x.ndim != xs[0].ndim or others[0] != others[1] or x.dtype != xs[0].dtype:
                raise ShapeError(
                    f"concat: wanted tensors equal but for axis {self.axis}, received "
                    f"{xs[0].shape} {xs[0].dtype} and {x.shape} {x.dtype}"
                )
        extents = [x.shape[self.axis] for x in xs]
        self.starts = [sum(extents[:count]) for count in range(len(xs) + 1)]
        shape = _with_extent(xs[0].shape, self.axis, sum(extents))
        return side_by_side(self, xs, shape, self.axis)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return piece(dys[0], self.axis, self.starts[index], self.starts[index + 1])


class Identity(Op):
    """Gives the same bytes a new handle: a mark on the tape."""

    def forward(self, x: Tensor) -> Tensor:
        return x.detach()

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return dys[0]


def numbers(where: str, what: str, given: object) -> Shape:
    """The whole numbers as a tuple of Python's. TypeError for anything else; one alone is not enough."""
    if isinstance(given, Sequence | np.ndarray) and np.ndim(given) == 1 and all(map(is_int, given)):
        return tuple(map(int, given))
    raise TypeError(f"{where}: wanted {what}, a tuple of whole numbers, received {given!r}")


def reshaped(x: Tensor, shape: Shape) -> Tensor:
    """The elements of x in C order under another shape: a view, of a copy where x itself has none."""
    if x.is_contiguous():
        return x.view(shape)
    strides = reshaped_strides(x.shape, x.strides, shape)
    return copied(x).view(shape) if strides is None else x.view(shape, strides)


def copied(x: Tensor, order: Sequence[int] = ()) -> Tensor:
    """A copy without gaps. order: of its axes in memory, outermost first; C order by default."""
    made: Tensor = x.device.empty(x.shape, x.dtype, order)
    x.device.run("copy", x, made)
    return made


def piece(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    """The view of x from start to stop (exclusive) along an axis."""
    return x.view(_with_extent(x.shape, axis, stop - start), x.strides, start * x.strides[axis])


def first_rows(x: Tensor, axis: int, count: int) -> Tensor:
    """The view of the first `count` along an axis; x itself where there are no more."""
    return x if x.shape[axis] == count else piece(x, axis, 0, count)


def side_by_side(op: Op, tensors: Sequence[Tensor], shape: Shape, axis: int) -> Tensor:
    """A new tensor of `shape` with the tensors copied one behind the other along an axis."""
    whole = op.device.empty(shape, tensors[0].dtype, tensors[0].memory_order())
    start = 0
    for tensor in tensors:
        op.device.run("copy", tensor, piece(whole, axis, start, start + tensor.shape[axis]))
        start += tensor.shape[axis]
    return whole


def _with_extent(shape: Shape, axis: int, extent: int) -> Shape:
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _without_axis(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]


def _permuted(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return x.view(tuple(x.shape[axis] for axis in axes), tuple(x.strides[axis] for axis in axes))


def reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Returns x's elements in C order under `shape`; one extent may be -1. A view where x's strides allow it.

    >>> autograd.reshape(tensor.ones((2, 6)), (2, 3, -1)).shape
    (2, 3, 2)
    """
    checked_tensor("reshape", x)
    shape = numbers("reshape", "a shape", shape)
    if shape.count(-1) == 1:
        known = -prod(shape)
        if known < 1 or x.size() % known:
            raise ShapeError(f"reshape: wanted a shape of {x.size()} elements as in {x.shape}, received {shape}")
        shape = tuple(x.size() // known if extent == -1 else extent for extent in shape)
    return Reshape(shape)(x)


def flatten(x: Tensor, axis: int = 1) -> Tensor:
    """Returns x with two axes: those before `axis` in one, the rest in the other.

    >>> autograd.flatten(tensor.ones((2, 3, 4))).shape
    (2, 12)
    """
    if not is_int(axis) or not 0 <= axis <= checked_tensor("flatten", x).ndim:
        raise ShapeError(f"flatten: wanted an axis from 0 to {x.ndim}, received {axis}")
    return reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


def transpose(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Returns x with its axes in the given order (default: reversed), as a view.

    >>> autograd.transpose(tensor.ones((2, 3, 4)), (0, 2, 1)).shape
    (2, 4, 3)
    """
    chosen = (
        tuple(reversed(range(checked_tensor("transpose", x).ndim)))
        if axes is None
        else numbers("transpose", "axes", axes)
    )
    return Transpose(chosen)(x)


def split(x: Tensor, axis: int, points: Sequence[int]) -> tuple[Tensor, ...]:
    """Returns the pieces of x along `axis`, cut at the rising `points`: len(points) + 1 views.

    >>> [piece.shape for piece in autograd.split(tensor.ones((2, 7)), axis=1, points=[3, 4])]
    [(2, 3), (2, 1), (2, 3)]
    """
    return Split(axis, numbers("split", "points", points)).several(x)


def concat(xs: Sequence[Tensor], axis: int) -> Tensor:
    """Returns the tensors side by side along `axis`; all other extents are equal.

    >>> autograd.concat([tensor.ones((2, 3)), tensor.ones((2, 4))], axis=1).shape
    (2, 7)
    """
    return Concat(axis)(*checked_list("concat", xs))


def checked_list(where: str, xs: object) -> Sequence[Tensor]:
    """The tensors themselves. TypeError for what is no list of them, ShapeError for an empty one."""
    if isinstance(xs, Tensor) or not isinstance(xs, Sequence):
        raise TypeError(f"{where}: wanted a list of tensors, received {type(xs).__name__}")
    if not xs:
        raise ShapeError(f"{where}: wanted at least one tensor, received none")
    return [checked_tensor(where, x) for x in xs]


def identity(x: Tensor) -> Tensor:
    """Returns x under a new handle, marked on the tape.

    >>> x = tensor.ones((2, 3))
    >>> y = autograd.identity(x)
    >>> y is x, y.block is x.block
    (False, True)
    """
    return Identity()(x)
