"""Activations that a primitive applies to its result before it is stored."""

from __future__ import annotations

from singa_lite.kernels.onednn_kernels import algorithms as a
from singa_lite.kernels.onednn_kernels.primitive import PostOp

#: {activation: post-ops}. The library's own relu gives 0 for NaN and would hide that a training has failed. What it has
#: for learnt slopes is with a slope of 0 x or 0 * x: NaN for NaN, and for minus infinity too. That leaves -0.0 in the
#: place of what is negative, and adding 0.0 makes 0.0 of it, as the activation by itself gives.
POST_OPS: dict[str, tuple[PostOp, ...]] = {"relu": (("prelu", 0), ("eltwise", a.LINEAR, 1.0, 0.0))}
