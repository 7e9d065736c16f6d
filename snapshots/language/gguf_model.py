"""Reads a GGUF file of a language model: its configuration, its weights by our names, its tokenizer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.language import vocabulary
from singa_lite.snapshots.language.config import LanguageConfig, Values, check_lacking
from singa_lite.snapshots.language.names import Place, places
from singa_lite.snapshots.language.stored import FROZEN, StoredModel, StoredWeight, check_shape, dequantized, halves
from singa_lite.snapshots.language.tokenizer import Special, Tokenizer
from singa_lite.snapshots.readers import gguf
from singa_lite.snapshots.readers.gguf import GGUFFile
from singa_lite.tensor import set_pages_apart

#: Architectures by GGUF's names: Mistral is a Llama there, whose rows of queries and keys are in pairs.
_ARCHITECTURES = ("llama", "qwen2", "qwen3")
PAIRED = ("llama", "mistral")
#: Formats of matrices and of vectors that are read.
_MATRICES, _VECTORS = (*FROZEN, "f32"), ("f32", "f16", "bf16")
#: {name in LanguageConfig: GGUF's, behind the architecture's}: of sizes, and of the rest.
SIZES = {
    "width": "embedding_length",
    "layers": "block_count",
    "heads": "attention.head_count",
    "hidden_size": "feed_forward_length",
    "context": "context_length",
}
OTHERS = {
    "kv_heads": "attention.head_count_kv",
    "head_size": "attention.key_length",
    "epsilon": "attention.layer_norm_rms_epsilon",
    "window": "attention.sliding_window",
    "rotary_base": "rope.freq_base",
}
#: The tensor of factors of the rotary frequencies.
FACTORS = "rope_freqs.weight"


def read(path: str | os.PathLike[str]) -> StoredModel:
    """Reads a file; its blocks are mapped, the rows of a Llama's queries and keys are copies in another order.

    SnapshotError for a damaged file, and one for all that a file wants and is not here.
    """
    file = gguf.read(path)
    config = configuration(file)
    lacking, weights, known = vocabulary.missing_parts(file), {}, {FACTORS}
    for name, place in places(config):
        info = file.tensors.get(place.gguf)
        check_shape(file.path, place.gguf, place.shape, None if info is None else info.shape)
        known.add(place.gguf)
        formats = _MATRICES if len(place.shape) == 2 else _VECTORS
        if info is not None and info.format not in formats:
            lacking.append(f"tensor {place.gguf!r} in {info.format} (here: {', '.join(formats)})")
        else:
            weights[name] = _weight(file, place, config.architecture)
    check_lacking(file.path, lacking + [f"tensor {name!r}" for name in file.tensors if name not in known])
    return StoredModel(config, weights, _tokenizer(file, config))


def configuration(file: GGUFFile) -> LanguageConfig:
    """Returns the sizes and options of the model in a file. SnapshotError for a model that is not built here."""
    architecture = Values(file.path, file.metadata).architecture("general.architecture", _ARCHITECTURES)
    values = Values(file.path, file.metadata, f"{architecture}.")
    sizes = {ours: values.get(theirs, int) for ours, theirs in SIZES.items()}
    heads, layers, table = sizes["heads"], sizes["layers"], file.tensors.get("token_embd.weight")
    size = values.get(OTHERS["head_size"], int, sizes["width"] // heads if heads else 0)
    check_lacking(file.path, _lacking_options(values, size))
    if not 1 <= layers <= len(file.tensors):
        raise SnapshotError(f"{file.path}: wanted a block_count of 1 to the number of tensors, received {layers}")
    if table is None or len(table.shape) != 2:
        raise SnapshotError(f"{file.path}: wanted a table 'token_embd.weight', received {table and table.shape}")
    window = values.get(OTHERS["window"], int, 0) or None
    try:
        return LanguageConfig(
            architecture="mistral" if architecture == "llama" and window else architecture,
            **sizes,
            kv_heads=values.get(OTHERS["kv_heads"], int, heads),
            head_size=size,
            vocabulary=table.shape[0],
            rotary_base=values.get(OTHERS["rotary_base"], float, 10000.0),
            rotary_scaling=_scaling(file, values),
            epsilon=values.get(OTHERS["epsilon"], float),
            biases="blk.0.attn_q.bias" in file.tensors,
            query_key_norm="blk.0.attn_q_norm.weight" in file.tensors,
            window=window,
            tied="output.weight" not in file.tensors,
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


def _weight(file: GGUFFile, place: Place, architecture: str) -> StoredWeight:
    """The weight of a place: a view of the mapped file, where the order of its rows is ours."""
    blocks = file.blocks(place.gguf)
    if place.heads and architecture in PAIRED:
        set_pages_apart(blocks)
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
