"""Comparisons: extremes of two tensors, bounds, and the choice between two by a mask."""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.typing import ArrayLike

from singa_lite.autograd.ops.activation import Activation
from singa_lite.autograd.ops.broadcasting import Broadcasting, Term, both, common_shape
from singa_lite.autograd.ops.op import common_device
from singa_lite.common import arrays
from singa_lite.common.checks import real
from singa_lite.tensor import Tensor, from_numpy


class Extreme(Broadcasting):
    """y = the larger ("maximum") or the smaller ("minimum") of a and b; dy goes to it, a half to each of two equals."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel

    def keep(self, a: Tensor, b: Tensor, y: Tensor) -> None:
        self.save(a, b)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        larger = index if self.kernel == "maximum" else 1 - index
        return self.summed(self.computed("maximum_derivative", dys[0], self.kept(larger), self.kept(1 - larger)), index)


class Where(Broadcasting):
    """y = a where a condition holds, else b; each has dy where it was chosen."""

    kernel = "where"

    def forward(self, a: Tensor, b: Tensor, condition: Tensor) -> Tensor:  # type: ignore[override]  # one input more
        self.shapes = a.shape, b.shape
        self.condition = condition.detach()
        y = self.result(a, b, condition)
        self.device.run("where", condition, a, b, y)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dy, nothing = dys[0], self.device.empty((), dys[0].dtype)
        self.device.run("fill", nothing, value=0.0)
        chosen = self.empty_like(dy)
        self.device.run("where", self.condition, *((dy, nothing) if index == 0 else (nothing, dy)), chosen)
        return self.summed(chosen, index)


def maximum(a: Term, b: Term) -> Tensor:
    """Returns the larger of a and b, element by element, NaN where either is. Tensors that broadcast; either may be a
    number.

    The derivative goes to the larger one; where both are equal each gets a half, and where one is NaN each gets all.

    >>> print(autograd.maximum(tensor.as_tensor([1.0, -2.0, 3.0]), 0.0))
    [1. 0. 3.]
    """
    return Extreme("maximum")(*both("maximum", a, b))


def minimum(a: Term, b: Term) -> Tensor:
    """Returns the smaller of a and b, element by element, NaN where either is. Tensors that broadcast; either may be a
    number.

    The derivative goes to the smaller one; where both are equal each gets a half, and where one is NaN each gets all.

    >>> print(autograd.minimum(tensor.as_tensor([1.0, -2.0, 3.0]), tensor.as_tensor([2.0, 2.0, 2.0])))
    [ 1. -2.  2.]
    """
    return Extreme("minimum")(*both("minimum", a, b))


def abs(x: Tensor) -> Tensor:
    """Returns x without its sign; the derivative at 0 and at NaN is 0.

    >>> print(autograd.abs(tensor.as_tensor([1.0, -2.0, 3.0])))
    [1. 2. 3.]
    """
    return Activation("absolute", from_output=False)(x)


def clip(x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    """Returns min(max(x, low), high), NaN where x is NaN; None for no bound. The derivative at a bound is that within.

    >>> print(autograd.clip(tensor.as_tensor([1.0, -2.0, 3.0]), low=-1.0, high=2.0))
    [ 1. -1.  2.]
    """
    least, most = _bound("low", low, -inf), _bound("high", high, inf)
    if not least <= most:
        raise ValueError(f"clip: wanted low of at most high, received {low} and {high}")
    return Activation("clip", from_output=False, low=least, high=most)(x)


def _bound(name: str, given: float | None, default: float) -> float:
    found = default if given is None else real(given)
    if found is None:
        raise TypeError(f"clip {name}: wanted a number or None, received {given!r}")
    return found


def equal(a: Term, b: Term) -> Tensor:
    """Returns a == b, element by element, of dtype bool; NaN equals nothing. Tensors that broadcast; either may be a
    number.

    Comparisons have no derivative. `a == b` itself says whether two tensors are one, as they are keys of dicts.

    >>> print(autograd.equal(tensor.as_tensor([1.0, -2.0, 3.0]), tensor.as_tensor([1.0, 2.0, 3.0])))
    [ True False  True]
    """
    return _compared("equal", *both("equal", a, b))


def not_equal(a: Term, b: Term) -> Tensor:
    """Returns a != b, element by element, of dtype bool. As of `equal`.

    >>> print(autograd.not_equal(tensor.as_tensor([1.0, -2.0, 3.0]), 1.0))
    [False  True  True]
    """
    return _compared("not_equal", *both("not_equal", a, b))


def less(a: Term, b: Term) -> Tensor:
    """Returns a < b, element by element, of dtype bool. As of `equal`.

    >>> print(autograd.less(tensor.as_tensor([1.0, -2.0, 3.0]), 1.0))
    [False  True False]
    """
    return _compared("less", *both("less", a, b))


def less_equal(a: Term, b: Term) -> Tensor:
    """Returns a <= b, element by element, of dtype bool. As of `equal`.

    >>> print(autograd.less_equal(tensor.as_tensor([1.0, -2.0, 3.0]), 1.0))
    [ True  True False]
    """
    return _compared("less_equal", *both("less_equal", a, b))


def greater(a: Term, b: Term) -> Tensor:
    """Returns a > b, element by element, of dtype bool. As of `equal`.

    >>> print(autograd.greater(tensor.as_tensor([1.0, -2.0, 3.0]), 1.0))
    [False False  True]
    """
    return _compared("less", *reversed(both("greater", a, b)))


def greater_equal(a: Term, b: Term) -> Tensor:
    """Returns a >= b, element by element, of dtype bool. As of `equal`.

    >>> print(autograd.greater_equal(tensor.as_tensor([1.0, -2.0, 3.0]), 1.0))
    [ True False  True]
    """
    return _compared("less_equal", *reversed(both("greater_equal", a, b)))


def _compared(relation: str, a: Tensor, b: Tensor) -> Tensor:
    on = common_device(relation, (a, b))
    y: Tensor = on.empty(common_shape(relation, a, b), np.bool_)
    on.run("compare", a, b, y, relation=relation)
    return y


def where(condition: Tensor | ArrayLike, a: Term, b: Term) -> Tensor:
    """Returns a where the condition holds, else b, element by element; all three broadcast together.

    condition: bool, a tensor or an array, as comparisons give it. a, b: tensors of one dtype; one may be a number.
    Each gets the derivative where it was chosen and 0 elsewhere, even where dy is not finite.

    >>> x = tensor.as_tensor([1.0, -2.0, 3.0])
    >>> print(autograd.where(autograd.less(x, 0.0), 0.0, x))
    [1. 0. 3.]
    """
    left, right = both("where", a, b)
    if not isinstance(condition, Tensor):
        condition = from_numpy(arrays.numbers("where condition", condition), left.device)
    if condition.dtype != np.bool_:
        raise TypeError(
            f"where: wanted a condition of bool, received {condition.dtype}; not_equal(condition, 0) makes one"
        )
    return Where()(left, right, condition)
