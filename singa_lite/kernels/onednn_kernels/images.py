"""Steps over images (n, c, h, w) in one of the two layouts that primitives have fast code for."""

from __future__ import annotations

from contextlib import AbstractContextManager

from singa_lite.kernels.kernel_set import Axes, TensorSpec
from singa_lite.kernels.onednn_kernels import layouts, memory_descs
from singa_lite.kernels.onednn_kernels import primitive as p
from singa_lite.kernels.onednn_kernels.conversion import read_as, written_as
from singa_lite.kernels.onednn_kernels.routine import BufferView
from singa_lite.kernels.onednn_kernels.work import Work, lies

_C_ORDER = (0, 1, 2, 3)


class Images(Work):
    """Steps over tensors (n, c, ...), taken as images (n, c, h, w) with h and w of 1 where they have fewer axes.

    The primitives are given them in C order if all lie so, else channels last. What lies otherwise, as pieces of a
    larger tensor do, is converted.
    """

    def __init__(self, *tensors: TensorSpec) -> None:
        super().__init__(max(tensor.size for tensor in tensors))
        images = [_as_image(tensor) for tensor in tensors]
        orders: tuple[Axes, ...] = (layouts.CHANNELS_LAST, _C_ORDER)
        fitting = [axes for axes in orders if all(lies(image, axes) for image in images)]
        self.axes = fitting[0] if fitting else layouts.CHANNELS_LAST

    @staticmethod
    def fit(*tensors: TensorSpec) -> bool:
        """Whether the library can take such tensors: two to four axes, none of them broadcast or backwards."""
        return all(2 <= tensor.ndim <= 4 and _goes_forward(tensor) for tensor in tensors)

    @staticmethod
    def shape(tensor: TensorSpec) -> tuple[int, ...]:
        """(n, c, h, w)."""
        return _as_image(tensor).shape

    def desc(self, tensor: TensorSpec) -> p.MemoryDesc:
        """How the primitives are given the tensor."""
        return memory_descs.dense(self.shape(tensor), str(tensor.dtype), self.axes)

    def keep(self, *tensors: TensorSpec) -> bool:
        """Whether all are given to the primitives as they are."""
        return all(lies(_as_image(tensor), self.axes) for tensor in tensors)

    def read(self, tensor: TensorSpec) -> BufferView:
        """What to give to a primitive that reads the tensor."""
        return read_as(self, tensor, self._lying(tensor), self.desc(tensor))

    def written(self, tensor: TensorSpec) -> AbstractContextManager[BufferView]:
        """What to give to the primitive inside, which writes the tensor."""
        return written_as(self, tensor, self._lying(tensor), self.desc(tensor))

    def _lying(self, tensor: TensorSpec) -> p.MemoryDesc:
        return self.desc(tensor) if self.keep(tensor) else memory_descs.of(_as_image(tensor))


def _as_image(tensor: TensorSpec) -> TensorSpec:
    """The same elements with axes of extent 1 behind the channels."""
    missing, step = 4 - tensor.ndim, tensor.dtype.itemsize
    shape = *tensor.shape[:2], *(1,) * missing, *tensor.shape[2:]
    return TensorSpec(shape, tensor.dtype, (*tensor.strides[:2], *(step,) * missing, *tensor.strides[2:]))


def _goes_forward(tensor: TensorSpec) -> bool:
    return all(extent == 1 or stride > 0 for extent, stride in zip(tensor.shape, tensor.strides, strict=True))
