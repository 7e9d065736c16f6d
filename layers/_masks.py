"""What layers that take a mask do with padding: a derivative of 0 times NaN would be NaN."""

from __future__ import annotations

from math import inf

import numpy as np

from singa_lite import autograd
from singa_lite.tensor import Tensor


def without_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """x with 0 where the mask is 0, whatever is there.

    x: (n, time, features), with the mask that comes with it; mask: (n, time), or None, which gives x itself.
    """
    return x if mask is None else _masked(x, _mask_column(mask))


def finite_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """x with 0 in the place of NaN and infinities where the mask is 0; finite numbers stay. As of `without_padding`."""
    if mask is None:
        return x
    with autograd.no_grad():
        is_finite = autograd.less(autograd.abs(x), inf)
        taken = autograd.maximum(_mask_column(mask), is_finite)
    return _masked(x, taken)


def _mask_column(mask: Tensor) -> Tensor:
    """(n, time, 1) of bool."""
    seen = mask if mask.dtype == np.bool_ else autograd.not_equal(mask.detach(), 0)
    return autograd.reshape(seen, (*seen.shape, 1))


def _masked(x: Tensor, taken: Tensor) -> Tensor:
    y = autograd.where(taken, x, 0)
    y.mask = x.mask
    return y
