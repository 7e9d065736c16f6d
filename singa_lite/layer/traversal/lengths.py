"""Lengths: which inputs of a net may have fewer time steps than it was set up for, and which outputs have as many."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from singa_lite.layer.layer import Node
from singa_lite.tensor import Shape


class Lengths:
    """The axis of time, axis 1 of a batch, on its way through the layers.

    An input has one if it is of ids (time, ...), or has features behind it (time, features). Layers hand it on, by
    `keeps_time`, the first input's that has one.

    of: {layer: the input layer that its outputs have the time of}; refusing: {input layer: the first layer behind it
    that takes as many steps as it was set up for and no fewer; it itself where it has no time}. ids: inputs of ids;
    fed: the sample shape of each input.
    """

    def __init__(self, nodes: Sequence[Node], ids: Collection[str], fed: Mapping[str, Shape]) -> None:
        self.of: dict[str, str] = {}
        self.refusing: dict[str, str] = {}
        for node in nodes:
            layer = node.layer
            came = [self.of[name] for name, _ in node.sources if name in self.of]
            if not node.sources:
                came = [layer.name]
                if len(fed.get(layer.name, ())) < (1 if layer.name in ids else 2):
                    self.refusing[layer.name] = layer.name
            if not layer.any_length or layer.name in self.refusing:
                for name in came:
                    self.refusing.setdefault(name, layer.name)
            elif came and layer.keeps_time:
                self.of[layer.name] = came[0]

    def fitting(self, name: str, sample_shape: Shape, shape: Shape) -> Shape:
        """The sample shape that a batch of an input layer is to have: its own where it is of fewer steps.

        sample_shape: that the layer was set up for; shape: of the batch.
        """
        if name in self.refusing or not is_shorter(shape[1:], sample_shape):
            return sample_shape
        return shape[1:]


def is_shorter(shape: Shape, whole: Shape) -> bool:
    """Whether a sample shape is another one's but for fewer steps, at least one."""
    return len(shape) == len(whole) > 0 and shape[1:] == whole[1:] and 0 < shape[0] < whole[0]
