"""Steps over images (n, c, h, w) in one of the two layouts that primitives have fast code for."""

from __future__ import annotations

from contextlib import AbstractContextManager

from singa_lite.kernels.kernel_set import Axes, Form
from singa_lite.kernels.onednn_kernels import forms
from singa_lite.kernels.onednn_kernels import primitive as p
from singa_lite.kernels.onednn_kernels.conversion import read_as, written_as
from singa_lite.kernels.onednn_kernels.routine import Operand
from singa_lite.kernels.onednn_kernels.work import Work, lies

_C_ORDER = (0, 1, 2, 3)


class Images(Work):
    """Steps over tensors (n, c, ...), taken as images (n, c, h, w) with h and w of 1 where they have fewer axes.

    The primitives are given them in C order if all lie so, else channels last. What lies otherwise, as pieces of a
    larger tensor do, is converted.
    """

    def __init__(self, *tensors: Form) -> None:
        super().__init__(max(tensor.size for tensor in tensors))
        images = [_as_image(tensor) for tensor in tensors]
        orders: tuple[Axes, ...] = (forms.CHANNELS_LAST, _C_ORDER)
        fitting = [axes for axes in orders if all(lies(image, axes) for image in images)]
        self.axes = fitting[0] if fitting else forms.CHANNELS_LAST

    @staticmethod
    def fit(*tensors: Form) -> bool:
        """Whether the library can take such tensors: two to four axes, none of them broadcast or backwards."""
        return all(2 <= tensor.ndim <= 4 and _goes_forward(tensor) for tensor in tensors)

    @staticmethod
    def shape(tensor: Form) -> tuple[int, ...]:
        """(n, c, h, w)."""
        return _as_image(tensor).shape

    def form(self, tensor: Form) -> p.Form:
        """The form in which the primitives are given the tensor."""
        return forms.dense(self.shape(tensor), str(tensor.dtype), self.axes)

    def keep(self, *tensors: Form) -> bool:
        """Whether all are given to the primitives as they are."""
        return all(lies(_as_image(tensor), self.axes) for tensor in tensors)

    def read(self, tensor: Form) -> Operand:
        """What to give to a primitive that reads the tensor."""
        return read_as(self, tensor, self._lying(tensor), self.form(tensor))

    def written(self, tensor: Form) -> AbstractContextManager[Operand]:
        """What to give to the primitive inside, which writes the tensor."""
        return written_as(self, tensor, self._lying(tensor), self.form(tensor))

    def _lying(self, tensor: Form) -> p.Form:
        return self.form(tensor) if self.keep(tensor) else forms.of(_as_image(tensor))


def _as_image(tensor: Form) -> Form:
    """The same elements with axes of extent 1 behind the channels."""
    missing, step = 4 - tensor.ndim, tensor.dtype.itemsize
    shape = *tensor.shape[:2], *(1,) * missing, *tensor.shape[2:]
    return Form(shape, tensor.dtype, (*tensor.strides[:2], *(step,) * missing, *tensor.strides[2:]))


def _goes_forward(tensor: Form) -> bool:
    return all(extent == 1 or stride > 0 for extent, stride in zip(tensor.shape, tensor.strides, strict=True))
