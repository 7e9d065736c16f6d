"""Reads a GGUF file of a language model: its configuration, its weights by our names, its tokenizer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import TypeVar

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.language import vocabulary
from singa_lite.snapshots.language.config import ARCHITECTURES, LanguageConfig
from singa_lite.snapshots.language.names import Place, places
from singa_lite.snapshots.language.stored import FROZEN, StoredModel, StoredWeight, dequantized, halves
from singa_lite.snapshots.language.tokenizer import Special, Tokenizer
from singa_lite.snapshots.readers import gguf
from singa_lite.snapshots.readers.gguf import GGUFFile
from singa_lite.tensor import Shape

T = TypeVar("T", int, float, str, bool)

#: Formats of matrices that are read.
FORMATS = (*FROZEN, "f32")
#: The tensor of factors of the rotary frequencies.
_FACTORS = "rope_freqs.weight"


def read(path: str | os.PathLike[str]) -> StoredModel:
    """Reads a file; its blocks are mapped, the rows of a Llama's queries and keys are copies in another order.

    SnapshotError for a damaged file, and one for all that a file wants and is not here.
    """
    file = gguf.read(path)
    config = configuration(file)
    found = dict(_checked(file, config))
    lacking = vocabulary.missing_parts(file) + _strange(file, found)
    if lacking:
        raise SnapshotError(f"{file.path}: wanted a model of what this version has, received {'; '.join(lacking[:20])}")
    weights = {name: _weight(file, place, config.architecture) for name, place in found.items()}
    return StoredModel(file.path, config, weights, _tokenizer(file, config))


def configuration(file: GGUFFile) -> LanguageConfig:
    """Returns the sizes and options of the model in a file. SnapshotError for a model that is not built here."""
    architecture = _value(file, "general.architecture", str)
    if architecture not in ARCHITECTURES:
        raise SnapshotError(
            f"{file.path}: wanted an architecture of {', '.join(ARCHITECTURES)}, received {architecture[:100]!r}"
        )
    values = _Values(file, architecture)
    width, heads = values.get("embedding_length", int), values.get("attention.head_count", int)
    size = values.get("attention.key_length", int, width // heads if heads else 0)
    lacking = _options_not_here(values, size)
    if lacking:
        raise SnapshotError(f"{file.path}: wanted a model of what this version has, received {'; '.join(lacking)}")
    norm = "attention.layer_norm_epsilon" if architecture == "gpt2" else "attention.layer_norm_rms_epsilon"
    layers = values.get("block_count", int)
    if not 1 <= layers <= len(file.tensors):
        raise SnapshotError(f"{file.path}: wanted a block_count of 1 to the number of tensors, received {layers}")
    try:
        return LanguageConfig(
            architecture=architecture,
            width=width,
            layers=layers,
            heads=heads,
            kv_heads=values.get("attention.head_count_kv", int, heads),
            head_size=size,
            hidden_size=values.get("feed_forward_length", int),
            vocabulary=_vocabulary(file),
            rotary_base=values.get("rope.freq_base", float, 10000.0),
            rotary_scaling=_scaling(file, values),
            epsilon=values.get(norm, float),
            biases="blk.0.attn_q.bias" in file.tensors,
            query_key_norm="blk.0.attn_q_norm.weight" in file.tensors,
            window=values.get("attention.sliding_window", int, 0) or None,
            tied="output.weight" not in file.tensors,
            context=values.get("context_length", int),
        )
    except (ValueError, TypeError) as error:
        raise SnapshotError(f"{file.path}: {error}") from error


def _vocabulary(file: GGUFFile) -> int:
    """How many ids there are: the rows of the embedding's table."""
    table = file.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise SnapshotError(f"{file.path}: wanted a table 'token_embd.weight', received {table and table.shape}")
    return table.shape[0]


def _options_not_here(values: _Values, head_size: int) -> list[str]:
    """What the metadata say that no layer does."""
    lacking = []
    for name, wanted in (("attention.value_length", head_size), ("rope.dimension_count", head_size)):
        found = values.get(name, int, wanted)
        if found != wanted and values.architecture != "gpt2":
            lacking.append(f"{name} {found} beside heads of {wanted}")
    if values.get("expert_count", int, 0):
        lacking.append("experts")
    kind = values.get("rope.scaling.type", str, "none")
    if kind not in ("none", "linear"):
        lacking.append(f"rotary scaling {kind[:50]!r}")
    return lacking


