"""Residual nets (He and others, arXiv 1512.03385)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from singa_lite.common.keywords import explains_keywords
from singa_lite.layer.initializer import Spec
from singa_lite.layer.layer import Layer
from singa_lite.layers import MaxPooling2D, Merge
from singa_lite.models.blocks import Blocks
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.tensor import DeviceSpec

#: The convolutions of a block, each (kernels, extent of a kernel, stride).
Steps = tuple[tuple[int, int, int], ...]


@explains_keywords()
def resnet50(
    classes: int = 1000,
    *,
    shape: Sequence[int] = (3, 224, 224),
    init: Spec = "he_normal",
    device: DeviceSpec = None,
    seed: int | None = None,
) -> FeedForwardNet:
    """Returns ResNet-50 (He and others, arXiv 1512.03385) with SoftmaxCrossEntropy as its loss, not compiled.

    The stride is on the 3 x 3, as in torchvision. Output samples of scores (classes,). Layers: stem, stage1_1_conv1
    and so on, scores; each convolution's normalization is called after it. torchvision's weights load:
    `net.load("resnet50.safetensors", names=snapshots.maps.resnet50(net))`.

    shape: of the samples, (channels, height, width); init: of all weights; device, seed: of the net.

    >>> net = models.resnet50(10, shape=(3, 64, 64))
    >>> net.layers["scores"].output_sample_shape
    (10,)
    """
    blocks = Blocks(shape, device, seed, init)
    blocks.conv_norm_relu("stem", 64, 7, 2)
    x = blocks.add(MaxPooling2D("stem_pool", 3, 2, pad=1))
    stages(blocks, x, _bottleneck, (3, 4, 6, 3))
    return blocks.averaged_scores(classes)


def _bottleneck(width: int, stride: int) -> Steps:
    return (width, 1, 1), (width, 3, stride), (4 * width, 1, 1)


def stages(blocks: Blocks, x: Layer, steps: Callable[[int, int], Steps], counts: Sequence[int]) -> None:
    """Adds stages of `counts` blocks, the first 64 wide, each further one twice as wide and half as high."""
    for stage, count in enumerate(counts, 1):
        for number in range(1, count + 1):
            stride = 2 if stage > 1 and number == 1 else 1
            x = residual(blocks, f"stage{stage}_{number}", x, steps(32 * 2**stage, stride), stride)


def residual(blocks: Blocks, name: str, x: Layer, steps: Steps, stride: int) -> Layer:
    """Adds relu(x + steps of x), x by a convolution of 1 x 1 where the shapes differ.

    x: the layer added last.
    """
    for number, step in enumerate(steps, 1):
        y = blocks.conv_norm(f"{name}_conv{number}", *step)
        if number < len(steps):
            blocks.activation(f"{name}_conv{number}")
    if x.get_output_sample_shape() != y.get_output_sample_shape():
        x = blocks.conv_norm(f"{name}_shortcut", steps[-1][0], 1, stride, src=x)
    blocks.add(Merge(f"{name}_sum"), [x, y])
    return blocks.activation(name)
