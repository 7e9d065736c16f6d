"""Activations that a primitive applies to its result before it is stored."""

from __future__ import annotations

from singa_lite.kernels.onednn_kernels.library.primitive import PostOp

#: y = scale * x + shift (dnnl_eltwise_linear).
_LINEAR = 0x26

#: {activation: post-ops}. The library's own relu gives 0 for NaN and would hide that a training has failed. So its relu
#: with learnt slopes (prelu) is taken, with a slope of 0: it gives x or 0 * x, which is NaN for NaN, and for minus
#: infinity too. Negative numbers become -0.0, and adding 0.0 makes 0.0 of that, as the activation by itself gives.
POST_OPS: dict[str, tuple[PostOp, ...]] = {"": (), "relu": (("prelu", 0), ("eltwise", _LINEAR, 1.0, 0.0))}
