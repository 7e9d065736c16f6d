"""load: a language model out of a GGUF file or a folder of Hugging Face's."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from singa_lite import device as devices
from singa_lite.common import checks
from singa_lite.common.keywords import explains_keywords
from singa_lite.layer.stored_parameters import PARAMETER_DTYPES
from singa_lite.models.language import language_model
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.snapshots import language
from singa_lite.snapshots.language.stored import FROZEN, StoredModel
from singa_lite.tensor import DeviceSpec, release_pages

#: The longest sample where none is asked for: longer ones would take tables that few texts need.
_LENGTH = 2048


@explains_keywords()
def load(
    path: str | os.PathLike[str],
    length: int | None = None,
    *,
    weights: str = "stored",
    packed: bool = False,
    device: DeviceSpec = None,
    seed: int | None = None,
) -> FeedForwardNet:
    """Returns the net of a language model in a GGUF file or a folder of Hugging Face's, not compiled.

    The net is that of `models.language_model` with the model's weights; `net.tokenizer` encodes, decodes and writes
    chats. A folder has config.json, model.safetensors (or several, with an index) and tokenizer.json.

    length: of a sample, and the longest text that it generates, at most the model's context; that, or 2,048, where
    None.
    weights: "stored": what the file has in blocks, float16 or bfloat16 stays so, frozen and mapped from the file, and
    all else is parameters; "float32": all are parameters; "bfloat16": so are they, and matrices are rounded to bfloat16
    as they are read, see docs/bfloat16_parameters.md. The file must stay as it is while a net has it mapped.
    On `device.abstract()` no weight is read and there is no tokenizer: the header of a GGUF file or a config.json is
    enough, and weights may also be "q4_0" or another format of blocks, as if all matrices were in it.
    packed, device, seed: as for `language_model`. SnapshotError for a damaged file, and for one that wants what is not
    here, with all of it. Needs `pip install "singa-lite[lm]"`.

    >>> sizes = {"width": 8, "layers": 2, "heads": 2, "hidden_size": 12, "vocabulary": 100}
    >>> models.language_model(models.LanguageConfig(architecture="llama", **sizes), length=16).save("small.gguf")
    >>> models.load("small.gguf", length=16).predict(np.ones((3, 16), "int64")).shape
    (3, 16, 100)
    """
    at = devices.get(device)
    choices = ("stored", *PARAMETER_DTYPES, *(FROZEN if at.is_abstract else ()))
    checks.check_choice("load weights", weights, choices)
    stored = None if at.is_abstract else language.opened(path)
    if stored is None:
        config, formats = language.described(path)
    else:
        config, formats = stored.config, {name: weight.format for name, weight in stored.weights.items()}
    most = checks.integer("load length", min(config.context, _LENGTH) if length is None else length, 1)
    if most > config.context:
        raise ValueError(f"load length: wanted at most the model's context, {config.context}, received {most}")
    formats = formats if weights == "stored" else dict.fromkeys(formats, weights)
    frozen = {name: form for name, form in formats.items() if _can_freeze(name, form)}
    options: dict[str, Any] = {"packed": packed, "weight_format": _nested(frozen), "device": at, "seed": seed}
    stored_as = weights if weights == "bfloat16" else None
    net = language_model(config, most, weight_init=0.0, parameter_dtype=stored_as, **options)
    if stored is not None:
        net.tokenizer = stored.tokenizer
        _fill(net, stored, frozen)
    return net


def _can_freeze(name: str, form: str) -> bool:
    """Whether a weight of this name may be frozen blocks: of products, and the table of ids."""
    return form in FROZEN and name.endswith("/weight") and name != "positions/weight"


def _nested(formats: dict[str, str]) -> dict[str, Any]:
    """{"block0/output/weight": format} as {"block0": {"output": format}}."""
    found: dict[str, Any] = {}
    for name, form in formats.items():
        *layers, last, _ = name.split("/")
        inner = found
        for layer in layers:
            inner = inner.setdefault(layer, {})
        inner[last] = form
    return found


def _fill(net: FeedForwardNet, stored: StoredModel, frozen: Iterable[str]) -> None:
    """Sets all weights, one at a time."""
    parameters = net.parameters()
    for name, weight in stored.weights.items():
        if name in frozen:
            layer, _, inner = name.partition("/")
            net.layers[layer].set_frozen(inner, weight.blocks)
            continue
        value = parameters[name]
        if value.ndim > 1 and name not in ("tokens/weight", "positions/weight"):  # of products: (inputs, outputs)
            value = value.view(value.shape[::-1], value.strides[::-1])
        if not net.device.runtime.reads_host:
            value.copy_from_numpy(weight.numbers())
            continue
        for row, numbers in weight.pieces():
            shape = numbers.shape[2 - value.ndim :]
            value.view(shape, value.strides, row * value.strides[0]).copy_from_numpy(numbers.reshape(shape))
    for weight in stored.weights.values():  # of one mapping mostly, whose pages go with the first
        release_pages(weight.blocks)
