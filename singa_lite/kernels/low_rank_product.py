"""Products with factors of low rank, by the products of a set: one call of a record in the place of three to five."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from singa_lite.kernels.kernel_set import DeviceArray, Kernel, KernelSet, Launch, Settings, TensorSpec, TensorSpecs
from singa_lite.kernels.routine import in_order

#: A call of a kernel of the set: its name, its operands, which are arrays or specs of them, and its settings.
Call = tuple[str, tuple[Any, ...], dict[str, object]]


class LowRankProduct:
    """A kernel that does calls of other kernels of a set, which `calls` gives by its own operands."""

    def __init__(self, calls: Callable[..., Iterator[Call]], kernels: KernelSet) -> None:
        self.calls, self.kernels = calls, kernels

    def build(self, *specs: TensorSpec | None, **settings: object) -> None:
        """Nothing is built: calls are bound one by one."""

    def supports(self, specs: TensorSpecs, settings: Settings) -> bool:
        """All calls, as the set does each of the products in one way or another."""
        return True

    serves = supports

    def scratch_bytes(self, specs: TensorSpecs, settings: Settings) -> int:
        """Of the call that needs most."""
        return max(self.kernels.scratch_bytes(*call) for call in self.calls(*specs, **settings))

    def prepare(self, arrays: tuple[DeviceArray, ...], scratch: DeviceArray | None, settings: Settings) -> Launch:
        """Bind all calls."""
        calls = self.calls(*arrays, **settings)
        return in_order([self.kernels.prepare(name, given, scratch, also) for name, given, also in calls])


def products(kernels: KernelSet) -> dict[str, Kernel]:
    """The products with factors of low rank by the kernels of a set."""
    return {
        "low_rank_add": LowRankProduct(_add, kernels),
        "low_rank_add_derivative": LowRankProduct(_derivative, kernels),
    }


def _add(x: Any, a: Any, b: Any, h: Any, y: Any, *, scale: float) -> Iterator[Call]:
    yield "linear", (x, a, None, h), {}
    yield from _scaled(h, scale)
    yield _product("matmul_add", h, b, y)


def _derivative(
    dy: Any, x: Any, a: Any, b: Any, h: Any, dh: Any, da: Any, db: Any, dx: Any, *, scale: float
) -> Iterator[Call]:
    yield _product("matmul", dy, b, dh, transpose_b=True)
    yield from _scaled(dh, scale)
    yield _product("matmul", x, dh, da, transpose_a=True)
    yield _product("matmul", h, dy, db, transpose_a=True)
    if dx is not None:
        yield _product("matmul_add", dh, a, dx, transpose_b=True)


def _scaled(x: Any, scale: float) -> Iterator[Call]:
    if scale != 1:
        yield "scale", (x, x), {"alpha": scale, "beta": 0.0}


def _product(kernel: str, a: Any, b: Any, y: Any, transpose_a: bool = False, transpose_b: bool = False) -> Call:
    return kernel, (a, b, y), {"transpose_a": transpose_a, "transpose_b": transpose_b}
