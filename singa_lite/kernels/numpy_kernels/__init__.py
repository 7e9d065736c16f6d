"""The reference kernel set: plain NumPy, always there, every dtype NumPy has and bfloat16, imports numpy only."""

from singa_lite.kernels.kernel_set import collect
from singa_lite.kernels.numpy_kernels import (
    activation,
    batch_norm_activation,
    batch_norm_add,
    convolution,
    elementwise,
    fused,
    linear,
    loss,
    metric,
    normalization,
    pooling,
    random,
    reduction,
    update,
)
from singa_lite.kernels.numpy_kernels.scratch import RULES
from singa_lite.kernels.widening import WideningSet

NUMPY = WideningSet(
    "numpy",
    collect(
        (
            activation,
            batch_norm_activation,
            batch_norm_add,
            convolution,
            elementwise,
            fused,
            linear,
            loss,
            metric,
            normalization,
            pooling,
            random,
            reduction,
            update,
        ),
        RULES,
    ),
    fusions=batch_norm_activation.FUSIONS + batch_norm_add.FUSIONS,
)
