"""Two-dimensional convolution, and its derivative as an operation of its own, transposed convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from singa_lite.autograd.ops.linear import add_bias, bias_gradient
from singa_lite.autograd.ops.op import Op
from singa_lite.autograd.ops.windows import Extents, pads, pair
from singa_lite.common.checks import integer
from singa_lite.common.errors import ShapeError
from singa_lite.kernels.interface.window import Pad, Pair, Window
from singa_lite.tensor import Tensor

#: Stride, pad and dilation of a window, whose kernel is the weight's.
Steps = tuple[Pair, Pad, Pair]


class _Convolution(Op):
    """Base: both inputs' forms and values are kept for the derivatives, and the window is made of the weight's."""

    optional = (2,)

    def __init__(self, steps: Steps, groups: int) -> None:
        self.steps, self.groups = steps, groups

    def keep(self, x: Tensor, weight: Tensor) -> Window:
        """Save what the derivatives need; returns the window."""
        window = Window((weight.shape[2], weight.shape[3]), *self.steps)
        self.settings: dict[str, object] = {"window": window, "groups": self.groups}
        self.specs = (x.shape, x.dtype, "image"), (weight.shape, weight.dtype, weight.memory_order())
        self.save(x if self.needs[1] else None, weight if self.needs[0] else None)
        return window

    def run(self, kernel: str, tensors: Sequence[Tensor | None], *spec: Any) -> Tensor:
        """The result of the kernel, of these shape, dtype and layout."""
        result: Tensor = self.device.empty(*spec)
        self.device.run(kernel, *tensors, result, **self.settings)
        return result


class Conv2d(_Convolution):
    """y = x convolved with weight, plus bias."""

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        groups = self.groups
        if x.ndim != 4 or weight.ndim != 4 or x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
            raise ShapeError(
                f"conv2d: wanted x (n, c, h, w) and weight (k, c / groups, kh, kw) with groups {groups} dividing "
                f"c and k, received {x.shape} and {weight.shape}"
            )
        if bias is not None and bias.shape != weight.shape[:1]:
            raise ShapeError(f"conv2d: wanted a bias of shape {weight.shape[:1]}, received {bias.shape}")
        positions = self.keep(x, weight).positions("conv2d", (x.shape[2], x.shape[3]))
        return self.run("conv2d", (x, weight, bias), (x.shape[0], weight.shape[0], *positions), x.dtype, "image")

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if index == 2:
            return bias_gradient(self, dys[0], 1)
        if index == 0:
            return self.run("conv2d_derivative", (dys[0], self.kept(1)), *self.specs[0])
        return self.run("conv2d_gradient", (self.kept(0), dys[0]), *self.specs[1])


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Extents = 1,
    pad: Extents = 0,
    dilation: Extents = 1,
    groups: int = 1,
) -> Tensor:
    """Returns the two-dimensional convolution (cross-correlation) of x with the weight.

    x: (n, c, h, w); weight: (k, c / groups, kh, kw); bias: (k,) or None; result (n, k, oh, ow) with
    oh = (h + top + bottom - dilation_h * (kh - 1) - 1) // stride_h + 1, ow likewise.
    stride, dilation: int or (height, width); pad: of zeros, int, (height, width) or (top, bottom, left, right).

    >>> x, weight = tensor.ones((2, 3, 8, 6)), tensor.ones((5, 3, 3, 3))
    >>> autograd.conv2d(x, weight, stride=2, pad=1).shape
    (2, 5, 4, 3)
    """
    groups = integer("conv2d groups", groups, 1)
    steps = pair("conv2d", "stride", stride), pads("conv2d", pad), pair("conv2d", "dilation", dilation)
    return Conv2d(steps, groups)(x, weight, bias)


class Conv2dTranspose(_Convolution):
    """y = what the convolution of an image like y with `weight` hands back for x.

    So the kernels of a convolution serve in other roles: its derivative goes forward, it itself goes back, and its
    gradient takes dy for its image and x for its derivative.
    """

    def __init__(self, steps: Steps, groups: int, extra: Pair) -> None:
        super().__init__(steps, groups)
        self.extra = extra

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        groups = self.groups
        if x.ndim != 4 or weight.ndim != 4 or x.shape[1] != weight.shape[0] or x.shape[1] % groups:
            raise ShapeError(
                f"conv2d_transpose: wanted x (n, c, h, w) and weight (c, k / groups, kh, kw) with groups {groups} "
                f"dividing c, received {x.shape} and {weight.shape}"
            )
        window = self.keep(x, weight)
        extents = transposed_extents("conv2d_transpose", window, (x.shape[2], x.shape[3]), self.extra)
        shape = x.shape[0], weight.shape[1] * groups, *extents
        return self.run("conv2d_derivative", (x, weight), shape, x.dtype, "image")

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if index == 0:
            return self.run("conv2d", (dys[0], self.kept(1), None), *self.specs[0])
        return self.run("conv2d_gradient", (dys[0], self.kept(0)), *self.specs[1])


def transposed_extents(where: str, window: Window, extents: Pair, extra: Pair) -> Pair:
    """(rows, columns) of what a transposed convolution makes of an image of these extents.

    extra: rows and columns added at the bottom and the right, each below the stride, which a convolution of the result
    would not see. ShapeError, which begins with `where`, where the padding leaves nothing.
    """
    sizes = zip(extents, window.stride, window.pad_before, window.pad_behind, window.span, extra, strict=True)
    rows, columns = ((n - 1) * step - before - behind + span + more for n, step, before, behind, span, more in sizes)
    if rows < 1 or columns < 1:
        raise ShapeError(
            f"{where}: wanted an image that is larger than its padding {window.pad} cuts off, received "
            f"{extents[0]} x {extents[1]}, of which {rows} x {columns} would be left"
        )
    return rows, columns


def extra_extents(where: str, value: Extents, stride: Pair, axes: int = 2) -> Pair:
    """(rows, columns) of an int or one an axis, each from 0 to below the stride. ValueError for anything else."""
    rows, columns = pair(where, "output_padding", value, axes, least=0)
    if axes == 1:  # a sequence is an image of height 1
        rows = 0
    if rows >= stride[0] or columns >= stride[1]:
        raise ValueError(f"{where}: wanted output_padding below the stride {stride}, received {value!r}")
    return rows, columns


def conv2d_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Extents = 1,
    pad: Extents = 0,
    dilation: Extents = 1,
    groups: int = 1,
    output_padding: Extents = 0,
) -> Tensor:
    """Returns the two-dimensional transposed convolution of x, which is the derivative of `conv2d` by its image
    (PyTorch's; arXiv 1603.07285).

    x: (n, c, h, w); weight: (c, k / groups, kh, kw); bias: (k,) or None; result (n, k, oh, ow) with
    oh = (h - 1) * stride_h - top - bottom + dilation_h * (kh - 1) + output_padding_h + 1, ow likewise.
    stride, dilation: int or (height, width); pad: cut off the result, int, (height, width) or (top, bottom, left,
    right). output_padding: int or (height, width), from 0 to below the stride.

    >>> x, weight = tensor.ones((2, 3, 4, 3)), tensor.ones((3, 5, 3, 3))
    >>> autograd.conv2d_transpose(x, weight, stride=2, pad=1, output_padding=1).shape
    (2, 5, 8, 6)
    """
    where = "conv2d_transpose"
    groups, steps = integer(f"{where} groups", groups, 1), pair(where, "stride", stride)
    extra = extra_extents(where, output_padding, steps)
    y = Conv2dTranspose((steps, pads(where, pad), pair(where, "dilation", dilation)), groups, extra)(x, weight)
    return y if bias is None else add_bias(y, bias)
