"""from_onnx: a net out of an ONNX file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from singa_lite.common.keywords import explains_keywords
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.tensor import DeviceSpec


@explains_keywords()
def from_onnx(
    path: str | os.PathLike[str],
    device: DeviceSpec = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int | None = None,
) -> FeedForwardNet:
    """Returns a net that predicts what an ONNX file does, and trains; not compiled.

    Its layers are called as the file's nodes, with dots for slashes; nodes between which no value has the batch as its
    first axis are one layer. Weights are parameters: weight and bias, gamma and beta of normalization, whose
    running_mean and running_var are state. Inputs and outputs have the file's names.

    shapes: {input: its sample shape}, for those whose extents beside the batch are not numbers in the file; ValueError
    for a name of no input. device, seed: as for FeedForwardNet. SnapshotError for a damaged file, and for operators
    that are not here, with all of them. Needs `pip install "singa-lite[onnx]"`.

    >>> Sequential([layers.Dense(3, input_shape=(5,))]).export("net.onnx")
    >>> models.from_onnx("net.onnx").predict(np.ones((2, 5), "float32")).shape
    (2, 3)
    """
    from singa_lite.models.onnx_net import net_of

    return net_of(path, device, shapes, seed)
