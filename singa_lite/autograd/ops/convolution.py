"""Two-dimensional convolution."""

from __future__ import annotations

from singa_lite.autograd.ops.linear import bias_gradient
from singa_lite.autograd.ops.op import Op
from singa_lite.autograd.ops.windows import Extents, pads, pair
from singa_lite.common.checks import integer
from singa_lite.common.errors import ShapeError
from singa_lite.kernels.interface.window import Pad, Pair, Window
from singa_lite.tensor import Tensor

#: Stride, pad and dilation of a window, whose kernel is the weight's.
Steps = tuple[Pair, Pad, Pair]


class Conv2d(Op):
    """y = x convolved with weight, plus bias."""

    optional = (2,)

    def __init__(self, steps: Steps, groups: int) -> None:
        self.steps, self.groups = steps, groups

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        groups = self.groups
        if x.ndim != 4 or weight.ndim != 4 or x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
            raise ShapeError(
                f"conv2d: wanted x (n, c, h, w) and weight (k, c / groups, kh, kw) with groups {groups} dividing "
                f"c and k, received {x.shape} and {weight.shape}"
            )
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ShapeError(f"conv2d: wanted a bias of shape {weight.shape[:1]}, received {bias.shape}")
        window = Window((weight.shape[2], weight.shape[3]), *self.steps)
        shape = x.shape[0], weight.shape[0], *window.positions("conv2d", (x.shape[2], x.shape[3]))
        y = self.device.empty(shape, x.dtype, "image")
        self.settings: dict[str, object] = {"window": window, "groups": groups}
        self.device.run("conv2d", x, weight, bias, y, **self.settings)
        self.specs = (x.shape, x.dtype, "image"), (weight.shape, weight.dtype, weight.memory_order())
        self.save(x if self.needs[1] else None, weight if self.needs[0] else None)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if index == 2:
            return bias_gradient(self, dys[0], 1)
        result = self.device.empty(*self.specs[index])
        if index == 0:
            self.device.run("conv2d_derivative", dys[0], self.kept(1), result, **self.settings)
        else:
            self.device.run("conv2d_gradient", self.kept(0), dys[0], result, **self.settings)
        return result


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Extents = 1,
    pad: Extents = 0,
    dilation: Extents = 1,
    groups: int = 1,
) -> Tensor:
    """Two-dimensional convolution (cross-correlation).

    x: (n, c, h, w); weight: (k, c / groups, kh, kw); bias: (k,) or None; result (n, k, oh, ow) with
    oh = (h + top + bottom - dilation_h * (kh - 1) - 1) // stride_h + 1, ow likewise.
    stride, dilation: int or (height, width); pad: of zeros, int, (height, width) or (top, bottom, left, right).
    """
    groups = integer("conv2d groups", groups, 1)
    steps = pair("conv2d", "stride", stride), pads("conv2d", pad), pair("conv2d", "dilation", dilation)
    return Conv2d(steps, groups)(x, weight, bias)
