"""GPT-2: a decoder of text."""

from __future__ import annotations

from singa_lite import layers, loss
from singa_lite.common.checks import flag, fraction, integer
from singa_lite.common.keywords import explains_keywords
from singa_lite.layer import initializer
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.tensor import DeviceSpec


@explains_keywords()
def gpt2(
    vocabulary: int = 50257,
    positions: int = 1024,
    features: int = 768,
    heads: int = 12,
    blocks: int = 12,
    *,
    time: int | None = None,
    dropout: float = 0.0,
    tied: bool = True,
    device: DeviceSpec = None,
    seed: int | None = None,
) -> FeedForwardNet:
    """Returns GPT-2 (Radford and others, Language Models are Unsupervised Multitask Learners, 2019), not compiled.

    Input samples of ids (time,), output samples of scores (time, vocabulary), of which SoftmaxCrossEntropy is the
    loss. Layers: tokens (Embedding), positions, perhaps dropout, block0 and so on (TransformerBlock, norms first, with
    "gelu_tanh"), norm and head. All weights begin as normal numbers of deviation 0.02, biases as 0. The defaults are
    the smallest GPT-2, of 124 million parameters: `net.load("model.safetensors", names=snapshots.maps.gpt2(net))`.

    positions: the longest text; time: the length of a sample, `positions` where None; dropout: of the sum of the
    embeddings and in each block, 0.1 in the paper's training; tied: whether the head uses the table of the embedding,
    as all published ones do; device, seed: of the net.

    >>> net = models.gpt2(vocabulary=100, positions=16, features=8, heads=2, blocks=1)
    >>> net.predict(np.ones((3, 16), "int64")).shape
    (3, 16, 100)
    """
    init = initializer.Normal(std=0.02)
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1), device=device, seed=seed)
    length = integer("gpt2: time", positions if time is None else time, 1)
    tokens = layers.Embedding("tokens", vocabulary, features, weight_init=init, input_sample_shape=(length,))
    net.add(tokens)
    net.add(layers.LearnedPositions("positions", positions, weight_init=init))
    if fraction("gpt2: dropout", dropout):
        net.add(layers.Dropout("dropout", dropout))
    for number in range(integer("gpt2: blocks", blocks, 1)):
        block = layers.TransformerBlock(
            *(f"block{number}", heads, True), dropout=dropout, activation="gelu_tanh", weight_init=init
        )
        net.add(block)
    net.add(layers.LayerNormalization("norm"))
    head = (
        layers.TiedDense("head", tokens)
        if flag("gpt2: tied", tied)
        else layers.Dense("head", vocabulary, False, weight_init=init)
    )
    net.add(head)
    return net
