"""The fast set for CPUs: oneDNN's primitives (https://uxlfoundation.github.io/oneDNN), NumPy where it has none."""

from __future__ import annotations

from functools import cache, partial

from singa_lite.kernels import low_rank_product, quantized_product
from singa_lite.kernels.kernel_set import KernelSet, Settings, TensorSpecs, Turns
from singa_lite.kernels.onednn_kernels.library.library import load
from singa_lite.kernels.widening import NARROW, WideningSet

#: Operands that may have gaps, as a piece of a concatenation has them, without changing a bit of the results. The
#: library picks its code by strides, and for those with gaps it has plain loops. So these are given to it without gaps,
#: through a copy in the scratch, which costs what the concatenation's own copy would. What convolutions read is not
#: here, as it is read two or three times.
ANY_STRIDES = {
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), ("x", "y")),
    **dict.fromkeys(("max_pool2d_derivative", "avg_pool2d_derivative"), ("dy", "dx")),
    "conv2d": ("y",),
    "conv2d_derivative": ("dx",),
}
#: Of a call's primitives, their code and what describes them, as measured (docs/measured_budget.md).
CODE_BYTES = 96 << 10

#: Rows of x from which on numbers in bfloat16 are multiplied as such: with fewer rows it saves no time.
LEAST_NARROW = 128


class OneDNNSet(WideningSet):
    """The kernels of the library, of which many take bfloat16 where the processor does."""

    def turns(self) -> Turns:
        """They share the library's memory objects."""
        from singa_lite.kernels.onednn_kernels.library.memories import Memories

        return Memories().binding

    def takes_narrow(self, name: str, specs: TensorSpecs, settings: Settings) -> bool:
        """Whether the library has code for it; it is asked once for each combination of specs."""
        if name in self.kernels and self.kernels[name].supports(specs, settings):
            return True
        return isinstance(self.fallback, WideningSet) and self.fallback.takes_narrow(name, specs, settings)


@cache
def onednn(fallback: KernelSet) -> KernelSet:
    """The kernel set. fallback: serves the calls that the library has no code for. OSError where there is no library.

    Images lie channels last and filters with the kernels innermost. The library picks its code by strides, so a kernel
    of the set may round otherwise where they change, but for the operands of `ANY_STRIDES`.
    """
    from singa_lite.kernels.onednn_kernels import bfloat16, convolution, linear, pooling
    from singa_lite.kernels.onednn_kernels.filter_gradient import FILTER_GRADIENTS
    from singa_lite.kernels.onednn_kernels.library import layouts
    from singa_lite.kernels.onednn_kernels.library.post_ops import POST_OPS
    from singa_lite.kernels.onednn_kernels.routine import RoutineKernel

    load()
    builders = convolution.KERNELS | linear.KERNELS | pooling.KERNELS
    kernels = {name: RoutineKernel(name, build) for name, build in builders.items()}
    kernels[FILTER_GRADIENTS.kernel] = RoutineKernel(
        FILTER_GRADIENTS.kernel, convolution.conv2d_gradient, FILTER_GRADIENTS
    )
    fusions = [(kernel, activation) for kernel in ("conv2d", "linear") for activation in POST_OPS if activation]
    fusions += fallback.fusions
    found = OneDNNSet(
        "onednn",
        kernels,
        fallback,
        layouts={"image": layouts.CHANNELS_LAST, "filters": layouts.KERNELS_LAST},
        fusions=fusions,
        strides_matter=kernels.keys(),
        any_strides=ANY_STRIDES,
        one_pass=True,
    )
    found.kernels |= low_rank_product.products(found)
    found.kernels |= quantized_product.products(found, supports=partial(_supports_blocks, found))
    found.has_bfloat16 = bfloat16.multiplies()
    found.code_bytes = CODE_BYTES
    return found


def _supports_blocks(kernels: KernelSet, name: str, specs: TensorSpecs, settings: Settings) -> bool:
    """Of products with quantised weights: those that no loop does, as of few rows; in bfloat16 those of many rows."""
    loops, x = kernels.fallback, specs[0]
    has_loops = loops is not None and loops.fallback is not None and name in loops.kernels  # NumPy is the last set
    if loops is not None and has_loops and loops.kernels[name].supports(specs, settings):
        return False
    if not any(spec is not None and spec.dtype.name == NARROW for spec in specs):
        return True
    return kernels.has_bfloat16 and x is not None and x.shape[0] >= LEAST_NARROW
