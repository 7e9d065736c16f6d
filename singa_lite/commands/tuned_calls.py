"""Calls that a kernel set can do in several ways: those of a net's training step, or those of well-known nets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from singa_lite.common.strides import laid_out, memory_order
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.time_model import multiply_adds
from singa_lite.kernels.built import BuiltKernel
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import KernelSet, Settings, TensorSpec, TensorSpecs, specs_of
from singa_lite.kernels.variants import AnyVariants

_FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Call:
    """A call, and how often it is done in a step. layer: the first that does it."""

    variants: AnyVariants
    specs: TensorSpecs
    settings: Settings
    layer: str
    count: int = 1

    @property
    def name(self) -> str:
        """By which tables of choices know it."""
        return self.variants.call_name(self.specs, self.settings)

    @property
    def flops(self) -> int:
        """Two for each multiply-add."""
        return 2 * multiply_adds(self.variants.kernel, self.specs, self.settings)

    @property
    def shapes(self) -> str:
        """Of its tensors, short."""
        return " ".join("x".join(map(str, spec.shape)) for spec in self.specs if spec is not None)


def variants_of(kernels: KernelSet) -> dict[str, AnyVariants]:
    """{kernel: its variants}, of those that have several."""
    found: dict[str, AnyVariants] = {}
    for name, kernel in kernels.kernels.items():
        if isinstance(kernel, BuiltKernel) and kernel.variants is not None:
            found[name] = kernel.variants
    return found


def of_step(kernels: KernelSet, instructions: Iterable[Instruction]) -> list[Call]:
    """The calls of a planned step, each different one once."""
    known = variants_of(kernels)
    return counted(
        Call(known[i.kernel], _as_done(kernels, i), i.settings, i.layer) for i in instructions if i.kernel in known
    )


def _as_done(kernels: KernelSet, instruction: Instruction) -> TensorSpecs:
    """The specs by which the set itself does the call: float32 ones, where it is widened first."""
    specs = specs_of(instruction.operands)
    own = kernels.kernels[instruction.kernel]
    if kernels.choose(instruction.kernel, specs, instruction.settings) is own:
        return specs
    return tuple(None if spec is None else _wide(spec) for spec in specs)


def _wide(spec: TensorSpec) -> TensorSpec:
    order = memory_order(spec.shape, spec.strides)
    return TensorSpec(spec.shape, _FLOAT32, laid_out(spec.shape, order, _FLOAT32.itemsize))


def counted(calls: Iterable[Call]) -> list[Call]:
    """Equal ones as one, in the order of the first ones."""
    groups: dict[str, list[Call]] = {}
    for call in calls:
        groups.setdefault(call.name, []).append(call)
    return [replace(group[0], count=sum(call.count for call in group)) for group in groups.values()]


def images(shape: Sequence[int], axes: Sequence[int]) -> TensorSpec:
    """The spec of a float32 tensor without gaps, its axes in this order from the outermost."""
    return TensorSpec(tuple(shape), _FLOAT32, laid_out(shape, axes, _FLOAT32.itemsize))


KERNEL = "conv2d_gradient"


class Convolution(NamedTuple):
    """channels, extent: of the images, which are as high as wide; filters: how many; kernel: extent of each."""

    layer: str
    channels: int
    extent: int
    filters: int
    kernel: int
    stride: int = 1
    groups: int = 1

    @property
    def window(self) -> Window:
        """Padded so that a stride of 1 keeps the extent."""
        return Window((self.kernel,) * 2, (self.stride,) * 2, (self.kernel // 2,) * 4)


def resnet50() -> Iterator[Convolution]:
    """He and others, arXiv 1512.03385, with the stride on the 3 x 3."""
    yield Convolution("stem", 3, 224, 64, 7, 2)
    channels, extent = 64, 56
    for stage, blocks in enumerate((3, 4, 6, 3), 1):
        width = 32 * 2**stage
        for block in range(1, blocks + 1):
            name, stride = f"stage{stage}_{block}", 2 if stage > 1 and block == 1 else 1
            yield Convolution(f"{name}_conv1", channels, extent, width, 1)
            yield Convolution(f"{name}_conv2", width, extent, width, 3, stride)
            if block == 1:
                yield Convolution(f"{name}_shortcut", channels, extent, 4 * width, 1, stride)
            extent //= stride
            yield Convolution(f"{name}_conv3", width, extent, 4 * width, 1)
            channels = 4 * width


def vgg16() -> Iterator[Convolution]:
    """Simonyan and Zisserman, arXiv 1409.1556, configuration D."""
    channels, extent = 3, 224
    for stage, (layers, width) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), 1):
        for layer in range(1, layers + 1):
            yield Convolution(f"conv{stage}_{layer}", channels, extent, width, 3)
            channels = width
        extent //= 2


def mobilenet_v2() -> Iterator[Convolution]:
    """Sandler and others, arXiv 1801.04381, table 2."""
    yield Convolution("stem", 3, 224, 32, 3, 2)
    channels, extent = 32, 112
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for stage, (factor, width, blocks, first) in enumerate(stages, 1):
        for block in range(1, blocks + 1):
            name, stride, wide = f"stage{stage}_{block}", first if block == 1 else 1, factor * channels
            if factor > 1:
                yield Convolution(f"{name}_expand", channels, extent, wide, 1)
            yield Convolution(f"{name}_depthwise", wide, extent, wide, 3, stride, wide)
            extent //= stride
            yield Convolution(f"{name}_project", wide, extent, width, 1)
            channels = width
    yield Convolution("head", channels, extent, 1280, 1)


NETS: dict[str, Callable[[], Iterator[Convolution]]] = {
    "resnet50": resnet50,
    "vgg16": vgg16,
    "mobilenet_v2": mobilenet_v2,
}


def calls_of_net(net: str, batch: int, kernels: KernelSet) -> list[Call]:
    """The gradients by the filters of a net of that name, for so many images, each different one once."""
    return counted(_call(one, batch, kernels) for one in NETS[net]())


def _call(one: Convolution, batch: int, kernels: KernelSet) -> Call:
    extents = one.window.positions(one.layer, (one.extent, one.extent))
    image, filters = kernels.layouts["image"], kernels.layouts["filters"]
    specs = (
        images((batch, one.channels, one.extent, one.extent), image),
        images((batch, one.filters, *extents), image),
        images((one.filters, one.channels // one.groups, one.kernel, one.kernel), filters),
    )
    settings = {"window": one.window, "groups": one.groups}
    return Call(variants_of(kernels)[KERNEL], specs, settings, one.layer)
