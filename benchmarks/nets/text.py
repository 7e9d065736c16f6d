"""The nets of `sequences.py`: GPTs, whose layers begin as GPT-2's, and recurrent ones."""

from __future__ import annotations

from functools import partial
from typing import Any

from singa_lite import FeedForwardNet, layers, loss, models
from tiny import size

#: Of `llama`: length of a text, ids, features, heads, hidden features, blocks; the share that is dropped.
LENGTH, IDS, WIDTH, HEADS, HIDDEN, BLOCKS = size((256, 512, 384, 6, 1024, 6), (8, 50, 32, 2, 64, 2))
DROPOUT = 0.1
#: Of `gpt_11m`: characters of a text, features, heads, blocks.
BYTES, CHARACTERS, GPT_WIDTH, GPT_HEADS, GPT_BLOCKS = 256, *size((256, 384, 6, 6), (9, 24, 3, 2))
#: Steps and features of a recurrent net's samples, and its classes.
STEPS, FEATURES, CLASSES = size((100, 256, 10), (7, 5, 4))


def gpt_11m(device: Any = None, seed: int = 0) -> FeedForwardNet:
    """6 blocks of 384 features and 6 heads over 256 bytes of text, an own head."""
    sizes = BYTES, CHARACTERS, GPT_WIDTH, GPT_HEADS, GPT_BLOCKS
    return models.gpt2(*sizes, tied=False, device=device, seed=seed)


def gpt2_small(time: int, device: Any = None, seed: int = 0) -> FeedForwardNet:
    """The smallest GPT-2, 124 million parameters, its head tied, over texts of so many tokens."""
    return models.gpt2(time=time, device=device, seed=seed)


def llama(device: Any = None, seed: int = 0) -> FeedForwardNet:
    """Llama's blocks with dropout of attention's probabilities and of what is added, an own head."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1), device=device, seed=seed)
    net.add(layers.Embedding("tokens", IDS, WIDTH, weight_init=models.language.INIT, input_sample_shape=(LENGTH,)))
    options = {"activation": "swiglu", "norm": "rms", "rotary": True, "use_bias": False}
    for number in range(BLOCKS):
        options |= {"hidden_size": HIDDEN, "dropout": DROPOUT, "weight_init": models.language.INIT}
        net.add(layers.TransformerBlock(f"block{number}", HEADS, True, **options))
    net.add(layers.RMSNormalization("norm"))
    net.add(layers.Dense("head", IDS, False, weight_init=models.language.INIT))
    return net


def lstm(device: Any = None, seed: int = 0) -> FeedForwardNet:
    """Two stacks as wide as the samples, the last output's scores."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device, seed=seed)
    net.add(layers.LSTM("lstm", FEATURES, num_stacks=2, input_sample_shape=(STEPS, FEATURES)))
    net.add(layers.Dense("scores", CLASSES))
    return net


gpt2_small_256 = partial(gpt2_small, 256)
gpt2_small_512 = partial(gpt2_small, 512)
gpt2_small_1024 = partial(gpt2_small, 1024)
