"""Both ways around each threshold of our own kernels: one size, done as the constant has it, and the other way."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple
from unittest.mock import patch

from first_run.item import Context, Values, counted
from first_run.kernel_times import LAUNCHES, Timed, dtypes, plain, prepared_launch


class Threshold(NamedTuple):
    """A constant of a module of `cuda_kernels`; shapes of a kernel at it; another value, by which the kernel does these
    shapes the other way."""

    module: str
    constant: str
    other: int
    kernel: str
    shapes: tuple[tuple[int, ...] | None, ...]
    settings: Mapping[str, Any]


def _rows(rows: int, features: int) -> tuple[tuple[int, ...], ...]:
    """Of layer_norm: x, gamma, beta, y, mean, inv_std."""
    return (rows, features), (features,), (features,), (rows, features), (rows,), (rows,)


_SOFTMAX = {"axis": 1}
THRESHOLDS = (
    Threshold("layer_norm", "WARP_FEATURES", 8191, "layer_norm", _rows(4096, 8192), {"epsilon": 1e-5}),
    Threshold("layer_norm", "WARP_FEATURES", 2047, "layer_norm", _rows(16384, 2048), {"epsilon": 1e-5}),
    Threshold("layer_norm", "FEW_FEATURES", 1023, "layer_norm", _rows(256, 1024), {"epsilon": 1e-5}),
    Threshold("layer_norm", "MANY_ROWS", 513, "layer_norm", _rows(512, 4096), {"epsilon": 1e-5}),
    Threshold("softmax", "LONG", 8191, "softmax", ((2048, 8192),) * 2, _SOFTMAX),
    Threshold("softmax", "LONG", 32768, "softmax", ((1024, 32768),) * 2, _SOFTMAX),
    Threshold("softmax", "LONG", 1 << 20, "softmax", ((512, 50257),) * 2, _SOFTMAX),
    Threshold("positions", "MANY", 2049, "in_top_k", ((8192, 2048), (8192,), (8192,)), {"k": 5}),
    Threshold("positions", "MANY", 1 << 20, "in_top_k", ((4096, 50257), (4096,), (4096,)), {"k": 5}),
    Threshold("reduction", "LONG", 1 << 20, "reduce_sum", ((8192, 4096), (8192,)), {"axes": (1,), "alpha": 1.0}),
    Threshold("reduction", "LONG", 16, "reduce_sum", ((65536, 256), (65536,)), {"axes": (1,), "alpha": 1.0}),
    Threshold("reduction", "BUSY", 4096, "reduce_sum", ((1 << 22,), ()), {"axes": (0,), "alpha": 1.0}),
    Threshold("reduction", "BUSY", 128, "bias_gradient", ((1 << 16, 512), (512,)), {"axis": 1}),
    Threshold(
        "plane", "SUM_BLOCKS", 4096, "layer_norm_gradient", ((16384, 768),) * 2 + ((16384,),) * 2 + ((768,),) * 2, {}
    ),
    Threshold(
        "plane", "SUM_BLOCKS", 256, "layer_norm_gradient", ((16384, 768),) * 2 + ((16384,),) * 2 + ((768,),) * 2, {}
    ),
    Threshold("routine", "MOST_BLOCKS", 16384, "relu", ((1 << 26,),) * 2, {}),
    Threshold("routine", "MOST_BLOCKS", 1056, "relu", ((1 << 26,),) * 2, {}),
)
#: Rows of the stand-in's tensors: it only shows that the calls are right.
FEW = 3


def thresholds(context: Context) -> Values:
    """Microseconds of each call as the constant has it, and with the other value."""
    failed = 0
    for one in THRESHOLDS:
        names = {"kernel": one.kernel, "constant": f"{one.module}.{one.constant}", "other": one.other}
        failed += "failed" in context.try_row(names, partial(_both_ways, context, one))
    return counted(failed, len(THRESHOLDS))


def _both_ways(context: Context, one: Threshold) -> Values:
    module = import_module(f"singa_lite.kernels.cuda_kernels.{one.module}")
    shapes = one.shapes
    if context.options.tiny:
        rows = shapes[0][0]  # type: ignore[index]
        shapes = tuple(
            tuple(FEW if extent == rows else extent for extent in shape) for shape in shapes if shape is not None
        )
    call = Timed(one.kernel, tuple(map(plain, dtypes(one.kernel, shapes), shapes)), one.settings, 1)
    found: Values = {"kernel": one.kernel, "shapes": str(shapes[0]), "constant": f"{one.module}.{one.constant}"}
    for value in (getattr(module, one.constant), one.other):
        with _constant(module, one.constant, value):
            kernels = context.machine.fresh_set()
            with prepared_launch(context.machine, kernels, call) as launch:
                found[f"us at {value}"] = context.machine.captured_microseconds(launch, LAUNCHES)
    return found


@contextmanager
def _constant(module: Any, name: str, value: int) -> Iterator[None]:
    """The constant is this value inside, for all modules that have imported it."""
    owners = [one for one in _cuda_modules() if getattr(one, name, None) == getattr(module, name)]
    with ExitStack() as stack:
        for owner in owners:
            stack.enter_context(patch.object(owner, name, value))
        yield


def _cuda_modules() -> list[Any]:
    return [module for name, module in sys.modules.items() if name.startswith("singa_lite.kernels.cuda_kernels.")]
