"""The reference kernel set: plain NumPy, always there, every dtype NumPy has, imports numpy only."""

from singa_lite.kernels.kernel_set import KernelSet, collect
from singa_lite.kernels.numpy_kernels import (
    activation,
    batch_norm_activation,
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

NUMPY = KernelSet(
    "numpy",
    collect(
        (
            activation,
            batch_norm_activation,
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
    fusions=batch_norm_activation.FUSIONS,
)
