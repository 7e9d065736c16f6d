"""U-Net: down, up again, and across at each level (Ronneberger and others, arXiv 1505.04597)."""

from __future__ import annotations

from typing import Any

from singa_lite import FeedForwardNet, Layer
from singa_lite.initializer import Spec
from singa_lite.layers import Concat, MaxPooling2D, Upsampling2D

from .blocks import Blocks


def unet(
    device: Any = None,
    seed: int = 0,
    *,
    init: Spec = "he_normal",
    shape: tuple[int, int, int] = (3, 128, 160),
    widths: tuple[int, ...] = (32, 64, 128, 256),
    classes: int = 5,
) -> FeedForwardNet:
    """A U-Net that keeps the extents: convolutions are padded and batch normalized. Output (classes, h, w).

    shape: of the samples, h and w divisible by 2 ** (levels - 1); widths: channels of each level, top first.
    """
    blocks = Blocks(shape, device, seed, init)
    *upper, (lowest, widest) = enumerate(widths, 1)
    skips = []
    for level, width in upper:
        skips.append(_two_convs(blocks, f"down{level}", width))
        blocks.add(MaxPooling2D(f"down{level}_pool", 2, 2, "valid"))
    _two_convs(blocks, f"level{lowest}", widest)
    for (level, width), skip in zip(reversed(upper), reversed(skips), strict=True):
        blocks.add(Upsampling2D(f"up{level}_double"))
        raised = blocks.conv_norm_relu(f"up{level}_raise", width)
        blocks.add(Concat(f"up{level}_join", 1), [skip, raised])
        _two_convs(blocks, f"up{level}", width)
    blocks.conv("scores", classes, 1)
    return blocks.net


def _two_convs(blocks: Blocks, name: str, width: int) -> Layer:
    blocks.conv_norm_relu(f"{name}_conv1", width)
    return blocks.conv_norm_relu(f"{name}_conv2", width)
