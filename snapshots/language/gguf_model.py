"""Reads a GGUF file of a language model: its configuration, its weights by our names, its tokenizer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.language import vocabulary
from singa_lite.snapshots.language.config import LanguageConfig
from singa_lite.snapshots.language.names import Place, places
from singa_lite.snapshots.language.stored import FROZEN, StoredModel, StoredWeight, check_shape, dequantized, halves
from singa_lite.snapshots.language.tokenizer import Special, Tokenizer
from singa_lite.snapshots.language.values import Values, check_lacking
from singa_lite.snapshots.readers import gguf
from singa_lite.snapshots.readers.gguf import GGUFFile

#: Architectures by GGUF's names: Mistral is a Llama there, whose rows of queries and keys are in pairs.
_ARCHITECTURES = ("llama", "qwen2", "qwen3")
PAIRED = ("llama", "mistral")
#: Formats of matrices and of vectors that are read.
_MATRICES, _VECTORS = (*FROZEN, "f32"), ("f32", "f16", "bf16")
#: The tensor of factors of the rotary frequencies.
FACTORS = "rope_freqs.weight"


def read(path: str | os.PathLike[str]) -> StoredModel:
    """Reads a file; its blocks are mapped, the rows of a Llama's queries and keys are copies in another order.

    SnapshotError for a damaged file, and one for all that a file wants and is not here.
    """
    file = gguf.read(path)
    config = configuration(file)
    found = _places(file, config)
    check_lacking(file.path, vocabulary.missing_parts(file) + _strange(file, found))
    weights = {name: _weight(file, place, config.architecture) for name, place in found.items()}
    return StoredModel(file.path, config, weights, _tokenizer(file, config))


def formats(file: GGUFFile, config: LanguageConfig) -> dict[str, str]:
    """Returns {parameter: its format in a file}. SnapshotError for tensors that are not as the configuration wants."""
    found = _places(file, config)
    check_lacking(file.path, _strange(file, found))
    return {name: file.tensors[place.gguf].format for name, place in found.items()}


def _places(file: GGUFFile, config: LanguageConfig) -> dict[str, Place]:
    """The place of each parameter, where the file has a tensor of its shape."""
    found = {}
    for name, place in places(config):
        info = file.tensors.get(place.gguf)
        check_shape(file.path, place.gguf, place.shape, None if info is None else info.shape)
        found[name] = place
    return found


def configuration(file: GGUFFile) -> LanguageConfig:
    """Returns the sizes and options of the model in a file. SnapshotError for a model that is not built here."""
    architecture = Values(file.path, file.metadata).architecture("general.architecture", _ARCHITECTURES)
    values = Values(file.path, file.metadata, f"{architecture}.")
    width, heads = values.get("embedding_length", int), values.get("attention.head_count", int)
    size = values.get("attention.key_length", int, width // heads if heads else 0)
    check_lacking(file.path, _lacking_options(values, size))
    layers, table = values.get("block_count", int), file.tensors.get("token_embd.weight")
    if not 1 <= layers <= len(file.tensors):
        raise SnapshotError(f"{file.path}: wanted a block_count of 1 to the number of tensors, received {layers}")
    if table is None or len(table.shape) != 2:
        raise SnapshotError(f"{file.path}: wanted a table 'token_embd.weight', received {table and table.shape}")
    window = values.get("attention.sliding_window", int, 0) or None
    try:
        return LanguageConfig(
            architecture="mistral" if architecture == "llama" and window else architecture,
            width=width,
            layers=layers,
            heads=heads,
            kv_heads=values.get("attention.head_count_kv", int, heads),
            head_size=size,
            hidden_size=values.get("feed_forward_length", int),
            vocabulary=table.shape[0],
            rotary_base=values.get("rope.freq_base", float, 10000.0),
            rotary_scaling=_scaling(file, values),
            epsilon=values.get("attention.layer_norm_rms_epsilon", float),
            biases="blk.0.attn_q.bias" in file.tensors,
            query_key_norm="blk.0.attn_q_norm.weight" in file.tensors,
            window=window,
            tied="output.weight" not in file.tensors,
            context=values.get("context_length", int),
        )
    except (ValueError, TypeError) as error:
        raise SnapshotError(f"{file.path}: {error}") from error


def _lacking_options(values: Values, head_size: int) -> list[str]:
    """What the metadata say that no layer does."""
    sizes = {name: values.get(name, int, head_size) for name in ("attention.value_length", "rope.dimension_count")}
    lacking = [f"{name} {found} beside heads of {head_size}" for name, found in sizes.items() if found != head_size]
    lacking += ["experts"] if values.get("expert_count", int, 0) else []
    kind = values.get("rope.scaling.type", str, "none")
    return lacking + ([] if kind in ("none", "linear") else [f"rotary scaling {kind[:50]!r}"])


def _scaling(file: GGUFFile, values: Values) -> Mapping[str, object] | None:
    """Of the rotary frequencies: a factor each, or one for all."""
    info = file.tensors.get(FACTORS)
    if info is not None:
        if info.format != "f32" or len(info.shape) != 1 or info.shape[0] > 1 << 16:
            raise SnapshotError(f"{file.path}: {FACTORS}: wanted factors in f32, received {info.format} {info.shape}")
        return {"rope_type": "factors", "factors": tuple(dequantized(file.blocks(FACTORS), "f32")[0].tolist())}
    if values.get("rope.scaling.type", str, "none") == "linear":
        return {"rope_type": "linear", "factor": values.get("rope.scaling.factor", float)}
    return None


def _strange(file: GGUFFile, found: Mapping[str, Place]) -> list[str]:
    """Tensors of formats that are not here, and those without a place."""
    known = {place.gguf: _MATRICES if len(place.shape) == 2 else _VECTORS for place in found.values()}
    strange = [f"tensor {name!r}" for name in file.tensors if name not in known and name != FACTORS]
    forms = {name: file.tensors[name].format for name in known}
    return strange + [
        f"tensor {name!r} in {form} (here: {', '.join(known[name])})"
        for name, form in forms.items()
        if form not in known[name]
    ]


def _weight(file: GGUFFile, place: Place, architecture: str) -> StoredWeight:
    """The weight of a place: a view of the mapped file, where the order of its rows is ours."""
    blocks = file.blocks(place.gguf)
    if place.heads and architecture in PAIRED:
        blocks = halves(blocks.reshape(place.shape[0], -1), place.heads).reshape(blocks.shape)
    return StoredWeight(file.tensors[place.gguf].format, place.shape, blocks)


def _tokenizer(file: GGUFFile, config: LanguageConfig) -> Tokenizer | None:
    values = Values(file.path, file.metadata, "tokenizer.ggml.")
    model, pre = (values.get(name, str, "") for name in ("model", "pre"))
    if not model:
        return None
    ids = {name: values.get(f"{name}_token_id", int, -1) for name in ("bos", "eos", "eot", "eom")}
    for name, found in ids.items():
        if found != -1 and not 0 <= found < config.vocabulary:
            raise SnapshotError(
                f"{file.path}: {name}_token_id: wanted an id below {config.vocabulary}, received {found}"
            )
    begins = values.get("add_bos_token", bool, model == "llama" or pre in ("llama-bpe", "llama3"))
    begin, *ends = (None if found < 0 else found for found in ids.values())
    special = Special(begin, tuple(end for end in ends if end is not None), begins)
    template = Values(file.path, file.metadata).get("tokenizer.chat_template", str, "") or None
    return Tokenizer(file.path, partial(vocabulary.built, file), config.vocabulary, template, special, file)
