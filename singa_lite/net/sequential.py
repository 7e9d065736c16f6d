"""Sequential: a net of layers one after the other, as in Keras."""

from __future__ import annotations

from collections.abc import Iterable

from singa_lite.layer.layer import Layer
from singa_lite.net.feed_forward_net import FeedForwardNet


def Sequential(layers: Iterable[Layer] = ()) -> FeedForwardNet:
    """Returns a net whose layers stand one after the other; `add` appends more.

    layers: the first one has an `input_shape`, or is `Input(shape)`. `layers.Sequential` is a layer of layers.

    >>> net = Sequential([layers.Input((5,)), layers.Dense(4, activation="relu"), layers.Dense(3)])
    >>> net.predict(np.ones((2, 5), "float32")).shape
    (2, 3)
    """
    net = FeedForwardNet()
    for layer in layers:
        net.add(layer)
    return net
