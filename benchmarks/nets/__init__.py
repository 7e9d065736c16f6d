"""The nets of the benchmarks, from the project's own layers, each as in its paper and torchvision.

A builder takes (device=None, seed=0, *, init=...) and returns a FeedForwardNet with its loss, not yet
compiled. init: of all weights, an Initializer, its name or a number.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from singa_lite import FeedForwardNet

from .densenet import densenet121
from .mobilenet import mobilenet_v2
from .resnet import resnet18_32, resnet50
from .small import chain, digits_cnn, lenet, mlp
from .unet import unet
from .vgg import vgg16

Shape = tuple[int, ...]
Array = np.ndarray[Any, Any]


class Entry(NamedTuple):
    """A net and what it takes: sample shapes of input and target; targets are class ids below `classes`."""

    build: Callable[..., FeedForwardNet]
    input_shape: Shape
    classes: int
    target_shape: Shape = ()


NETS: dict[str, Entry] = {
    "digits_cnn": Entry(digits_cnn, (1, 8, 8), 10),
    "lenet": Entry(lenet, (1, 28, 28), 10),
    "mlp": Entry(mlp, (784,), 10),
    "vgg16": Entry(vgg16, (3, 224, 224), 1000),
    "resnet50": Entry(resnet50, (3, 224, 224), 1000),
    "resnet18_32": Entry(resnet18_32, (3, 32, 32), 10),
    "mobilenet_v2": Entry(mobilenet_v2, (3, 224, 224), 1000),
    "densenet121": Entry(densenet121, (3, 224, 224), 1000),
    "unet": Entry(unet, (3, 128, 160), 5, (128, 160)),
    "chain": Entry(chain, (8,), 4),
}


def random_batch(entry: Entry, n: int, seed: int = 0) -> tuple[Array, Array]:
    """n samples: float32 (n, *input_shape), standard normal; int64 (n, *target_shape), uniform class ids."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((n, *entry.input_shape), dtype=np.float32)
    return x, random.integers(0, entry.classes, (n, *entry.target_shape))


def batch(name: str, n: int, seed: int = 0) -> tuple[Array, Array]:
    """`random_batch` for the net of this name."""
    return random_batch(NETS[name], n, seed)


def parameter_count(net: FeedForwardNet) -> int:
    """How many numbers a step updates."""
    return sum(prod(value.shape) for value in net.param_values())
