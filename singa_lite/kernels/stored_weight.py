"""Products of activations in float32 with a weight in bfloat16, and its rows by ids: blocks of one number.

    y = x @ weight                        quantized_linear_derivative of its bytes, (in, 2 * out), in format "bf16"
    y = x @ weight^T, dx = dy @ weight^T  quantized_linear

So it is widened tile by tile, in scratch, and no activation is rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.checks import is_bfloat16
from singa_lite.kernels.kernel_set import KernelSet, Launch, Settings, TensorSpec, TensorSpecs
from singa_lite.kernels.pieces import Arrays, required
from singa_lite.kernels.routine import in_order
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


class WithStoredWeight:
    """A kernel over a weight in bfloat16. name: of the kernel; kernels: the set whose kernels it is made of."""

    def __init__(self, name: str, kernels: KernelSet) -> None:
        self.name, self.kernels = name, kernels

    def supports(self, specs: TensorSpecs, settings: Settings) -> bool:
        """It can do every call of `reads_weight`."""
        return True

    serves = supports

    def scratch_bytes(self, specs: TensorSpecs, settings: Settings) -> int:
        """Of the call that needs most."""
        weight = required(specs[1])
        (rows, columns), (pitch, step), by_columns = weight.shape, weight.strides, _lies_by_columns(weight)
        if by_columns:
            rows, columns, pitch = columns, rows, step
        as_bytes = TensorSpec((rows, 2 * columns), np.dtype(np.uint8), (pitch, 1))
        return max(self.kernels.scratch_bytes(*call) for call in self._calls(specs, as_bytes, by_columns, settings))

    def prepare(self, arrays: Arrays, scratch: Array | None, settings: Settings) -> Launch:
        """Bind all of them."""
        weight = required(arrays[1])
        by_columns = _lies_by_columns(spec_of(weight))
        as_bytes = (weight.T if by_columns else weight).view(np.uint8)
        calls = self._calls(arrays, as_bytes, by_columns, settings)
        return in_order([self.kernels.prepare(name, each, scratch, also) for name, each, also in calls])

    def _calls(
        self, operands: Sequence[Any], weight: object, by_columns: bool, settings: Settings
    ) -> Iterator[tuple[str, Any, Settings]]:
        """The calls over operands, or over their specs. by_columns: the bytes are those of the transposed weight."""
        x, y = operands[0], operands[-1]
        if self.name == "embedding":
            yield "quantized_embedding", (x, weight, y), _FORMAT
        elif bool(settings.get("transpose_b")) != by_columns:
            yield "quantized_linear", (x, weight, None, y), _FORMAT
        else:
            yield "quantized_linear_derivative", (x, weight, y), _FORMAT
        if self.name == "linear" and operands[2] is not None:
            yield "add_bias", (y, operands[2], y), {"axis": 1}
        if activation := settings.get("activation"):
            yield str(activation), (y, y), {}
