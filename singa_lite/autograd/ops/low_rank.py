"""Low-rank adapters: what a product or a convolution gives, plus scale * expand(reduce(x)), as one operation.

Hu and others, "LoRA" (arXiv 2106.09685).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, cast

from singa_lite.autograd.ops.convolution import Conv2d, Steps
from singa_lite.autograd.ops.linear import Linear, product
from singa_lite.autograd.ops.noise import drawn_key
from singa_lite.autograd.ops.op import Op
from singa_lite.autograd.ops.quantized import QuantizedLinear
from singa_lite.autograd.ops.shape import reshape
from singa_lite.tensor import Tensor

#: Of the convolution of 1 x 1 that brings channels back.
_POINT: Steps = (1, 1), (0, 0, 0, 0), (1, 1)

Base = Linear | Conv2d | QuantizedLinear


class Adapter(NamedTuple):
    """The tensors of an adapter. a, b: of reduce and expand; scale: of what they add; dropout: the share of x that
    reduce does not see; state: of its random numbers, None where dropout is 0.
    """

    a: Tensor
    b: Tensor
    scale: float
    dropout: float = 0.0
    state: Tensor | None = None


class Adapted(Op, ABC):
    """y = base(x, weight, bias) + scale * expand(reduce(dropout(x), a), b).

    base: an operation that gives a new tensor and its derivatives. The tape keeps x and what reduce gives of it, whose
    rank is low; what dropout took from x is taken again.
    """

    optional = (2, 5)

    def __init__(self, base: Base, scale: float, dropout: float) -> None:
        self.base, self.scale, self.dropout = base, scale, dropout

    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, key: Tensor | None
    ) -> Tensor:
        self.base.device, self.base.needs = self.device, self.needs[:3]
        y, h = self.added(self.base.forward(x, weight, bias), self.dropped(x, key), a, b)
        self.save(x, a, b, h, key)
        return y

    @abstractmethod
    def added(self, y: Tensor, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """y with what the adapter adds, and what reduce gives, scaled."""

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dx = self.base.backward(index, *dys) if index < 3 else None
        if index in (1, 2):
            return cast(Tensor, dx)
        dx, da, db = self.derivatives(dys[0], dx)
        self.made |= {at: made for at, made in ((3, da), (4, db)) if self.needs[at]}
        return self.made.pop(index) if dx is None else dx

    @abstractmethod
    def derivatives(self, dy: Tensor, dx: Tensor | None) -> tuple[Tensor | None, Tensor, Tensor]:
        """dx with what comes through the adapter, and the derivatives by a and b. dx: None where x needs none."""

    def release(self) -> None:
        super().release()
        self.base.release()

    def dropped(self, x: Tensor, key: Tensor | None) -> Tensor:
        """What reduce sees of x."""
        return x if key is None else self.computed("dropout", x, key, p=self.dropout)


class AdaptedLinear(Adapted):
    """Of a product of matrices, added where y, and the derivative by x, lie already: one call forward, one back."""

    def added(self, y: Tensor, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        h: Tensor = self.device.empty((x.shape[0], a.shape[1]), x.dtype)
        self.device.run("low_rank_add", x, a, b, h, y, scale=self.scale)
        return y, h

    def derivatives(self, dy: Tensor, dx: Tensor | None) -> tuple[Tensor | None, Tensor, Tensor]:
        x, a, b, h = map(self.kept, range(4))
        key, (dh, da, db) = self.saved[4], map(self.empty_like, (h, a, b))
        where, seen = dx if key is None else None, self.dropped(x, key)
        self.device.run("low_rank_add_derivative", dy, seen, a, b, h, dh, da, db, where, scale=self.scale)
        if dx is not None and key is not None:
            dx = self.computed("add", dx, self.dropped(product(self, dh, a, transpose_b=True), key))
        return dx, da, db


class AdaptedConv2d(Adapted):
    """Of a convolution. steps: stride, pad and dilation of its window."""

    def __init__(self, steps: Steps, scale: float, dropout: float) -> None:
        super().__init__(Conv2d(steps, 1), scale, dropout)
        self.steps = steps

    def added(self, y: Tensor, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        h = self._scaled(self._convolution(self.steps).forward(x, a, None))
        return self.computed("add", y, self._convolution(_POINT).forward(h, b, None)), h

    def derivatives(self, dy: Tensor, dx: Tensor | None) -> tuple[Tensor | None, Tensor, Tensor]:
        x, a, b, h = map(self.kept, range(4))
        key, expand = self.saved[4], self._convolution(_POINT, h, b)
        db, dh = expand.backward(1, dy), self._scaled(expand.backward(0, dy))
        da = self._convolution(self.steps, self.dropped(x, key), a).backward(1, dh)
        if dx is not None:
            through = self._convolution(self.steps, x, a).backward(0, dh)
            dx = self.computed("add", dx, self.dropped(through, key))
        return dx, da, db

    def _convolution(self, steps: Steps, x: Tensor | None = None, weight: Tensor | None = None) -> Conv2d:
        """An operation to go forward by; to go back by, where it is given what it was applied to."""
        op = Conv2d(steps, 1)
        op.device, op.needs = self.device, (x is not None,) * 2
        if x is not None and weight is not None:
            op.keep(x, weight)
        return op

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.scale == 1 else self.computed("scale", x, alpha=self.scale, beta=0.0)


def adapted_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, adapter: Adapter, format: str | None = None
) -> Tensor:
    """Returns autograd.linear(x, weight, bias) + scale * dropout(x) @ a @ b. a: (in, rank); b: (rank, out).

    format: of a weight in quantised blocks, as of `autograd.quantized_linear`.
    """
    rows = x if x.ndim == 2 else reshape(x, (-1, x.shape[-1]))
    base = Linear(False) if format is None else QuantizedLinear(format)
    y = _with_adapter(AdaptedLinear(base, adapter.scale, adapter.dropout), rows, weight, bias, adapter)
    return y if x.ndim == 2 else reshape(y, (*x.shape[:-1], y.shape[1]))


def adapted_conv2d(x: Tensor, weight: Tensor, bias: Tensor | None, adapter: Adapter, steps: Steps) -> Tensor:
    """Returns autograd.conv2d(x, weight, bias) + scale * (dropout(x) convolved with a by the same window, then with b).

    a: (rank, c, kh, kw); b: (k, rank, 1, 1); steps: stride, pad and dilation of the window.
    """
    return _with_adapter(AdaptedConv2d(steps, adapter.scale, adapter.dropout), x, weight, bias, adapter)


def _with_adapter(op: Adapted, x: Tensor, weight: Tensor, bias: Tensor | None, adapter: Adapter) -> Tensor:
    a, b, _, dropout, state = adapter
    key = None if state is None or not dropout else drawn_key("low_rank", state)
    return op(x, weight, bias, a, b, key)
