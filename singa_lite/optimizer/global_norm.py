"""The norm of all gradients together, and gradients scaled so that it is at most a limit."""

from __future__ import annotations

from collections.abc import Iterable
from math import nan

import numpy as np

from singa_lite.autograd.ops.op import common_device
from singa_lite.common.checks import above_zero, goes_through
from singa_lite.device import Device, device_of
from singa_lite.graph.graph import Phase
from singa_lite.tensor import Tensor, from_numpy

_FLOAT64 = np.dtype(np.float64)


class GlobalNorm:
    """Clips gradients by the Euclidean norm of all of them together.

    Each is multiplied by min(1, limit / (norm + 1e-6)), as by torch.nn.utils.clip_grad_norm_ (Pascanu and others,
    "On the difficulty of training recurrent neural networks", ICML 2013). Squares are added up in float64. A norm that
    is NaN makes all gradients NaN, and an infinite one those that are infinite, and the others 0.

    limit: above 0; infinite: the norm is known and nothing is scaled.

    >>> clip = optimizer.GlobalNorm(limit=1.0)
    >>> squares = clip.squares(device.cpu())
    >>> for gradient in (tensor.as_tensor([3.0]), tensor.as_tensor([4.0, 0.0])):
    ...     squares.add(gradient)
    >>> round(clip.factor(squares).item(), 3), clip.norm(device.cpu()).item()
    (0.2, 5.0)
    """

    def __init__(self, limit: float, where: str = "GlobalNorm limit") -> None:
        self.limit = above_zero(where, limit)
        self._norm: Tensor | None = None

    def norm(self, device: Device) -> Tensor:
        """Of the last step: float64 (), overwritten by the next one; NaN before the first."""
        if self._norm is None or (self._norm.device.is_abstract and not device.is_abstract):
            self._norm = from_numpy(np.float64(nan), device)
        if self._norm.device is not device:
            self._norm = self._norm.to_device(device)
        return self._norm

    def squares(self, device: Device) -> Squares:
        """To begin a step with."""
        return Squares(device)

    def factor(self, squares: Squares) -> Tensor:
        """Of a step whose squares are all there: float64 (). It sets the norm too."""
        device = device_of(squares.total)
        factor: Tensor = device.empty((), _FLOAT64)
        device.run("clip_factor", squares.total, self.norm(device), factor, limit=self.limit)
        return factor


class Squares:
    """The sum of the squares of all gradients of a step. total: float64 ()."""

    def __init__(self, device: Device) -> None:
        self.total: Tensor = device.empty((), _FLOAT64)
        device.run("fill", self.total, value=0.0)

    def add(self, gradient: Tensor) -> None:
        """Enter a gradient, each once."""
        device_of(gradient).run("add_squares", gradient, self.total)


def scale_by(factor: Tensor, gradient: Tensor) -> None:
    """Multiply a gradient in place. factor: as `GlobalNorm.factor` gives it."""
    device_of(gradient).run("scale_by", factor, gradient)


def clip_global_norm(gradients: Iterable[Tensor], limit: float) -> Tensor:
    """Scales gradients in place so that the norm of all of them is at most `limit`, see `GlobalNorm`.

    For training loops by hand; `compile(clip_global_norm=)` does it within a step. gradients: floats on one device,
    each once, such as the values of `net.gradients(x, y)`. Returns the norm before: float64 ().
    TypeError for what is no tensor of floats, ValueError for no gradients, one given twice, or a limit that is not
    above 0, DeviceError for several devices.

    >>> gradients = [tensor.as_tensor([3.0]), tensor.as_tensor([4.0, 0.0])]
    >>> optimizer.clip_global_norm(gradients, limit=1.0).item()
    5.0
    >>> print(*(gradient.round(3) for gradient in gradients))
    [0.6] [0.8 0. ]
    """
    given, clip = _checked(gradients), GlobalNorm(limit, "clip_global_norm limit")
    device = common_device("clip_global_norm", given)
    with device.scope(Phase.UPDATE):
        squares = clip.squares(device)
        for gradient in given:
            squares.add(gradient)
        factor = clip.factor(squares)
        for gradient in given:
            scale_by(factor, gradient)
    return clip.norm(device)


def _checked(gradients: Iterable[Tensor]) -> list[Tensor]:
    if isinstance(gradients, Tensor) or not goes_through(gradients):
        raise TypeError(f"clip_global_norm: wanted an iterable of gradients, received {type(gradients).__name__}")
    given = list(gradients)
    for gradient in given:
        if not isinstance(gradient, Tensor) or gradient.dtype.kind != "f":
            kind = gradient.dtype if isinstance(gradient, Tensor) else type(gradient).__name__
            raise TypeError(f"clip_global_norm: wanted tensors of floats, received {kind}")
    if not given:
        raise ValueError("clip_global_norm: wanted gradients, received none")
    places = [(id(gradient.block), gradient.offset) for gradient in given]
    if len(set(places)) < len(places):
        raise ValueError("clip_global_norm: wanted each gradient once, received one twice")
    return given
