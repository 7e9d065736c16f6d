"""The convolutions of well-known nets for images of 224 x 224, so that their filters can be tuned without the nets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from singa_lite.commands.tuning.calls import Call, counted, images, variants_of
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import KernelSet

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


def calls(net: str, batch: int, kernels: KernelSet) -> list[Call]:
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
