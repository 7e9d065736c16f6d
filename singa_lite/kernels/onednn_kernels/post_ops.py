"""Activations that a primitive applies to its result before it is stored."""

from __future__ import annotations

from singa_lite.kernels.onednn_kernels.primitive import PostOp

_HARD_SWISH = 0x34

#: {activation: post-op}. The library's own relu gives 0 for NaN and would hide that a training has failed. Its hard
#: swish, x * min(max(alpha * x + beta, 0), 1), is with so steep a slope x times 1 or 0: exact, NaN for NaN, and for
#: minus infinity too.
POST_OPS: dict[str, PostOp] = {"relu": ("eltwise", _HARD_SWISH, 1e38, 1.0)}
