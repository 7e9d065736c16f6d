"""Two-dimensional pooling: largest value, average, average of the whole image."""

from __future__ import annotations

from typing import Any

import numpy as np

from singa_lite.checks import flag
from singa_lite.errors import ShapeError
from singa_lite.ops.arithmetic import reduce_mean
from singa_lite.ops.op import Op, checked_tensor
from singa_lite.ops.windows import Extents, Pad, Pair, pads, pair, window_count
from singa_lite.tensor import Shape, Tensor


class _Pool2d(Op):
    def __init__(self, kernel: Pair, stride: Pair, pad: Pad, **settings: Any) -> None:
        self.settings: dict[str, Any] = {"kernel": kernel, "stride": stride, "pad": pad, **settings}

    def pooled_shape(self, x: Tensor) -> Shape:
        kernel, stride, pad = (self.settings[name] for name in ("kernel", "stride", "pad"))
        if x.ndim != 4:
            raise ShapeError(f"pooling: wanted x (n, c, h, w), received {x.shape}")
        if max(pad[:2]) >= kernel[0] or max(pad[2:]) >= kernel[1]:
            raise ShapeError(f"pooling: wanted padding below the kernel {kernel}, received {pad}")
        return x.shape[:2] + window_count("pooling", (x.shape[2], x.shape[3]), kernel, stride, pad)


class MaxPool2d(_Pool2d):
    """y = the largest element of each window."""

    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        y: Tensor = self.device.empty(self.pooled_shape(x), x.dtype, "image")
        index = None
        if self.needs[0]:
            area = self.settings["kernel"][0] * self.settings["kernel"][1]
            index = self.device.empty(y.shape, np.uint8 if area <= 256 else np.int32, "image")
        self.device.run("max_pool2d", x, y, index, **self.settings)
        self.save(index)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dx: Tensor = self.device.empty(self.shape, dys[0].dtype, "image")
        self.device.run("max_pool2d_derivative", dys[0], self.kept(0), dx, **self.settings)
        return dx


class AvgPool2d(_Pool2d):
    """y = the average of each window."""

    def forward(self, x: Tensor) -> Tensor:
        self.shape = x.shape
        y: Tensor = self.device.empty(self.pooled_shape(x), x.dtype, "image")
        self.device.run("avg_pool2d", x, y, **self.settings)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dx: Tensor = self.device.empty(self.shape, dys[0].dtype, "image")
        self.device.run("avg_pool2d_derivative", dys[0], dx, **self.settings)
        return dx


def _windows(where: str, kernel: Extents, stride: Extents, pad: Extents) -> tuple[Pair, Pair, Pad]:
    return pair(where, "kernel", kernel), pair(where, "stride", stride), pads(where, pad)


def max_pool2d(x: Tensor, kernel: Extents, stride: Extents, pad: Extents = 0) -> Tensor:
    """Largest element of each window; padding never wins.

    x: (n, c, h, w); kernel, stride: int or (height, width); pad: int, (height, width) or (top, bottom, left, right).
    """
    result: Tensor = MaxPool2d(*_windows("max_pool2d", kernel, stride, pad))(x)
    return result


def avg_pool2d(x: Tensor, kernel: Extents, stride: Extents, pad: Extents = 0, count_pad: bool = True) -> Tensor:
    """Average of each window. All as `max_pool2d`; count_pad: whether padding counts in the divisor."""
    count_pad = flag("avg_pool2d count_pad", count_pad)
    result: Tensor = AvgPool2d(*_windows("avg_pool2d", kernel, stride, pad), count_pad=count_pad)(x)
    return result


def global_avg_pool2d(x: Tensor) -> Tensor:
    """Average of each channel's image. x: (n, c, h, w); result (n, c)."""
    if checked_tensor("global_avg_pool2d", x).ndim != 4:
        raise ShapeError(f"global_avg_pool2d: wanted x (n, c, h, w), received {x.shape}")
    return reduce_mean(x, (2, 3))