def _scaling(file: GGUFFile, values: _Values) -> Mapping[str, object] | None:
    """Of the rotary frequencies: a factor each, or one for all."""
    if _FACTORS in file.tensors:
        info = file.tensors[_FACTORS]
        if info.format != "f32" or len(info.shape) != 1 or info.shape[0] > 1 << 16:
            raise SnapshotError(f"{file.path}: {_FACTORS}: wanted factors in f32, received {info.format} {info.shape}")
        return {"rope_type": "factors", "factors": tuple(dequantized(file.blocks(_FACTORS), "f32")[0].tolist())}
    if values.get("rope.scaling.type", str, "none") == "linear":
        return {"rope_type": "linear", "factor": values.get("rope.scaling.factor", float)}
    return None


class _Values:
    """The metadata of an architecture."""

    def __init__(self, file: GGUFFile, architecture: str) -> None:
        self.file, self.architecture = file, architecture

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        """A value. SnapshotError for one that is not there and has no default, or is of another kind."""
        return _value(self.file, f"{self.architecture}.{name}", kind, default)


def _value(file: GGUFFile, key: str, kind: type[T], default: T | None = None) -> T:
    found = file.metadata.get(key, default)
    if found is None:
        raise SnapshotError(f"{file.path}: wanted {key!r} in its metadata, received none of that name")
    if kind is float and type(found) is int:
        found = float(found)
    if type(found) is not kind:
        raise SnapshotError(f"{file.path}: {key}: wanted {kind.__name__}, received {str(found)[:100]!r}")
    return found


def _checked(file: GGUFFile, config: LanguageConfig) -> list[tuple[str, Place]]:
    """All places. SnapshotError for the first tensor that is not there or has another shape."""
    found = []
    for name, place in places(config):
        info = file.tensors.get(place.gguf)
        wanted: Shape = (place.whole or place.shape[0], *place.shape[1:])
        if info is None or info.shape != wanted:
            received = "none of that name" if info is None else str(info.shape)
            raise SnapshotError(f"{file.path}: wanted a tensor {place.gguf!r} of shape {wanted}, received {received}")
        found.append((name, place))
    return found


def _strange(file: GGUFFile, found: Mapping[str, Place]) -> list[str]:
    """Tensors of formats that are not here, and those without a place."""
    known = {place.gguf: place for place in found.values()}
    strange = [f"tensor {name!r}" for name in file.tensors if name not in known and name != _FACTORS]
    for name in known:
        form = file.tensors[name].format
        if form not in (FORMATS if len(known[name].shape) == 2 else ("f32", "f16", "bf16")):
            strange.append(f"tensor {name!r} in {form} (here: {', '.join(FORMATS)})")
    return strange


def _weight(file: GGUFFile, place: Place, architecture: str) -> StoredWeight:
    """The weight of a place. Its rows are views of the mapped file, where their order is ours."""
    info, blocks = file.tensors[place.gguf], file.blocks(place.gguf)
    if len(place.shape) == 1:
        blocks = blocks.reshape(info.shape[0], -1)  # a row for each number
    if place.whole:
        blocks = blocks[place.begin : place.begin + place.shape[0]]
    if place.heads and architecture == "llama":
        blocks = halves(blocks, place.heads)
    if len(place.shape) == 1:
        blocks = blocks.reshape(1, -1)
    return StoredWeight(info.format, place.shape, blocks)


def _tokenizer(file: GGUFFile, config: LanguageConfig) -> Tokenizer | None:
    keys = "tokenizer.ggml."
    if f"{keys}model" not in file.metadata:
        return None
    ids = {}
    for name in ("bos", "eos", "eot", "eom"):
        found = _value(file, f"{keys}{name}_token_id", int, -1)
        if found != -1 and not 0 <= found < config.vocabulary:
            raise SnapshotError(
                f"{file.path}: {keys}{name}_token_id: wanted an id below {config.vocabulary}, received {found}"
            )
        ids[name] = found
    ends = tuple(ids[name] for name in ("eos", "eot", "eom") if ids[name] >= 0)
    begins = file.metadata[f"{keys}model"] == "llama" or file.metadata.get(f"{keys}pre") in ("llama-bpe", "llama3")
    special = Special(ids["bos"] if ids["bos"] >= 0 else None, ends, _value(file, f"{keys}add_bos_token", bool, begins))
    template = _value(file, "tokenizer.chat_template", str, "")
    build = partial(vocabulary.built, file)
    return Tokenizer(file.path, build, config.vocabulary, template or None, special, file)
