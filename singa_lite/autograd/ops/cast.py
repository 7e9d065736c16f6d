"""Values in another dtype."""

from __future__ import annotations

from numpy.typing import DTypeLike

from singa_lite.autograd.ops.op import Op, checked_tensor
from singa_lite.common.array_types import DType
from singa_lite.tensor import Tensor, checked_dtype


class Cast(Op):
    """Rounds values to another float dtype, and the derivative to the dtype of the input."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        self.before = x.dtype
        return self._converted(x, self.dtype)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        return self._converted(dys[0], self.before)

    def _converted(self, x: Tensor, dtype: DType) -> Tensor:
        y = self.device.empty(x.shape, dtype, x.memory_order())
        self.device.run("copy", x, y)
        return y


def cast(x: Tensor, dtype: DTypeLike) -> Tensor:
    """x in another float dtype, itself if it has that. x: any shape."""
    wanted = checked_dtype("cast", dtype)
    if checked_tensor("cast", x).dtype == wanted:
        return x
    return Cast(wanted)(x)
