"""The reference kernel set: plain NumPy, always there, every dtype NumPy has and bfloat16, imports numpy only."""

from singa_lite.kernels.kernel_set import collect
from singa_lite.kernels.numpy_kernels import (
    activation,
    attention,
    batch_norm,
    cached_attention,
    class_scores,
    convolution,
    elementwise,
    embedding,
    group_norm,
    linear,
    loss,
    metric,
    normalization,
    ordering,
    pooling,
    position,
    quantized,
    random,
    recurrent,
    reduction,
    rms_norm,
    token_loss,
    update,
)
from singa_lite.kernels.numpy_kernels.scratch import RULES
from singa_lite.kernels.quantized_product import products
from singa_lite.kernels.widening import WideningSet

NUMPY = WideningSet(
    "numpy",
    collect(
        (
            activation,
            attention,
            batch_norm,
            cached_attention,
            class_scores,
            convolution,
            elementwise,
            embedding,
            group_norm,
            linear,
            loss,
            metric,
            normalization,
            ordering,
            pooling,
            position,
            quantized,
            random,
            recurrent,
            reduction,
            rms_norm,
            token_loss,
            update,
        ),
        RULES,
    ),
    fusions=batch_norm.FUSIONS,
)
NUMPY.kernels |= products(NUMPY)
