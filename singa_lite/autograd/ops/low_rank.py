"""Low-rank adapters: what a product or a convolution gives, plus scale * expand(reduce(x)), as one operation.

Hu and others, "LoRA" (arXiv 2106.09685).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from singa_lite.autograd.ops.convolution import Conv2d, Steps
from singa_lite.autograd.ops.linear import Linear
from singa_lite.autograd.ops.noise import drawn_key
from singa_lite.autograd.ops.op import Op
from singa_lite.autograd.ops.quantized import QuantizedLinear
from singa_lite.autograd.ops.shape import reshape
from singa_lite.tensor import Tensor

#: Of the convolution of 1 x 1 that brings channels back.
_POINT: Steps = (1, 1), (0, 0, 0, 0), (1, 1)

Product = Linear | Conv2d
Base = Product | QuantizedLinear


class Adapter(NamedTuple):
    """The tensors of an adapter. a, b: of reduce and expand; scale: of what they add; dropout: the share of x that
    reduce does not see; state: of its random numbers, None where dropout is 0.
    """

    a: Tensor
    b: Tensor
    scale: float
    dropout: float = 0.0
    state: Tensor | None = None


class Adapted(Op):
    """y = base(x, weight, bias) + scale * expand(reduce(dropout(x), a), b).

    base: an operation that gives a new tensor and its derivatives; reduce, expand: make operations of (x, weight).
    Products of matrices are added where y, and the derivative by x, lie already. The tape keeps x and what reduce gives
    of it, whose rank is low; what dropout took from x is taken again.
    """

    optional = (2, 5)

    def __init__(
        self, base: Base, reduce: Callable[[], Product], expand: Callable[[], Product], scale: float, dropout: float
    ) -> None:
        self.base, self.reduce, self.expand, self.scale, self.dropout = base, reduce, expand, scale, dropout
        self._dh: Tensor | None = None

    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, key: Tensor | None
    ) -> Tensor:
        self.base.device, self.base.needs = self.device, self.needs[:3]
        y = self.base.forward(x, weight, bias)
        h = self._scaled(self._operation(self.reduce).forward(self._dropped(x, key), a, None))
        self.save(x, a, b, h, key)
        expand = self._operation(self.expand)
        if isinstance(expand, Conv2d):
            return self.computed("add", y, expand.forward(h, b, None))
        self.device.run("matmul_add", h, b, y, transpose_a=False, transpose_b=False)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if index in (1, 2):
            return self.base.backward(index, *dys)
        x, a, b, h = (self.kept(number) for number in range(4))
        key = self.saved[4]
        if index == 4:
            return self._operation(self.expand, h, b).backward(1, *dys)
        if self._dh is None:
            self._dh = self._scaled(self._operation(self.expand, h, b).backward(0, *dys))
        if index == 3:
            return self._operation(self.reduce, self._dropped(x, key), a).backward(1, self._dh)
        dx, reduce = self.base.backward(0, *dys), self._operation(self.reduce, x, a)
        if isinstance(reduce, Conv2d) or key is not None:
            return self.computed("add", dx, self._dropped(reduce.backward(0, self._dh), key))
        self.device.run("matmul_add", self._dh, a, dx, transpose_a=False, transpose_b=True)
        return dx

    def release(self) -> None:
        super().release()
        self.base.release()
        self._dh = None

    def _operation(self, make: Callable[[], Product], x: Tensor | None = None, weight: Tensor | None = None) -> Product:
        """An operation to go forward by; to go back by, where it is given what it was applied to."""
        op = make()
        op.device, op.needs = self.device, (x is not None,) * 2
        if x is not None and weight is not None:
            op.keep(x, weight)
        return op

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.scale == 1 else self.computed("scale", x, alpha=self.scale, beta=0.0)

    def _dropped(self, x: Tensor, key: Tensor | None) -> Tensor:
        return x if key is None else self.computed("dropout", x, key, p=self.dropout)


def adapted_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, adapter: Adapter, format: str | None = None
) -> Tensor:
    """Returns autograd.linear(x, weight, bias) + scale * dropout(x) @ a @ b. a: (in, rank); b: (rank, out).

    format: of a weight in quantised blocks, as of `autograd.quantized_linear`.
    """
    rows = x if x.ndim == 2 else reshape(x, (-1, x.shape[-1]))

    def make() -> Linear:
        return Linear(False)

    base = make() if format is None else QuantizedLinear(format)
    y = _adapted(base, make, make, rows, weight, bias, adapter)
    return y if x.ndim == 2 else reshape(y, (*x.shape[:-1], y.shape[1]))


def adapted_conv2d(x: Tensor, weight: Tensor, bias: Tensor | None, adapter: Adapter, steps: Steps) -> Tensor:
    """Returns autograd.conv2d(x, weight, bias) + scale * (dropout(x) convolved with a by the same window, then with b).

    a: (rank, c, kh, kw); b: (k, rank, 1, 1); steps: stride, pad and dilation of the window.
    """

    def reduce() -> Conv2d:
        return Conv2d(steps, 1)

    return _adapted(reduce(), reduce, lambda: Conv2d(_POINT, 1), x, weight, bias, adapter)


def _adapted(
    base: Base,
    reduce: Callable[[], Product],
    expand: Callable[[], Product],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    adapter: Adapter,
) -> Tensor:
    a, b, scale, dropout, state = adapter
    key = None if state is None or not dropout else drawn_key("low_rank", state)
    return Adapted(base, reduce, expand, scale, dropout)(x, weight, bias, a, b, key)
