"""What the nets of images share: a net under construction that grows by blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from singa_lite import layers, loss
from singa_lite.common.checks import integer
from singa_lite.layer.initializer import Spec
from singa_lite.layer.layer import Layer
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.tensor import DeviceSpec


class Blocks:
    """A net under construction. Each method adds layers behind `src`, or behind the one added last.

    net: with softmax cross entropy as its loss, not compiled; its first layer, "input", takes samples of
    `shape`. device, seed: as for FeedForwardNet. init: of all weights.
    """

    def __init__(self, shape: Sequence[int], device: DeviceSpec, seed: int | None, init: Spec) -> None:
        self.net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device, seed=seed)
        self.init = init
        self.add(layers.Dummy("input", shape))

    def add(self, layer: Layer, src: Layer | Sequence[Layer] | None = None) -> Layer:
        """Adds any layer and returns it."""
        return self.net.add(layer, src)

    def activation(self, name: str, mode: str = "relu") -> Layer:
        """Adds an activation that is called by its mode: "conv1_relu"."""
        return self.add(layers.Activation(f"{name}_{mode}", mode))

    def dense(self, name: str, num_output: int) -> Layer:
        """Adds a Dense."""
        return self.add(layers.Dense(name, num_output, weight_init=self.init))

    def conv(
        self, name: str, kernels: int, kernel: int = 3, stride: int = 1, src: Layer | None = None, **options: Any
    ) -> Layer:
        """Adds a convolution, padded with kernel // 2 unless the options, those of Conv2D, say otherwise."""
        return self.add(layers.Conv2D(name, kernels, kernel, stride, weight_init=self.init, **options), src)

    def norm(self, name: str) -> Layer:
        """Adds a batch normalization: "conv1_norm"."""
        return self.add(layers.BatchNormalization(f"{name}_norm"))

    def conv_norm(
        self, name: str, kernels: int, kernel: int = 3, stride: int = 1, src: Layer | None = None, groups: int = 1
    ) -> Layer:
        """Adds a convolution without bias, and a batch normalization."""
        self.conv(name, kernels, kernel, stride, src, groups=groups, use_bias=False)
        return self.norm(name)

    def conv_norm_relu(self, name: str, kernels: int, kernel: int = 3, stride: int = 1) -> Layer:
        """Adds a convolution without bias, a batch normalization and a ReLU."""
        self.conv_norm(name, kernels, kernel, stride)
        return self.activation(name)

    def averaged_scores(self, classes: int, dropout: float = 0.0) -> FeedForwardNet:
        """Ends a classifier with the average of each channel's image, dropout and scores, and returns the net."""
        self.add(layers.GlobalAvgPooling2D("average"))
        if dropout > 0:
            self.add(layers.Dropout("drop", dropout))
        self.dense("scores", integer("classes", classes, 1))
        return self.net
