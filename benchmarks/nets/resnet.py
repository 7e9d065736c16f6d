"""Residual nets (He and others, arXiv 1512.03385), in torchvision's form and in that for small images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from singa_lite import FeedForwardNet, Layer
from singa_lite.initializer import Spec
from singa_lite.layers import MaxPooling2D, Merge

from .blocks import Blocks

#: The convolutions of a block, each (kernels, extent of a kernel, stride).
Steps = tuple[tuple[int, int, int], ...]


def resnet50(device: Any = None, seed: int = 0, *, init: Spec = "he_normal", image: int = 224) -> FeedForwardNet:
    """ResNet-50 with the stride on the 3 x 3. Samples (3, image, image), 1000 classes."""
    blocks = Blocks((3, image, image), device, seed, init)
    blocks.conv_norm_relu("stem", 64, 7, 2)
    x = blocks.add(MaxPooling2D("stem_pool", 3, 2, pad=1))
    _stages(blocks, x, _bottleneck, (3, 4, 6, 3))
    return blocks.averaged_scores(1000)


def resnet18_32(device: Any = None, seed: int = 0, *, init: Spec = "he_normal") -> FeedForwardNet:
    """ResNet-18 with a stem of 3 x 3 that keeps the extents. Samples (3, 32, 32), 10 classes."""
    blocks = Blocks((3, 32, 32), device, seed, init)
    x = blocks.conv_norm_relu("stem", 64)
    _stages(blocks, x, _basic, (2, 2, 2, 2))
    return blocks.averaged_scores(10)


def resnet8_32(device: Any = None, seed: int = 0, *, init: Spec = "he_normal") -> FeedForwardNet:
    """A stem of 16 kernels and a block of two convolutions in each of three stages. Samples (3, 32, 32), 10 classes."""
    blocks = Blocks((3, 32, 32), device, seed, init)
    x = blocks.conv_norm_relu("stem", 16)
    for stage, width in enumerate((16, 32, 64), 1):
        stride = 1 if stage == 1 else 2
        x = _residual(blocks, f"stage{stage}", x, _basic(width, stride), stride)
    return blocks.averaged_scores(10)


def _basic(width: int, stride: int) -> Steps:
    return (width, 3, stride), (width, 3, 1)


def _bottleneck(width: int, stride: int) -> Steps:
    return (width, 1, 1), (width, 3, stride), (4 * width, 1, 1)


def _stages(blocks: Blocks, x: Layer, steps: Callable[[int, int], Steps], counts: Sequence[int]) -> None:
    """Stages of `counts` blocks, the first 64 wide, each further one twice as wide and half as high."""
    for stage, count in enumerate(counts, 1):
        for number in range(1, count + 1):
            stride = 2 if stage > 1 and number == 1 else 1
            x = _residual(blocks, f"stage{stage}_{number}", x, steps(32 * 2**stage, stride), stride)


def _residual(blocks: Blocks, name: str, x: Layer, steps: Steps, stride: int) -> Layer:
    """relu(x + steps of x), x by a convolution of 1 x 1 where the shapes differ. x: the layer added last."""
    for number, step in enumerate(steps, 1):
        y = blocks.conv_norm(f"{name}_conv{number}", *step)
        if number < len(steps):
            blocks.activation(f"{name}_conv{number}")
    if x.get_output_sample_shape() != y.get_output_sample_shape():
        x = blocks.conv_norm(f"{name}_shortcut", steps[-1][0], 1, stride, src=x)
    blocks.add(Merge(f"{name}_sum"), [x, y])
    return blocks.activation(name)
