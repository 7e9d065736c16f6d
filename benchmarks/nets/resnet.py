"""Residual nets (He and others, arXiv 1512.03385) for small images, of the blocks of `models.resnet50`."""

from __future__ import annotations

from typing import Any

from singa_lite import FeedForwardNet
from singa_lite.initializer import Spec
from singa_lite.models.blocks import Blocks
from singa_lite.models.resnet import Steps, residual, stages


def resnet18_32(device: Any = None, seed: int = 0, *, init: Spec = "he_normal") -> FeedForwardNet:
    """ResNet-18 with a stem of 3 x 3 that keeps the extents. Samples (3, 32, 32), 10 classes."""
    blocks = Blocks((3, 32, 32), device, seed, init)
    x = blocks.conv_norm_relu("stem", 64)
    stages(blocks, x, _basic, (2, 2, 2, 2))
    return blocks.averaged_scores(10)


def resnet8_32(device: Any = None, seed: int = 0, *, init: Spec = "he_normal") -> FeedForwardNet:
    """A stem of 16 kernels and a block of two convolutions in each of three stages. Samples (3, 32, 32), 10 classes."""
    blocks = Blocks((3, 32, 32), device, seed, init)
    x = blocks.conv_norm_relu("stem", 16)
    for stage, width in enumerate((16, 32, 64), 1):
        stride = 1 if stage == 1 else 2
        x = residual(blocks, f"stage{stage}", x, _basic(width, stride), stride)
    return blocks.averaged_scores(10)


def _basic(width: int, stride: int) -> Steps:
    return (width, 3, stride), (width, 3, 1)
