"""DenseNet: each layer reads all before it in its block (Huang and others, arXiv 1608.06993)."""

from __future__ import annotations

from typing import Any

from singa_lite import FeedForwardNet, Layer
from singa_lite.initializer import Spec
from singa_lite.layers import AvgPooling2D, BatchNormalization, Concat, MaxPooling2D

from .blocks import Blocks

GROWTH = 32
#: Layers of each block of DenseNet-121.
BLOCKS = (6, 12, 24, 16)


def densenet121(device: Any = None, seed: int = 0, *, init: Spec = "he_normal", image: int = 224) -> FeedForwardNet:
    """DenseNet-121 (bottlenecks of 4 * GROWTH, compression 1/2). Samples (3, image, image), 1000 classes."""
    blocks = Blocks((3, image, image), device, seed, init)
    blocks.conv_norm_relu("stem", 64, 7, 2)
    x = blocks.add(MaxPooling2D("stem_pool", 3, 2, pad=1))
    channels = 64
    for block, count in enumerate(BLOCKS, 1):
        if block > 1:
            channels //= 2
            x = _transition(blocks, f"transition{block - 1}", channels)
        for number in range(1, count + 1):
            x = _dense_layer(blocks, f"block{block}_{number}", x)
            channels += GROWTH
    _norm_relu(blocks, "last")
    return blocks.averaged_scores(1000)


def _norm_relu(blocks: Blocks, name: str) -> None:
    blocks.add(BatchNormalization(f"{name}_norm"))
    blocks.activation(name)


def _norm_relu_conv(blocks: Blocks, name: str, kernels: int, kernel: int) -> Layer:
    _norm_relu(blocks, name)
    return blocks.conv(name, kernels, kernel, use_bias=False)


def _dense_layer(blocks: Blocks, name: str, x: Layer) -> Layer:
    """x, and GROWTH new channels made of it. x: the layer added last."""
    _norm_relu_conv(blocks, f"{name}_conv1", 4 * GROWTH, 1)
    y = _norm_relu_conv(blocks, f"{name}_conv2", GROWTH, 3)
    return blocks.add(Concat(f"{name}_all", 1), [x, y])


def _transition(blocks: Blocks, name: str, channels: int) -> Layer:
    """Fewer channels, half the extents."""
    _norm_relu_conv(blocks, name, channels, 1)
    return blocks.add(AvgPooling2D(f"{name}_pool", 2, 2, "valid"))
