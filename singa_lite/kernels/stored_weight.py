"""Products of activations in float32 with a weight in bfloat16, and its rows by ids: blocks of one number.

    y = x @ weight                        quantized_linear_derivative of its bytes, (in, 2 * out), in format "bf16"
    y = x @ weight^T, dx = dy @ weight^T  quantized_linear

So it is widened tile by tile, in scratch, and no activation is rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from singa_lite.common.checks import is_bfloat16
from singa_lite.kernels.composed import ComposedKernel, InnerCall, Temporaries
from singa_lite.kernels.kernel_set import Kernel, KernelSet, Settings, TensorSpec, TensorSpecs
from singa_lite.kernels.specs import spec_of

_WIDE = np.dtype(np.float32)
_FORMAT = {"format": "bf16"}


def reads_weight(name: str, specs: TensorSpecs, settings: Settings) -> bool:
    """Whether a call reads a weight in bfloat16 beside activations in float32, or rows of one."""
    if name == "embedding":
        _, weight, _ = specs
        return _is_weight(weight) and weight is not None and not _lies_by_columns(weight)
    if name not in ("matmul", "linear"):
        return False
    (x, weight, *_), y = specs, specs[-1]
    if not _is_weight(weight) or settings.get("transpose_a") or x is None or y is None:
        return False
    return x.ndim == y.ndim == 2 and x.dtype == y.dtype == _WIDE


def _is_weight(spec: TensorSpec | None) -> bool:
    """Whether it is a matrix in bfloat16 whose rows, or columns, have no gaps."""
    return spec is not None and is_bfloat16(spec.dtype) and spec.ndim == 2 and spec.dtype.itemsize in spec.strides


def _lies_by_columns(spec: TensorSpec) -> bool:
    return spec.strides[1] != spec.dtype.itemsize


def with_stored_weight(name: str, kernels: KernelSet) -> Kernel:
    """A kernel over a weight in bfloat16, by the kernels of a set: for every call of `reads_weight`."""
    return ComposedKernel(partial(_calls, name), kernels)


def _calls(name: str, _: Temporaries, x: Any, weight: Any, *beside: Any, **settings: Any) -> Iterator[InnerCall]:
    """beside: the bias, of `linear`, and the result."""
    y = beside[-1]
    by_columns = _lies_by_columns(spec_of(weight))
    as_bytes = (weight.T if by_columns else weight).view(np.uint8)
    if name == "embedding":
        yield InnerCall("quantized_embedding", (x, as_bytes, y), _FORMAT)
    elif bool(settings.get("transpose_b")) != by_columns:
        yield InnerCall("quantized_linear", (x, as_bytes, None, y), _FORMAT)
    else:
        yield InnerCall("quantized_linear_derivative", (x, as_bytes, y), _FORMAT)
    if name == "linear" and beside[0] is not None:
        yield InnerCall("add_bias", (y, beside[0], y), {"axis": 1})
    if activation := settings.get("activation"):
        yield InnerCall(activation, (y, y))
