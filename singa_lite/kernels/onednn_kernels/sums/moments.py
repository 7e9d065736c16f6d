"""What the passes of layer normalization share: primitives, and statistics as the library has them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import BufferView
from singa_lite.kernels.onednn_kernels.work import Work
from singa_lite.kernels.routine import Temporary

Arguments = dict[int, BufferView]


def forward(
    work: Work, kind: str, prop: int, tensors: tuple[p.MemoryDesc, ...], epsilon: float, flags: int
) -> Primitive:
    """kind: "batch" or "layer"; tensors: x and y, which lie alike, and behind them the statistics of layers."""
    return work.make(f"{kind}_normalization_forward", prop, *tensors, epsilon, flags)


def backward(work: Work, kind: str, tensors: tuple[p.MemoryDesc, ...], flags: int) -> Primitive:
    """tensors: as of `forward`. The variance that it is given must contain epsilon."""
    hint = forward(work, kind, f.FORWARD_TRAINING, tensors, 0.0, flags)
    return work.make(f"{kind}_normalization_backward", f.BACKWARD, tensors[0], *tensors, 0.0, flags, forward=hint)


def is_slow(primitive: Primitive) -> bool:
    """Whether it runs plain loops."""
    return "ref" in primitive.implementation


def add_variance(work: Work, inv_std: TensorSpec) -> Temporary:
    """Add a step: variance + epsilon, from inv_std."""

    def invert(inv_std: Array, variance: Array) -> None:
        np.reciprocal(inv_std, out=variance)
        np.square(variance, out=variance)

    variance = work.temporary(inv_std.shape, "float32")
    work.call(invert, inv_std, variance)
    return variance


def inverter(epsilon: float) -> Callable[[Array], None]:
    """A function for a step: it overwrites the variance with 1 / sqrt(variance + epsilon)."""

    def invert(variance: Array) -> None:
        np.add(variance, epsilon, out=variance)
        np.sqrt(variance, out=variance)
        np.reciprocal(variance, out=variance)

    return invert
