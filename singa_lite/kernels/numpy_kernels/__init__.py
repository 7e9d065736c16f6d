"""The reference kernel set: plain NumPy, always there, every dtype NumPy has, imports numpy only."""

from singa_lite.kernels.kernel_set import KernelSet, collect
from singa_lite.kernels.numpy_kernels import (
    activation,
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
)
