"""VGG: convolutions of 3 x 3 and two very wide Dense layers (Simonyan and Zisserman, arXiv 1409.1556)."""

from __future__ import annotations

from typing import Any

from singa_lite import FeedForwardNet
from singa_lite.initializer import Spec
from singa_lite.layers import Dropout, Flatten, MaxPooling2D
from singa_lite.models.blocks import Blocks

#: (convolutions, kernels) of each stage of VGG16, configuration D.
STAGES = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))


def vgg16(device: Any = None, seed: int = 0, *, init: Spec = "glorot_uniform") -> FeedForwardNet:
    """VGG16 without batch normalization. Samples (3, 224, 224), 1000 classes.

    init: the paper's advice; with "he_normal" the first steps want a learning rate well below 0.01.
    """
    blocks = Blocks((3, 224, 224), device, seed, init)
    for stage, (convolutions, kernels) in enumerate(STAGES, 1):
        for number in range(1, convolutions + 1):
            blocks.conv(f"stage{stage}_conv{number}", kernels)
            blocks.activation(f"stage{stage}_conv{number}")
        blocks.add(MaxPooling2D(f"stage{stage}_pool", 2, 2, "valid"))
    blocks.add(Flatten("flat"))
    for number in (1, 2):
        blocks.dense(f"dense{number}", 4096)
        blocks.activation(f"dense{number}")
        blocks.add(Dropout(f"drop{number}", 0.5))
    blocks.dense("scores", 1000)
    return blocks.net
