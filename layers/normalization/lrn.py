"""LRN: local response normalisation."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.layers._checks import input_axes, label, number, positive, positive_int
from singa_lite.tensor import Shape, Tensor


class LRN(Layer):
    """Normalises over neighbouring channels: y = x / (k + alpha / size * sum of x**2 over `size` neighbouring channels)
    ** beta.

    From Krizhevsky, Sutskever and Hinton 2012, with alpha divided by size as in Caffe, cuDNN and PyTorch;
    channels beyond the first and last count as 0.

    Input and output samples (channels, ...).

    size: odd. alpha: at least 0. beta: at least 0. k: above 0. mode: "cross_channel", the only one.

    >>> net = Sequential([layers.Input((6, 8, 5)), layers.LRN(size=3, alpha=1e-4)])
    >>> net.predict(np.ones((2, 6, 8, 5), "float32")).shape
    (2, 6, 8, 5)
    """

    def __init__(
        self,
        name: str,
        size: int = 5,
        alpha: float = 1.0,
        beta: float = 0.75,
        mode: str = "cross_channel",
        k: float = 1.0,
        *,
        input_sample_shape: InputShape | None = None,
    ) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.size = positive_int(self, "size", size)
        if self.size % 2 == 0:
            raise ValueError(f"{label(self)}: wanted size to be odd, received {size}")
        if not isinstance(mode, str) or mode != "cross_channel":
            raise ValueError(f"{label(self)}: wanted mode 'cross_channel', the only one, received {mode!r}")
        self.alpha = number(self, "alpha", alpha, 0)
        self.beta = number(self, "beta", beta, 0)
        self.k = positive(self, "k", k)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        if not self.dtype.type(self.k):
            raise ValueError(f"{label(self)}: wanted k to be a number that {self.dtype} holds, received {self.k}")
        return input_axes(self, shapes, ("channels", "..."))

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, channels, ...) -> the same shape."""
        return autograd.lrn(x, self.size, self.alpha, self.beta, self.k)
