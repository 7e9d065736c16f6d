"""Small nets: two convolutional ones, a perceptron, and a long narrow chain."""

from __future__ import annotations

from typing import Any

from singa_lite import FeedForwardNet
from singa_lite.initializer import Spec
from singa_lite.layers import Dropout, Flatten, MaxPooling2D
from singa_lite.models.blocks import Blocks
from tiny import size


def digits_cnn(device: Any = None, seed: int = 0, *, init: Spec = "glorot_uniform") -> FeedForwardNet:
    """The net of examples/digits_cnn.py. Samples (1, 8, 8), 10 classes."""
    blocks = Blocks((1, 8, 8), device, seed, init)
    blocks.conv_norm_relu("conv1", 32)
    blocks.conv_norm_relu("conv2", 32)
    blocks.add(MaxPooling2D("pool", 2, 2, "valid"))
    blocks.conv_norm_relu("conv3", 64)
    blocks.add(Flatten("flat"))
    blocks.add(Dropout("drop", 0.5))
    blocks.dense("scores", 10)
    return blocks.net


def lenet(device: Any = None, seed: int = 0, *, init: Spec = "he_normal") -> FeedForwardNet:
    """LeNet-5's layers (LeCun and others, Proc. IEEE 86, 1998) with ReLU, maxima and all maps connected.

    Samples (1, 28, 28), 10 classes.
    """
    blocks = Blocks((1, 28, 28), device, seed, init)
    for name, kernels, border_mode in (("conv1", 6, "same"), ("conv2", 16, "valid")):
        blocks.conv(name, kernels, 5, border_mode=border_mode)
        blocks.activation(name)
        blocks.add(MaxPooling2D(f"{name}_pool", 2, 2, "valid"))
    blocks.add(Flatten("flat"))
    return _perceptron(blocks, (120, 84), 10)


def mlp(device: Any = None, seed: int = 0, *, init: Spec = "he_normal") -> FeedForwardNet:
    """784-2048-2048-2048-10 with ReLU. Samples (784,)."""
    return _perceptron(Blocks((784,), device, seed, init), (2048,) * 3, 10)


def chain(
    device: Any = None, seed: int = 0, *, init: Spec = "glorot_uniform", depth: int = size(1000, 20), width: int = 16
) -> FeedForwardNet:
    """`depth` layers of `width` with tanh, then 4 classes. Samples (8,).

    Hardly any arithmetic: a step costs what it costs beside the kernels.
    """
    return _perceptron(Blocks((8,), device, seed, init), (width,) * depth, 4, "tanh")


def _perceptron(blocks: Blocks, widths: tuple[int, ...], classes: int, mode: str = "relu") -> FeedForwardNet:
    """Dense layers of these widths, each with an activation, then scores."""
    for number, width in enumerate(widths, 1):
        blocks.dense(f"dense{number}", width)
        blocks.activation(f"dense{number}", mode)
    blocks.dense("scores", classes)
    return blocks.net
