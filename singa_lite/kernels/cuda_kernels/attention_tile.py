"""What is done to a tile of attention's scores between its products: kernels of attention.cu, a block for each row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.cuda_kernels.routine import THREADS, Routine, Types, blocks
from singa_lite.kernels.cuda_kernels.walk import power_of_two, step, steps
from singa_lite.kernels.kernel_set import Settings, TensorSpec, TensorSpecs

FILE = "attention.cu"
#: Keys that a thread of a block takes, where that makes no more than THREADS threads.
KEYS_OF_THREAD = 8
#: `Tile` of attention.cu.
_TILE = np.dtype(
    [
        *((name, "i8") for name in ("rows", "keys", "row", "causal")),
        *((name, "i8", 2) for name in ("lse_steps", "mask_steps", "first_steps")),
        *((name, "i8") for name in ("key_step", "number", "batch_numbers", "row_numbers")),
        *((name, "f8") for name in ("scale", "p")),
    ]
)
#: Of an operand that may be left out.
_Spec = TensorSpec | None


def probabilities(
    scores: TensorSpec, mask: _Spec, first: _Spec, key: _Spec, shares: TensorSpec, lse: TensorSpec, **settings: Any
) -> Routine:
    """Shares of a tile: the softmax of its scores, dropped. scores, shares: (batch, rows, keys); lse: (batch, rows)."""
    tile = _Tile(scores, mask, first, key, shares, lse)
    return tile.launch("attention_probabilities", tile, settings)


def slopes(
    scores: TensorSpec,
    dp: TensorSpec,
    dy: TensorSpec,
    y: TensorSpec,
    mask: _Spec,
    first: _Spec,
    key: _Spec,
    lse: TensorSpec,
    shares: TensorSpec,
    ds: TensorSpec,
    **settings: Any,
) -> Routine:
    """Shares again, and ds, the derivative by the products of q and k. dp: dy @ v^T; dy, y: (batch, rows, size)."""
    operands = scores, dp, dy, y, mask, first, key, lse, shares, ds
    numbers = map(np.int64, (dy.shape[2], *steps(dy), *steps(y)))
    return _Tile(scores, mask, first, key, shares, lse).launch("attention_slopes", operands, settings, *numbers)


class _Tile(NamedTuple):
    """Operands that both kernels have."""

    scores: TensorSpec
    mask: _Spec
    first: _Spec
    key: _Spec
    shares: TensorSpec
    lse: TensorSpec

    def launch(self, kernel: str, operands: TensorSpecs, settings: Settings, *numbers: np.int64) -> Routine:
        """A block for each row."""
        batch, rows, keys = self.scores.shape
        types: Types = {
            "T": self.shares.dtype,
            "L": self.lse.dtype,
            "M": np.bool_ if self.mask is None else self.mask.dtype,
            "F": np.int32 if self.first is None else self.first.dtype,
        }
        block = min(THREADS, max(32, power_of_two(-(-keys // KEYS_OF_THREAD))))
        arguments = *operands, self.struct(settings), *numbers
        return Routine().launch(FILE, kernel, *arguments, types=types, grid=batch * rows, block=block)

    def struct(self, settings: Settings) -> Array:
        """`Tile` of attention.cu."""
        struct = np.zeros((), _TILE)
        _, struct["rows"], struct["keys"] = self.scores.shape
        for name in ("row", "causal", "scale", "number", "batch_numbers", "row_numbers"):
            struct[name] = settings[name]
        struct["p"] = settings.get("p", 0.0)
        struct["lse_steps"] = steps(self.lse)
        struct["key_step"] = 0 if self.key is None else step(self.key)
        for name, spec in (("mask_steps", self.mask), ("first_steps", self.first)):
            if spec is not None:
                struct[name] = _batch_steps(spec)
        return struct


def _batch_steps(spec: TensorSpec) -> tuple[int, int]:
    """Steps of (batch, ...), 0 where one serves the whole batch."""
    batch, inner = steps(spec)
    return (0 if spec.shape[0] == 1 else batch), inner


def seen_rows(x: TensorSpec, mask: TensorSpec, y: TensorSpec) -> Routine:
    """y = x, and 0 for keys that the mask hides. x, y: (batch, keys, size); mask: (batch or 1, keys)."""
    numbers = [y.size, *y.shape[1:], *steps(x), *_batch_steps(mask)]
    types: Types = {"T": y.dtype, "M": mask.dtype, "L": y.dtype, "F": np.int32}
    values = map(np.int64, numbers)
    return Routine().launch(FILE, "seen_rows", x, mask, y, *values, types=types, grid=blocks(y.size))
