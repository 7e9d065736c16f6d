"""A routine over so many elements: small work is done by the caller's thread alone. Steps may take parts of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from singa_lite.common.array_types import DType
from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.kernel_set import DeviceArray, Launch, TensorSpec, TensorSpecs
from singa_lite.kernels.onednn_kernels import one_thread
from singa_lite.kernels.onednn_kernels.library.layouts import FLOAT
from singa_lite.kernels.onednn_kernels.library.primitive import PostOp, Primitive
from singa_lite.kernels.onednn_kernels.routine import BufferView, FlatSlice, Routine
from singa_lite.kernels.routine import Temporary


class Work(Routine):
    """A routine over `size` elements; up to `one_thread.SMALL` are done by one thread."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def making(self) -> AbstractContextManager[None]:
        """Primitives made inside are made for as many threads as will run them."""
        return one_thread.making_if(self.is_small)

    def make(
        self, function: str, *arguments: object, forward: Primitive | None = None, post_ops: Sequence[PostOp] = ()
    ) -> Primitive:
        """A primitive for as many threads as will run it."""
        with self.making():
            return Primitive(function, *arguments, forward=forward, post_ops=post_ops)

    def part(self, tensor: BufferView, start: int, count: int, dtype: DType = FLOAT) -> BufferView:
        """A buffer: elements of a tensor without gaps, in the order of memory; dtype: of those of a temporary."""
        if isinstance(tensor, Temporary):
            return tensor.part(start, count, dtype)
        if isinstance(tensor, TensorSpec):
            return FlatSlice(tensor, start, count)
        raise TypeError(f"a part of a tensor: wanted a whole tensor, received {tensor}")

    def bind(self, specs: TensorSpecs, arrays: tuple[DeviceArray | None, ...], scratch: DeviceArray | None) -> Launch:
        """The steps over these arrays. specs: those that the routine was built with."""
        launch = self._launch(specs, arrays, scratch)
        return one_thread.running(launch) if self.is_small else launch

    def _launch(
        self, specs: TensorSpecs, arrays: tuple[DeviceArray | None, ...], scratch: DeviceArray | None
    ) -> Launch:
        """The steps, on as many threads as the process has set."""
        return super().bind(specs, arrays, scratch)

    @property
    def is_small(self) -> bool:
        """Whether one thread does it."""
        return self.size <= one_thread.SMALL


def is_dense(tensor: TensorSpec, axes: Sequence[int]) -> bool:
    """Whether the elements lie without gaps, the axes in this order, outermost first. Extents of 1 fit any order."""
    wanted = ordered_strides(tensor.shape, axes, tensor.dtype.itemsize)
    return all(e == 1 or a == b for e, a, b in zip(tensor.shape, tensor.strides, wanted, strict=True))
