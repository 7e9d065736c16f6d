"""The nets of the benchmarks: those of `singa_lite.models`, and others that only benchmarks want.

A builder takes (device=None, seed=0, *, init=...) and returns a FeedForwardNet with its loss, not yet
compiled. init: of all weights, an Initializer, its name or a number.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from singa_lite import FeedForwardNet, models

from .resnet import resnet18_32
from .small import chain, digits_cnn, lenet, mlp
from .text import (
    BYTES,
    CHARACTERS,
    CLASSES,
    FEATURES,
    IDS,
    LENGTH,
    STEPS,
    gpt2_small_256,
    gpt2_small_512,
    gpt2_small_1024,
    gpt_11m,
    llama,
    lstm,
)
from .vgg import vgg16

Shape = tuple[int, ...]
Array = np.ndarray[Any, Any]


class Entry(NamedTuple):
    """A net and what it takes: sample shapes of input and target; targets are class ids below `classes`.

    ids: how many there are, where it takes ids; begins: whether its builder has `init`, else the net's own begins it.
    """

    build: Callable[..., FeedForwardNet]
    input_shape: Shape
    classes: int
    target_shape: Shape = ()
    ids: int = 0
    begins: bool = True


def of_models(model: Callable[..., FeedForwardNet], classes: int) -> Callable[..., FeedForwardNet]:
    """The builder of one of `singa_lite.models`. Its options: shape, init, and those of the model."""

    def build(device: Any = None, seed: int = 0, **options: Any) -> FeedForwardNet:
        return model(classes, device=device, seed=seed, **options)

    return build


NETS: dict[str, Entry] = {
    "digits_cnn": Entry(digits_cnn, (1, 8, 8), 10),
    "lenet": Entry(lenet, (1, 28, 28), 10),
    "mlp": Entry(mlp, (784,), 10),
    "vgg16": Entry(vgg16, (3, 224, 224), 1000),
    "resnet50": Entry(of_models(models.resnet50, 1000), (3, 224, 224), 1000),
    "resnet18_32": Entry(resnet18_32, (3, 32, 32), 10),
    "mobilenet_v2": Entry(of_models(models.mobilenet_v2, 1000), (3, 224, 224), 1000),
    "densenet121": Entry(of_models(models.densenet121, 1000), (3, 224, 224), 1000),
    "unet": Entry(of_models(models.unet, 5), (3, 128, 160), 5, (128, 160)),
    "chain": Entry(chain, (8,), 4),
}

#: Those of `sequences.py`, and of `head_to_head.py`.
TEXTS: dict[str, Entry] = {
    "gpt_11m": Entry(gpt_11m, (CHARACTERS,), BYTES, (CHARACTERS,), BYTES, False),
    "gpt2_small_256": Entry(gpt2_small_256, (256,), 50257, (256,), 50257, False),
    "gpt2_small_512": Entry(gpt2_small_512, (512,), 50257, (512,), 50257, False),
    "gpt2_small_1024": Entry(gpt2_small_1024, (1024,), 50257, (1024,), 50257, False),
    "llama": Entry(llama, (LENGTH,), IDS, (LENGTH,), IDS, False),
    "lstm": Entry(lstm, (STEPS, FEATURES), CLASSES, (), 0, False),
}


def entry(name: str) -> Entry:
    """The net of this name, of either table."""
    return NETS[name] if name in NETS else TEXTS[name]


def random_batch(entry: Entry, n: int, seed: int = 0) -> tuple[Array, Array]:
    """n samples: float32 (n, *input_shape), standard normal, or int64 ids; int64 class ids (n, *target_shape)."""
    random = np.random.default_rng(seed)
    shape = n, *entry.input_shape
    x: Array = random.integers(0, entry.ids, shape) if entry.ids else random.standard_normal(shape, dtype=np.float32)
    return x, random.integers(0, entry.classes, (n, *entry.target_shape))


def batch(name: str, n: int, seed: int = 0) -> tuple[Array, Array]:
    """`random_batch` for the net of this name."""
    return random_batch(entry(name), n, seed)


def parameter_count(net: FeedForwardNet) -> int:
    """How many numbers a step updates."""
    return sum(prod(value.shape) for value in net.param_values())
