"""What the builders share: a net that is added to in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from singa_lite import FeedForwardNet, Layer, layers, loss
from singa_lite.initializer import Spec


class Blocks:
    """A net under construction. Each method adds layers behind `src`, or behind the one added last.

    net: with softmax cross entropy as its loss, not compiled; its first layer, "input", takes samples of
    `shape`. device, seed: as for FeedForwardNet. init: of all weights.
    """

    def __init__(self, shape: Sequence[int], device: Any, seed: int, init: Spec) -> None:
        self.net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device, seed=seed)
        self.init = init
        self.add(layers.Dummy("input", shape))

    def add(self, layer: Layer, src: Layer | Sequence[Layer] | None = None) -> Layer:
        """Any layer; returns it."""
        return self.net.add(layer, src)

    def activation(self, name: str, mode: str = "relu") -> Layer:
        """An activation, called by its mode: "conv1_relu"."""
        return self.add(layers.Activation(f"{name}_{mode}", mode))

    def dense(self, name: str, num_output: int) -> Layer:
        """Dense."""
        return self.add(layers.Dense(name, num_output, weight_init=self.init))

    def conv(
        self,
        name: str,
        kernels: int,
        kernel: int = 3,
        stride: int = 1,
        src: Layer | None = None,
        **options: Any,
    ) -> Layer:
        """A convolution; padded with kernel // 2 unless the options, those of Conv2D, say otherwise."""
        return self.add(layers.Conv2D(name, kernels, kernel, stride, weight_init=self.init, **options), src)

    def conv_norm(
        self,
        name: str,
        kernels: int,
        kernel: int = 3,
        stride: int = 1,
        src: Layer | None = None,
        groups: int = 1,
    ) -> Layer:
        """Convolution without bias, and batch normalization."""
        self.conv(name, kernels, kernel, stride, src, groups=groups, use_bias=False)
        return self.add(layers.BatchNormalization(f"{name}_norm"))

    def conv_norm_relu(self, name: str, kernels: int, kernel: int = 3, stride: int = 1) -> Layer:
        """Convolution without bias, batch normalization and ReLU."""
        self.conv_norm(name, kernels, kernel, stride)
        return self.activation(name)

    def averaged_scores(self, classes: int, dropout: float = 0.0) -> FeedForwardNet:
        """The end of a classifier: average of each channel's image, dropout, scores. Returns the net."""
        self.add(layers.GlobalAvgPooling2D("average"))
        if dropout > 0:
            self.add(layers.Dropout("drop", dropout))
        self.dense("scores", classes)
        return self.net
