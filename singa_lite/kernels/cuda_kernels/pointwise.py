"""Convolutions with 1 x 1 filters as matrix products: channels-last images are the rows of a matrix of pixels.

Two thirds of ResNet-50's convolutions are of this kind. A product needs no conversion of the images, where cuDNN's
engines for float32 turn channels-last ones into C order and back.
"""

from __future__ import annotations

from collections.abc import Mapping

from singa_lite.common.strides import reshaped_strides
from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.images import groups_of, window_of
from singa_lite.kernels.cuda_kernels.libraries.products import Products
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.cuda_kernels.walk import axis_spec
from singa_lite.kernels.kernel_set import TensorSpec


class PointwiseConvolutions:
    """The builders; None for filters of other extents, for strides and padding, and images in other orders."""

    #: (kernel, activation) that is done in one go.
    FUSIONS = (("conv2d", "relu"),)

    def __init__(self, products: Products) -> None:
        self.products = products

    @property
    def builders(self) -> Mapping[str, CallBuilder[Routine]]:
        """By kernel."""
        return {
            "conv2d": self.forward,
            "conv2d_derivative": self.derivative,
            "conv2d_gradient": self.gradient,
        }

    def forward(self, call: Call) -> Routine | None:
        """y = x @ weight^T + bias over the pixels, with the activations that a product has."""
        operands, settings = {name: name for name in call.operands}, {"activation": call.text("activation")}
        return _over_matrices(call, self.products.linear, "linear", operands, settings)

    def derivative(self, call: Call) -> Routine | None:
        """dx = dy @ weight over the pixels."""
        operands, settings = {"a": "dy", "b": "weight", "y": "dx"}, {"transpose_a": False, "transpose_b": False}
        return _over_matrices(call, self.products.matmul, "matmul", operands, settings)

    def gradient(self, call: Call) -> Routine | None:
        """dweight = dy^T @ x, sums over the pixels."""
        operands, settings = {"a": "dy", "b": "x", "y": "dweight"}, {"transpose_a": True, "transpose_b": False}
        return _over_matrices(call, self.products.matmul, "matmul", operands, settings)


def _over_matrices(
    call: Call,
    build: CallBuilder[Routine],
    kernel: str,
    operands: Mapping[str, str],
    settings: Mapping[str, object],
) -> Routine | None:
    """The product's steps over the convolution's tensors. operands: {operand of the product: of the convolution}."""
    if not window_of(call).is_pixel or groups_of(call) != 1:
        return None
    views = {name: _matrix(own, call[own], kernel == "linear") for name, own in operands.items()}
    seen = {name: view for name, view in views.items() if view is not None}
    routine = build(Call(kernel, seen, settings)) if len(seen) == len(views) else None
    return None if routine is None else routine.over({seen[name]: call[own] for name, own in operands.items()})


def _matrix(name: str, spec: TensorSpec, turned: bool) -> TensorSpec | None:
    """Filters as (kernels, channels), or turned; images as (pixels, channels), None if the pixels do not lie evenly."""
    if spec.ndim == 1:  # a bias
        return spec
    if name.endswith("weight"):
        return axis_spec((1, 0) if turned else (0, 1), spec)
    n, c, h, w = spec.shape
    of_n, of_c, of_h, of_w = spec.strides
    strides = reshaped_strides((n, h, w), (of_n, of_h, of_w), (n * h * w,))
    return None if strides is None else TensorSpec((n * h * w, c), spec.dtype, (*strides, of_c))
