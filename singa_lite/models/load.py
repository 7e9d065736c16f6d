"""load: a language model out of a GGUF file or a folder of Hugging Face's."""

from __future__ import annotations

import os

from singa_lite.common import checks
from singa_lite.common.keywords import explains_keywords
from singa_lite.models.language import language_model
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.snapshots import language
from singa_lite.snapshots.language.stored import StoredModel
from singa_lite.tensor import DeviceSpec

#: The longest sample where none is asked for: longer contexts would take tables that few texts need.
_LENGTH = 2048


@explains_keywords()
def load(
    path: str | os.PathLike[str],
    length: int | None = None,
    *,
    device: DeviceSpec = None,
    seed: int | None = None,
) -> FeedForwardNet:
    stored = language.opened(path)
    most = checks.integer("load: length", min(stored.config.context, _LENGTH) if length is None else length, 1)
    net = language_model(stored.config, most, weight_init=0.0, device=device, seed=seed)
    _fill(net, stored)
    net.tokenizer = stored.tokenizer
    return net


def _fill(net: FeedForwardNet, stored: StoredModel) -> None:
    parameters = net.parameters()
    for name, weight in stored.weights.items():
        numbers = weight.numbers()
        is_table = numbers.ndim < 2 or name in ("tokens/weight", "positions/weight")
        parameters[name].copy_from_numpy(numbers if is_table else numbers.T)
