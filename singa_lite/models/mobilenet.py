"""MobileNetV2: inverted residuals, depthwise convolutions, ReLU6 (Sandler and others, arXiv 1801.04381)."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.common.keywords import explains_keywords
from singa_lite.layer.initializer import Spec
from singa_lite.layer.layer import Layer
from singa_lite.layers import Merge
from singa_lite.models.blocks import Blocks
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.tensor import DeviceSpec

#: (expansion, channels, blocks, stride of the first block) of each stage: the paper's table 2.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


@explains_keywords()
def mobilenet_v2(
    classes: int = 1000,
    *,
    shape: Sequence[int] = (3, 224, 224),
    init: Spec = "he_normal",
    device: DeviceSpec = None,
    seed: int | None = None,
) -> FeedForwardNet:
    """Returns MobileNetV2 of width 1 (Sandler and others, arXiv 1801.04381) with SoftmaxCrossEntropy as its loss, not
    compiled.

    Output samples of scores (classes,), behind a dropout of 0.2. Layers: stem, stage1_1_depthwise and so on, last,
    scores; each convolution's normalization is called after it. torchvision's weights load:
    `net.load("mobilenet_v2.safetensors", names=snapshots.maps.mobilenet_v2(net))`.

    shape: of the samples, (channels, height, width); init: of all weights; device, seed: of the net.

    >>> net = models.mobilenet_v2(10, shape=(3, 64, 64))
    >>> net.layers["scores"].output_sample_shape
    (10,)
    """
    blocks = Blocks(shape, device, seed, init)
    x = _conv_norm_relu6(blocks, "stem", 32, 3, 2)
    channels = 32
    for stage, (expansion, kernels, count, stride) in enumerate(STAGES, 1):
        for number in range(1, count + 1):
            name, step = f"stage{stage}_{number}", stride if number == 1 else 1
            x = _inverted_residual(blocks, name, x, channels * expansion, kernels, step)
            channels = kernels
    _conv_norm_relu6(blocks, "last", 1280, 1)
    return blocks.averaged_scores(classes, dropout=0.2)


def _conv_norm_relu6(
    blocks: Blocks, name: str, kernels: int, kernel: int = 3, stride: int = 1, groups: int = 1
) -> Layer:
    blocks.conv_norm(name, kernels, kernel, stride, groups=groups)
    return blocks.activation(name, "relu6")


def _inverted_residual(blocks: Blocks, name: str, x: Layer, width: int, kernels: int, stride: int) -> Layer:
    """Adds wide, depthwise and narrow convolutions, plus x, the layer added last, where the shapes are equal."""
    if width != x.get_output_sample_shape()[0]:
        _conv_norm_relu6(blocks, f"{name}_expand", width, 1)
    _conv_norm_relu6(blocks, f"{name}_depthwise", width, 3, stride, groups=width)
    y = blocks.conv_norm(f"{name}_project", kernels, 1)
    if x.get_output_sample_shape() != y.get_output_sample_shape():
        return y
    return blocks.add(Merge(f"{name}_sum"), [x, y])
