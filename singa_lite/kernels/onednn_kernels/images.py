"""Steps over images (n, c, h, w) in one of the two layouts that primitives have fast code for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from singa_lite.common.array_types import DType
from singa_lite.kernels.kernel_set import Axes, TensorSpec
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.conversion import read_as, written_as
from singa_lite.kernels.onednn_kernels.pitched import Pitched
from singa_lite.kernels.onednn_kernels.routine import BufferView
from singa_lite.kernels.onednn_kernels.work import Work, is_dense

_C_ORDER = (0, 1, 2, 3)


class Images(Work):
    """Steps over tensors (n, c, ...), taken as images (n, c, h, w) with h and w of 1 where they have fewer axes.

    The primitives are given them in C order if all lie so, else channels last; gaps, as a piece of a larger tensor has
    them, change nothing of that. What lies otherwise, has gaps, or is in bfloat16, is converted: whole by `read` and
    `written`, a cacheful of pixels at a time by `source` and `sink`. as_stored: primitives are given bfloat16 as it is;
    else in float32.
    """

    def __init__(self, *tensors: TensorSpec, as_stored: bool = False) -> None:
        super().__init__(max(tensor.size for tensor in tensors))
        self._as_stored = as_stored
        images = [_as_image(tensor) for tensor in tensors]
        orders: tuple[Axes, ...] = (layouts.CHANNELS_LAST, _C_ORDER)
        fitting = [axes for axes in orders if all(layouts.lies_in_order(image, axes) for image in images)]
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
        return memory_descs.dense(self.shape(tensor), str(self.stored(tensor)), self.axes)

    def stored(self, tensor: TensorSpec) -> DType:
        """The type in which the primitives are given the tensor."""
        return layouts.FLOAT if self._widens(tensor) else tensor.dtype

    def keep(self, *tensors: TensorSpec) -> bool:
        """Whether all are given to the primitives as they are."""
        return all(is_dense(_as_image(tensor), self.axes) and not self._widens(tensor) for tensor in tensors)

    def lie(self, *tensors: TensorSpec) -> bool:
        """Whether all lie in the order in which the primitives are given them, perhaps with gaps."""
        return all(layouts.lies_in_order(_as_image(tensor), self.axes) for tensor in tensors)

    def source(self, tensor: TensorSpec, copy: TensorSpec | None = None) -> BufferView | Pitched:
        """What to give to steps that read the tensor as `Columns` has it: a piece of a larger one stays where it is.

        copy: a result of the same shape, written behind these steps, where such a piece may be left without gaps for
        others to read; that is not done if it has gaps itself.
        """
        pitched = self._pitched(tensor, copy if copy is not None and self.keep(copy) else None)
        return self.read(tensor) if pitched is None else pitched

    @contextmanager
    def sink(self, tensor: TensorSpec) -> Iterator[BufferView | Pitched]:
        """What to give to the steps inside, which write the tensor as `Columns` has it."""
        pitched = self._pitched(tensor)
        if pitched is not None:
            yield pitched
            return
        with self.written(tensor) as target:
            yield target

    def _pitched(self, tensor: TensorSpec, copy: TensorSpec | None = None) -> Pitched | None:
        """The tensor with a scratch for a cacheful of it; None where the pixels lie otherwise, or stay as they are."""
        if self.axes != layouts.CHANNELS_LAST or self.keep(tensor):
            return None
        pitch = layouts.pitch_of(_as_image(tensor))
        return None if pitch is None else Pitched(self, tensor, self.shape(tensor), pitch, copy, self.stored(tensor))

    def read(self, tensor: TensorSpec) -> BufferView:
        """What to give to a primitive that reads the tensor."""
        return read_as(self, tensor, self._lying(tensor), self.desc(tensor))

    def written(self, tensor: TensorSpec) -> AbstractContextManager[BufferView]:
        """What to give to the primitive inside, which writes the tensor."""
        return written_as(self, tensor, self._lying(tensor), self.desc(tensor))

    def _widens(self, tensor: TensorSpec) -> bool:
        return layouts.is_narrow(tensor) and not self._as_stored

    def _lying(self, tensor: TensorSpec) -> p.MemoryDesc:
        return self.desc(tensor) if self.keep(tensor) else memory_descs.desc_of(_as_image(tensor))


def _as_image(tensor: TensorSpec) -> TensorSpec:
    """The same elements with axes of extent 1 behind the channels."""
    missing, step = 4 - tensor.ndim, tensor.dtype.itemsize
    shape = *tensor.shape[:2], *(1,) * missing, *tensor.shape[2:]
    return TensorSpec(shape, tensor.dtype, (*tensor.strides[:2], *(step,) * missing, *tensor.strides[2:]))


def _goes_forward(tensor: TensorSpec) -> bool:
    return all(extent == 1 or stride > 0 for extent, stride in zip(tensor.shape, tensor.strides, strict=True))
