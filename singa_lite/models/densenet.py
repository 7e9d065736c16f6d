"""DenseNet: each layer reads all before it in its block (Huang and others, arXiv 1608.06993)."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.common.keywords import explains_keywords
from singa_lite.layer.initializer import Spec
from singa_lite.layer.layer import Layer
from singa_lite.layers import AvgPooling2D, Concat, MaxPooling2D
from singa_lite.models.blocks import Blocks
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.tensor import DeviceSpec

GROWTH = 32
#: Layers of each block of DenseNet-121.
BLOCKS = (6, 12, 24, 16)


@explains_keywords()
def densenet121(
    classes: int = 1000,
    *,
    shape: Sequence[int] = (3, 224, 224),
    init: Spec = "he_normal",
    device: DeviceSpec = None,
    seed: int | None = None,
) -> FeedForwardNet:
    """Returns DenseNet-121 (Huang and others, arXiv 1608.06993) with SoftmaxCrossEntropy as its loss, not compiled.

    Output samples of scores (classes,). Layers: stem, block1_1_conv1 and so on, transition1, last, scores; each
    convolution's normalization is called after it. torchvision's weights load:
    `net.load("densenet121.safetensors", names=snapshots.maps.densenet121(net))`.

    shape: of the samples, (channels, height, width); init: of all weights; device, seed: of the net.

    >>> net = models.densenet121(10, shape=(3, 64, 64))
    >>> net.layers["scores"].output_sample_shape
    (10,)
    """
    blocks = Blocks(shape, device, seed, init)
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
    return blocks.averaged_scores(classes)


def _norm_relu(blocks: Blocks, name: str) -> None:
    blocks.norm(name)
    blocks.activation(name)


def _norm_relu_conv(blocks: Blocks, name: str, kernels: int, kernel: int) -> Layer:
    _norm_relu(blocks, name)
    return blocks.conv(name, kernels, kernel, use_bias=False)


def _dense_layer(blocks: Blocks, name: str, x: Layer) -> Layer:
    """Adds GROWTH new channels made of x, the layer added last, behind those of x."""
    _norm_relu_conv(blocks, f"{name}_conv1", 4 * GROWTH, 1)
    y = _norm_relu_conv(blocks, f"{name}_conv2", GROWTH, 3)
    return blocks.add(Concat(f"{name}_all", 1), [x, y])


def _transition(blocks: Blocks, name: str, channels: int) -> Layer:
    """Adds a convolution to fewer channels, and a pooling to half the extents."""
    _norm_relu_conv(blocks, name, channels, 1)
    return blocks.add(AvgPooling2D(f"{name}_pool", 2, 2, "valid"))
