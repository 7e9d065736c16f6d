"""Steps over images (n, c, h, w) in one of the two layouts that primitives have fast code for."""

from __future__ import annotations

from contextlib import AbstractContextManager

from singa_lite.kernels.kernel_set import Axes, DeviceArray, Launch, TensorSpec, TensorSpecs
from singa_lite.kernels.onednn_kernels import one_thread
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.conversion import read_as, written_as
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine

_C_ORDER = (0, 1, 2, 3)


class Images(Routine):
    """Steps over tensors (n, c, ...), taken as images (n, c, h, w) with h and w of 1 where they have fewer axes.

    The primitives are given them in C order if all lie so, else channels last; what lies otherwise, or has gaps, is
    converted. Up to `one_thread.SMALL` elements are done by one thread.
    """

    def __init__(self, *tensors: TensorSpec) -> None:
        super().__init__()
        self._is_small = max(tensor.size for tensor in tensors) <= one_thread.SMALL
        images = [_as_image(tensor) for tensor in tensors]
        orders: tuple[Axes, ...] = (layouts.CHANNELS_LAST, _C_ORDER)
        fitting = [axes for axes in orders if all(layouts.lies_in_order(image, axes) for image in images)]
        self.axes = fitting[0] if fitting else layouts.CHANNELS_LAST

    @staticmethod
    def fit(*tensors: TensorSpec) -> bool:
        """Whether the library can take such tensors: two to four axes, none of them broadcast or backwards."""
        return all(2 <= tensor.ndim <= 4 and _goes_forward(tensor) for tensor in tensors)

    def desc(self, tensor: TensorSpec) -> p.MemoryDesc:
        """How the primitives are given the tensor."""
        return memory_descs.dense(_as_image(tensor).shape, str(tensor.dtype), self.axes)

    def make(self, function: str, *arguments: object, forward: p.Primitive | None = None) -> p.Primitive:
        """A primitive for as many threads as will run it."""
        with one_thread.making_if(self._is_small):
            return p.Primitive(function, *arguments, forward=forward)

    def read(self, tensor: TensorSpec) -> BufferView:
        """What to give to a primitive that reads the tensor."""
        return read_as(self, tensor, self._lying(tensor), self.desc(tensor))

    def written(self, tensor: TensorSpec) -> AbstractContextManager[BufferView]:
        """What to give to the primitive inside, which writes the tensor."""
        return written_as(self, tensor, self._lying(tensor), self.desc(tensor))

    def bind(self, specs: TensorSpecs, arrays: tuple[DeviceArray | None, ...], scratch: DeviceArray | None) -> Launch:
        """The steps over these arrays. specs: those that the routine was built with."""
        launch = super().bind(specs, arrays, scratch)
        return one_thread.running(launch) if self._is_small else launch

    def _lying(self, tensor: TensorSpec) -> p.MemoryDesc:
        image = _as_image(tensor)
        return self.desc(tensor) if layouts.is_dense(image, self.axes) else memory_descs.desc_of(image)


def _as_image(tensor: TensorSpec) -> TensorSpec:
    """The same elements with axes of extent 1 behind the channels."""
    missing, step = 4 - tensor.ndim, tensor.dtype.itemsize
    shape = *tensor.shape[:2], *(1,) * missing, *tensor.shape[2:]
    return TensorSpec(shape, tensor.dtype, (*tensor.strides[:2], *(step,) * missing, *tensor.strides[2:]))


def _goes_forward(tensor: TensorSpec) -> bool:
    return all(extent == 1 or stride > 0 for extent, stride in zip(tensor.shape, tensor.strides, strict=True))
