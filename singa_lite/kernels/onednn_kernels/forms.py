"""From the forms of tensors to those of the library."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from singa_lite.kernels.kernel_set import Form
from singa_lite.kernels.onednn_kernels import primitive
from singa_lite.strides import memory_order, ordered_strides

FLOAT = np.dtype(np.float32)
#: Axes of an image from the outermost to the innermost: rows, columns, then channels.
CHANNELS_LAST = (0, 2, 3, 1)
#: Axes of filters (k, c, kh, kw): kernels innermost, as the forward convolution reads them without a copy.
KERNELS_LAST = (2, 3, 1, 0)


def are_floats(*forms: Form | None) -> bool:
    """Whether all are float32, the only float type in which the library trains on every CPU."""
    return all(form is None or form.dtype == FLOAT for form in forms)


def of(form: Form, shape: Sequence[int] | None = None) -> primitive.Form:
    """The library's form of a tensor. shape: another one of as many elements, for dense tensors: in memory order."""
    if shape is not None:
        return dense(tuple(shape), str(form.dtype))
    return primitive.form(form.shape, strides_of(form), str(form.dtype))


def dense(shape: tuple[int, ...], dtype: str = "float32", axes: Sequence[int] | None = None) -> primitive.Form:
    """The form of a tensor without gaps. axes: from the outermost to the innermost, C order where None."""
    return primitive.form(shape, ordered_strides(shape, axes or range(len(shape))), dtype)


def chosen(shape: tuple[int, ...], dtype: str = "float32") -> primitive.Form:
    """The form of a tensor that the primitive may lay out as it likes best."""
    return primitive.form(shape, None, dtype)


def strides_of(form: Form) -> tuple[int, ...]:
    """Strides in elements. Along axes of extent 1, where they do not matter, those of the layout that the rest has."""
    size = form.dtype.itemsize
    strides = tuple(stride // size for stride in form.strides)
    orders = (CHANNELS_LAST, range(4)) if form.ndim == 4 else (range(form.ndim),)
    for axes in orders:
        wanted = ordered_strides(form.shape, axes)
        if all(e == 1 or a == b for e, a, b in zip(form.shape, strides, wanted, strict=True)):
            return wanted
    return strides


def order_of(form: Form) -> tuple[int, ...]:
    """The axes from the outermost to the innermost."""
    return memory_order(form.shape, strides_of(form))


def is_dense(form: Form) -> bool:
    """Whether the elements lie without gaps, in whatever order."""
    return strides_of(form) == ordered_strides(form.shape, order_of(form))


def are_alike(*forms: Form) -> bool:
    """Whether all are float32, without gaps, of one shape and one order: element-wise work can go along memory."""
    first = forms[0]
    return (
        are_floats(*forms)
        and is_dense(first)
        and all(form.shape == first.shape and strides_of(form) == strides_of(first) for form in forms)
    )


def line(form: Form) -> primitive.Form:
    """A tensor without gaps as one line of elements."""
    return primitive.form((prod(form.shape),), (1,), str(form.dtype))
