"""BERT: an encoder of text."""

from __future__ import annotations

from singa_lite import layers
from singa_lite.common.checks import flag, fraction, integer
from singa_lite.common.keywords import explains_keywords
from singa_lite.layer import initializer
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.tensor import DeviceSpec


@explains_keywords()
def bert(
    vocabulary: int = 30522,
    positions: int = 512,
    features: int = 768,
    heads: int = 12,
    blocks: int = 12,
    *,
    types: int = 2,
    hidden_size: int | None = None,
    pooler: bool = True,
    time: int | None = None,
    dropout: float = 0.0,
    device: DeviceSpec = None,
    seed: int | None = None,
) -> FeedForwardNet:
    """Returns BERT (Devlin and others, arXiv 1810.04805), without a loss and not compiled: add a head, and compile with
    one.

    Inputs "ids" and "types", integers (time,): the words, and which of `types` sentences each is of. Positions of id 0
    are padding, which no other looks at. Output samples (features,) of the pooler, the tanh of a Dense on the first
    position; without it those of the last block, (time, features). Layers: words, type_words (Embedding), sum,
    positions, embedding_norm, perhaps embedding_dropout, block0 and so on (TransformerBlock, norms last, with "gelu"),
    and first, pooler, pooled. All weights begin as normal numbers of deviation 0.02. The defaults are those of
    bert-base-uncased: `net.load("model.safetensors", names=snapshots.maps.bert(net, leave_out=["cls"]))`.

    positions: the longest text; time: the length of a sample, `positions` where None; hidden_size: 4 times the
    features where None; dropout: of the embeddings and in each block, 0.1 in the paper's training; device, seed: of
    the net.

    >>> net = models.bert(vocabulary=100, positions=16, features=8, heads=2, blocks=1)
    >>> ids, types = np.ones((3, 16), "int64"), np.zeros((3, 16), "int64")
    >>> net.predict({"ids": ids, "types": types}).shape
    (3, 8)
    """
    init, epsilon = initializer.Normal(std=0.02), 1e-12
    net = FeedForwardNet(device=device, seed=seed)
    length = integer("bert: time", positions if time is None else time, 1)
    for name in ("ids", "types"):
        net.add(layers.Dummy(name, (length,)), [])
    net.add(layers.PaddingMask("mask"), "ids")
    words = net.add(layers.Embedding("words", vocabulary, features, 0, weight_init=init), "ids")
    of_types = net.add(layers.Embedding("type_words", types, features, weight_init=init), "types")
    net.add(layers.Merge("sum"), [words, of_types])
    net.add(layers.LearnedPositions("positions", positions, weight_init=init))
    last = net.add(layers.LayerNormalization("embedding_norm", epsilon=epsilon))
    if fraction("bert: dropout", dropout):
        last = net.add(layers.Dropout("embedding_dropout", dropout))
    for number in range(integer("bert: blocks", blocks, 1)):
        block = layers.TransformerBlock(
            *(f"block{number}", heads),
            hidden_size=hidden_size,
            dropout=dropout,
            normalize_first=False,
            epsilon=epsilon,
            weight_init=init,
        )
        last = net.add(block, [last, "mask"])
    if flag("bert: pooler", pooler):
        first = net.add(layers.Slice("first", 1, [1]), last) if length > 1 else last
        net.add(layers.Reshape("first_word", (features,)), (first, 0))
        net.add(layers.Dense("pooler", features, weight_init=init))
        net.add(layers.Activation("pooled", "tanh"))
    return net
