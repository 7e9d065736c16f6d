"""The fast set for CPUs: oneDNN's primitives (https://uxlfoundation.github.io/oneDNN), NumPy where it has none."""

from __future__ import annotations

from functools import cache

from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.onednn_kernels.library import load
from singa_lite.kernels.widening import WideningSet


@cache
def onednn(fallback: KernelSet) -> KernelSet:
    """The kernel set. fallback: serves the calls that the library has no code for. OSError where there is no library.

    Images lie channels last and filters with the kernels innermost. The library picks its code by strides, so a kernel
    of the set may round otherwise where they change, but for those of the operands in `any_strides.py`.
    """
    from singa_lite.kernels.onednn_kernels import (
        activation,
        batch_norm,
        batch_norm_activation,
        batch_norm_gradients,
        convolution,
        elementwise,
        layer_norm,
        layouts,
        linear,
        loss,
        pooling,
        reduction,
        update,
    )
    from singa_lite.kernels.onednn_kernels.any_strides import ANY_STRIDES
    from singa_lite.kernels.onednn_kernels.filter_gradient import FILTER_GRADIENTS
    from singa_lite.kernels.onednn_kernels.post_ops import POST_OPS
    from singa_lite.kernels.onednn_kernels.routine import collect

    load()
    norms = batch_norm, batch_norm_activation, batch_norm_gradients, layer_norm
    modules = activation, *norms, convolution, elementwise, linear, loss, pooling, reduction, update
    kernels = collect(*modules, variants=[FILTER_GRADIENTS])
    fusions = [(kernel, activation) for kernel in ("conv2d", "linear") for activation in POST_OPS]
    return WideningSet(
        "onednn",
        kernels,
        fallback,
        layouts={"image": layouts.CHANNELS_LAST, "filters": layouts.KERNELS_LAST},
        fusions=fusions + batch_norm_activation.FUSIONS + elementwise.FUSIONS,
        strides_matter=kernels.keys(),
        any_strides=ANY_STRIDES,
        one_pass=True,
    )
