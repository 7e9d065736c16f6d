"""Convolutions with 1 x 1 filters as matrix products: channels-last images are the rows of a matrix of pixels.

Two thirds of ResNet-50's convolutions are of this kind. A product needs no conversion of the images, where cuDNN's
engines for float32 turn channels-last ones into C order and back.
"""

from __future__ import annotations

from collections.abc import Mapping

from singa_lite.common.strides import reshaped_strides
from singa_lite.kernels.built import Builder
from singa_lite.kernels.cuda_kernels.libraries.products import Products
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import TensorSpec


class PointwiseConvolutions:
    """The builders; None for filters of other extents, for strides and padding, and images in other orders."""

    #: (kernel, activation) that is done in one go.
    FUSIONS = (("conv2d", "relu"),)

    def __init__(self, products: Products) -> None:
        self.products = products

    @property
    def builders(self) -> Mapping[str, Builder[Routine]]:
        """By kernel."""
        mine = self.conv2d, self.conv2d_derivative, self.conv2d_gradient
        return {builder.__name__: builder for builder in mine}

    def conv2d(
        self,
        x: TensorSpec,
        weight: TensorSpec,
        bias: TensorSpec | None,
        y: TensorSpec,
        *,
        window: Window,
        groups: int,
        activation: str = "",
    ) -> Routine | None:
        """y = x @ weight^T + bias over the pixels, with the activations that a product has."""
        views = _views((x, y), weight, window, groups, turned=True)
        if views is None:
            return None
        rows, results, filters = views
        routine = self.products.linear(rows, filters, bias, results, activation=activation)
        return _over_views(routine, views, (x, y, weight))

    def conv2d_derivative(
        self, dy: TensorSpec, weight: TensorSpec, dx: TensorSpec, *, window: Window, groups: int
    ) -> Routine | None:
        """dx = dy @ weight over the pixels."""
        views = _views((dy, dx), weight, window, groups)
        if views is None:
            return None
        rows, results, filters = views
        routine = self.products.matmul(rows, filters, results, transpose_a=False, transpose_b=False)
        return _over_views(routine, views, (dy, dx, weight))

    def conv2d_gradient(
        self, x: TensorSpec, dy: TensorSpec, dweight: TensorSpec, *, window: Window, groups: int
    ) -> Routine | None:
        """dweight = dy^T @ x, sums over the pixels."""
        views = _views((x, dy), dweight, window, groups)
        if views is None:
            return None
        rows, losses, filters = views
        routine = self.products.matmul(losses, rows, filters, transpose_a=True, transpose_b=False)
        return _over_views(routine, views, (x, dy, dweight))


def _views(
    images: tuple[TensorSpec, TensorSpec], weight: TensorSpec, window: Window, groups: int, turned: bool = False
) -> tuple[TensorSpec, TensorSpec, TensorSpec] | None:
    """Two images as (pixels, channels), and the filters as (kernels, channels), or turned; None if that is not it."""
    if not window.is_pixel or groups != 1:
        return None
    first, second = map(_pixels, images)
    if first is None or second is None:
        return None
    axes = (1, 0) if turned else (0, 1)
    filters = TensorSpec(tuple(weight.shape[i] for i in axes), weight.dtype, tuple(weight.strides[i] for i in axes))
    return first, second, filters


def _pixels(image: TensorSpec) -> TensorSpec | None:
    """(n, c, h, w) as (n * h * w, c), if the pixels lie evenly."""
    n, c, h, w = image.shape
    of_n, of_c, of_h, of_w = image.strides
    strides = reshaped_strides((n, h, w), (of_n, of_h, of_w), (n * h * w,))
    return None if strides is None else TensorSpec((n * h * w, c), image.dtype, (*strides, of_c))


def _over_views(
    routine: Routine | None, views: tuple[TensorSpec, ...], tensors: tuple[TensorSpec, ...]
) -> Routine | None:
    """The steps over the tensors that the views show."""
    return None if routine is None else routine.over(dict(zip(views, tensors, strict=True)))
