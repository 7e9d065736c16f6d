"""The set for NVIDIA GPUs: kernels of ours in the `.cu` files of this folder, cuBLASLt and cuDNN beside them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from singa_lite.kernels import low_rank_product, quantized_product
from singa_lite.kernels.built import CallBuilder, of_specs
from singa_lite.kernels.call import Call
from singa_lite.kernels.composed import FasterWithScratch
from singa_lite.kernels.cuda_kernels import (
    batch_norm,
    cached_attention,
    depthwise,
    elementwise,
    embedding,
    layer_norm,
    loss,
    norms,
    odd_product,
    places,
    pooling,
    quantized,
    random,
    recurrent,
    reduction,
    rows,
    softmax,
    stored_value,
    update,
    updates,
)
from singa_lite.kernels.cuda_kernels.attention import Attention
from singa_lite.kernels.cuda_kernels.copies import in_any_strides, mixed
from singa_lite.kernels.cuda_kernels.routine import CudaKernel, Loader, Routine
from singa_lite.kernels.interface import SIGNATURES, stored_update
from singa_lite.kernels.kernel_set import Kernel, KernelSet
from singa_lite.kernels.stored_update import stored_kernel

#: Channels innermost: what cuDNN is fastest with.
LAYOUTS = {"image": (0, 2, 3, 1), "filters": (0, 2, 3, 1)}

#: Kernels of ours whose threads treat each element of the result by itself, in whatever order tensors lie. All others
#: sum by trees that go by strides, or leave the sums to libraries, which choose their algorithms so.
ELEMENTS = {
    **elementwise.KERNELS,
    **places.KERNELS,
    **pooling.KERNELS,
    **quantized.KERNELS,
    **random.KERNELS,
    **stored_value.KERNELS,
    **update.KERNELS,
}
SUMS = {
    **batch_norm.KERNELS,
    **cached_attention.KERNELS,
    **depthwise.KERNELS,
    **embedding.KERNELS,
    **norms.KERNELS,
    **layer_norm.KERNELS,
    **loss.KERNELS,
    **reduction.KERNELS,
    **rows.KERNELS,
    **softmax.KERNELS,
}

#: Updates of parameters, which may be stored in bfloat16.
UPDATES = [name for name, signature in SIGNATURES.items() if "hyper" in signature.settings]

#: What a tile of a large gradient may take: as much as the second-level cache of a large GPU, for a product to be worth
#: its launch.
TILE_BYTES = 32 << 20
#: Rows of factors begin at multiples of so many bytes. cuBLASLt's fastest kernels want 16. Eight numbers of float32, as
#: many as a thread converts to 16 bits at a time, are twice as many.
ROW_BYTES = 32


def cuda(
    loader: Loader,
    fallback: KernelSet | None = None,
    libraries: Sequence[Mapping[str, CallBuilder[Routine]]] = (),
    fusions: Collection[tuple[str, str]] = (),
    channels_last: bool = True,
) -> KernelSet:
    """The set. loader: compiles the sources; fallback: serves calls that no kernel here is made for.

    libraries: builders by kernel of NVIDIA's libraries, which are asked one after the other before our own kernels;
    fusions: as in `KernelSet`, what those builders do in one go. channels_last: how images and filters lie, else in C
    order. Products are cuBLASLt's alone, and convolutions cuDNN's, but for depthwise ones.
    """
    layouts = LAYOUTS if channels_last else {}
    names = {name for library in libraries for name in library}
    strides_matter = {*SUMS, *names, "attention", "attention_derivative"}
    made = partial(
        KernelSet,
        "cuda",
        layouts=layouts,
        strides_matter=strides_matter,
        tile_bytes=TILE_BYTES,
        row_bytes=ROW_BYTES,
    )
    own = made(_kernels({**ELEMENTS, **SUMS}, loader), fallback, fusions=elementwise.FUSIONS, one_pass=True)
    own.joins = updates.joins(loader)
    own.kernels |= {name: stored_kernel(name, own) for name in map(stored_update, UPDATES)}
    if not libraries:
        return own
    theirs = {name: _first_of([library[name] for library in libraries if name in library]) for name in sorted(names)}
    found = made(
        _kernels({name: in_any_strides(build) for name, build in theirs.items()}, loader),
        own,
        fusions={*fusions, *elementwise.FUSIONS},
    )
    composed = _of_products(found, loader) if "matmul" in names else {}
    own.kernels |= composed
    both = composed.keys() & found.kernels.keys()
    found.kernels |= {name: FasterWithScratch(found.kernels[name], composed[name]) for name in sorted(both)}
    divided = made({**found.kernels, **odd_product.products(found)}, found, fusions=found.fusions)
    divided.has_levels = found.has_levels = True
    return divided


def _of_products(kernels: KernelSet, loader: Loader) -> dict[str, Kernel]:
    """Returns the kernels that are composed of a set's products and of kernels of ours between them."""
    return {
        **low_rank_product.products(kernels),
        **quantized_product.products(kernels, TILE_BYTES),
        **Attention(kernels, loader).kernels,
        **recurrent.kernels(kernels, loader),
    }


def _kernels(given: Mapping[str, CallBuilder[Routine]], loader: Loader) -> dict[str, Kernel]:
    return {name: CudaKernel(of_specs(name, mixed(build)), loader) for name, build in given.items()}


def _first_of(asked: Sequence[CallBuilder[Routine]]) -> CallBuilder[Routine]:
    """The routine of the first builder that has one."""

    def build(call: Call) -> Routine | None:
        return next((routine for builder in asked if (routine := builder(call)) is not None), None)

    return build
