"""Products with factors of low rank, by the products of a set: one call of a record in the place of three to five."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from singa_lite.kernels.composed import ComposedKernel, InnerCall, Temporaries, product
from singa_lite.kernels.kernel_set import Kernel, KernelSet


def products(kernels: KernelSet) -> dict[str, Kernel]:
    """The products with factors of low rank by the kernels of a set."""
    return {
        "low_rank_add": ComposedKernel(_add, kernels),
        "low_rank_add_derivative": ComposedKernel(_derivative, kernels),
    }


def _add(_: Temporaries, x: Any, a: Any, b: Any, h: Any, y: Any, *, scale: float) -> Iterator[InnerCall]:
    yield InnerCall("linear", (x, a, None, h))
    yield from _scaled(h, scale)
    yield product(h, b, y, "matmul_add")


def _derivative(
    _: Temporaries, dy: Any, x: Any, a: Any, b: Any, h: Any, dh: Any, da: Any, db: Any, dx: Any, *, scale: float
) -> Iterator[InnerCall]:
    yield product(dy, b, dh, transpose_b=True)
    yield from _scaled(dh, scale)
    yield product(x, dh, da, transpose_a=True)
    yield product(h, dy, db, transpose_a=True)
    if dx is not None:
        yield product(dh, a, dx, "matmul_add", transpose_b=True)


def _scaled(x: Any, scale: float) -> Iterator[InnerCall]:
    if scale != 1:
        yield InnerCall("scale", (x, x), {"alpha": scale, "beta": 0.0})
