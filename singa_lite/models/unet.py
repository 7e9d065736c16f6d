"""U-Net: down, up again, and across at each level (Ronneberger and others, arXiv 1505.04597)."""

from __future__ import annotations

from collections.abc import Sequence, Sized

from singa_lite.common.keywords import explains_keywords
from singa_lite.layer.initializer import Spec
from singa_lite.layer.layer import Layer
from singa_lite.layers import Concat, MaxPooling2D, Upsampling2D
from singa_lite.models.blocks import Blocks
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.tensor import DeviceSpec


@explains_keywords()
def unet(
    classes: int = 2,
    *,
    shape: Sequence[int] = (3, 128, 160),
    widths: Sequence[int] = (32, 64, 128, 256),
    init: Spec = "he_normal",
    device: DeviceSpec = None,
    seed: int | None = None,
) -> FeedForwardNet:
    """Returns U-Net (Ronneberger and others, arXiv 1505.04597) with SoftmaxCrossEntropy as its loss, not compiled.

    It keeps the extents: convolutions are padded, and batch normalized. Output samples of scores for each pixel,
    (classes, height, width). Layers: down1_conv1 and so on, level4, up3 and so on, scores. torchvision has no U-Net.

    shape: of the samples, (channels, height, width), the last two divisible by 2 ** (levels - 1); widths: channels of
    each level, top first; init: of all weights; device, seed: of the net.

    >>> net = models.unet(3, shape=(1, 32, 48), widths=(8, 16, 32))
    >>> net.predict(np.ones((2, 1, 32, 48), "float32")).shape
    (2, 3, 32, 48)
    """
    blocks = Blocks(shape, device, seed, init)
    if not isinstance(widths, Sized):
        raise TypeError(f"unet widths: wanted the channels of each level, received {widths!r:.100}")
    if not len(widths) or any(extent % 2 ** (len(widths) - 1) for extent in tuple(shape)[1:]):
        raise ValueError(f"unet: wanted levels that halve the shape without a rest, received {shape}, widths {widths}")
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
