"""Reads and writes GGUF files of language models: configuration, weights by our names, tokenizer."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from struct import pack

import numpy as np

from singa_lite.common.atomic import replacing
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots import output
from singa_lite.snapshots.language import stored, vocabulary
from singa_lite.snapshots.language.config import (
    NAMES,
    LanguageConfig,
    Values,
    check_lacking,
    read_config,
    rotary_factors,
)
from singa_lite.snapshots.language.names import Place, places
from singa_lite.snapshots.language.stored import FROZEN, NetWeight, StoredModel, StoredWeight
from singa_lite.snapshots.language.tokenizer import Special, Tokenizer
from singa_lite.snapshots.readers import gguf
from singa_lite.snapshots.readers.gguf import ALIGNMENT, ARRAY, BLOCKS, LETTERS, MAGIC, TEXT, TYPES, GGUFFile
from singa_lite.snapshots.readers.raw import ByteArray
from singa_lite.tensor import set_pages_apart
from singa_lite.training.trained_net import TrainedNet

#: Architectures by GGUF's names: Mistral is a Llama there, whose rows of queries and keys are in pairs.
_ARCHITECTURES, _PAIRED = ("llama", "qwen2", "qwen3"), ("llama", "mistral")
#: Formats of matrices and of vectors that are read.
_MATRICES, _VECTORS = (*FROZEN, "f32"), ("f32", "f16", "bf16")
_WINDOW = "attention.sliding_window"
#: The tensor of factors of the rotary frequencies, and the most of them.
_FACTORS, _MOST_FACTORS = "rope_freqs.weight", 1 << 16


def read(path: str | os.PathLike[str]) -> StoredModel:
    """Reads a file; its blocks are mapped, the rows of a Llama's queries and keys are copies in another order.

    SnapshotError for a damaged file, and one for all that a file wants and is not here.
    """
    file = gguf.read(path)
    config = configuration(file)
    lacking, found, known = vocabulary.missing_parts(file), {}, {_FACTORS}
    for name, place in places(config):
        info = file.tensors.get(place.gguf)
        stored.check_shape(file.path, place.gguf, place.shape, None if info is None else info.shape)
        known.add(place.gguf)
        formats = _MATRICES if len(place.shape) == 2 else _VECTORS
        if info is not None and info.format not in formats:
            lacking.append(f"tensor {place.gguf!r} in {info.format} (here: {', '.join(formats)})")
        else:
            found[name] = _weight(file, place, config.architecture)
    check_lacking(file.path, lacking + [f"tensor {name!r}" for name in file.tensors if name not in known])
    return StoredModel(config, found, _tokenizer(file, config))


def configuration(file: GGUFFile) -> LanguageConfig:
    """Returns the sizes and options of the model in a file. SnapshotError for a model that is not built here."""
    architecture = Values(file.path, file.metadata).architecture("general.architecture", _ARCHITECTURES)
    values, table = Values(file.path, file.metadata, f"{architecture}."), file.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise SnapshotError(f"{file.path}: wanted a table 'token_embd.weight', received {table and table.shape}")
    window = values.get(_WINDOW, int, 0) or None
    config = read_config(
        values,
        1,
        "mistral" if architecture == "llama" and window else architecture,
        vocabulary=table.shape[0],
        rotary_base=values.get(NAMES["rotary_base"][1], float, 10000.0),
        rotary_scaling=_scaling(file, values),
        epsilon=values.get(NAMES["epsilon"][1], float),
        biases="blk.0.attn_q.bias" in file.tensors,
        query_key_norm="blk.0.attn_q_norm.weight" in file.tensors,
        window=window,
        tied="output.weight" not in file.tensors,
    )
    check_lacking(file.path, _lacking_options(values, config.head_size))
    if config.layers > len(file.tensors):
        wanted = "a block_count of at most the number of tensors"
        raise SnapshotError(f"{file.path}: wanted {wanted}, received {config.layers}")
    return config


def _lacking_options(values: Values, head_size: int) -> list[str]:
    """What the metadata say that no layer does."""
    sizes = {name: values.get(name, int, head_size) for name in ("attention.value_length", "rope.dimension_count")}
    lacking = [f"{name} {found} beside heads of {head_size}" for name, found in sizes.items() if found != head_size]
    lacking += ["experts"] if values.get("expert_count", int, 0) else []
    kind = values.get("rope.scaling.type", str, "none")
    return lacking + ([] if kind in ("none", "linear") else [f"rotary scaling {kind[:50]!r}"])


def _scaling(file: GGUFFile, values: Values) -> Mapping[str, object] | None:
    """Of the rotary frequencies: a factor each, or one for all."""
    info = file.tensors.get(_FACTORS)
    if info is not None:
        if info.format != "f32" or len(info.shape) != 1 or info.shape[0] > _MOST_FACTORS:
            raise SnapshotError(f"{file.path}: {_FACTORS}: wanted factors in f32, received {info.format} {info.shape}")
        return {"rope_type": "factors", "factors": tuple(np.frombuffer(info.data, "<f4").tolist())}
    if values.get("rope.scaling.type", str, "none") == "linear":
        return {"rope_type": "linear", "factor": values.get("rope.scaling.factor", float)}
    return None


def _weight(file: GGUFFile, place: Place, architecture: str) -> StoredWeight:
    """The weight of a place: a view of the mapped file, where the order of its rows is ours."""
    blocks = file.blocks(place.gguf)
    if place.heads and architecture in _PAIRED:
        set_pages_apart(blocks)
        blocks = stored.halves(blocks.reshape(place.shape[0], -1), place.heads).reshape(blocks.shape)
    return StoredWeight(file.tensors[place.gguf].format, place.shape, blocks)


def _tokenizer(file: GGUFFile, config: LanguageConfig) -> Tokenizer | None:
    values = Values(file.path, file.metadata, "tokenizer.ggml.")
    model, pre = (values.get(name, str, "") for name in ("model", "pre"))
    if not model:
        return None
    ids = {name: values.get(f"{name}_token_id", int, -1) for name in ("bos", "eos", "eot", "eom")}
    for name, found in ids.items():
        if found != -1 and not 0 <= found < config.vocabulary:
            wanted = f"{name}_token_id: wanted an id below {config.vocabulary}"
            raise SnapshotError(f"{file.path}: {wanted}, received {found}")
    begin, *ends = (None if found < 0 else found for found in ids.values())
    begins = values.get("add_bos_token", bool, model == "llama" or pre in ("llama-bpe", "llama3"))
    special = Special(begin, tuple(end for end in ends if end is not None), begins)
    template = Values(file.path, file.metadata).get("tokenizer.chat_template", str, "") or None
    return Tokenizer(file.path, partial(vocabulary.built, file), config.vocabulary, template, special, file)


# ---- writing

#: Numbers of types, of values and of tensors.
_U32, _F32 = 4, 6
_NUMBERS = {name: number for number, (name, _, _) in TYPES.items()}
#: {format of most weights: general.file_type}.
_FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q4_k": 15, "q5_k": 17, "q6_k": 18, "bf16": 32}


def save(net: TrainedNet, config: LanguageConfig, path: str, quantization: str | None) -> None:
    """Writes the net: frozen weights as they came, vectors in float32, parameters that are matrices in `quantization`.

    SnapshotError for what cannot be written; the file is then as before.
    """
    found = [*_factors(config), *stored.weights(net, config, path, quantization, BLOCKS)]
    header = _header(net, config, found)
    total = len(header) + sum(weight.nbytes + _gap(weight.nbytes) for weight in found)
    with replacing(path) as file:
        output.write_all(file, header)
        for weight in found:
            with output.writing(weight.name, total):
                for blocks in _blocks(weight, config):
                    output.write_all(file, np.ascontiguousarray(blocks).reshape(-1).data)
                output.write_all(file, bytes(_gap(weight.nbytes)))


def _factors(config: LanguageConfig) -> Iterator[NetWeight]:
    """The tensor of factors of rotary frequencies, for a model that has such."""
    scaling = config.rotary_scaling
    if scaling is not None and scaling["rope_type"] != "linear":
        factors = rotary_factors(config, scaling)
        yield NetWeight(_FACTORS, Place(_FACTORS, "", factors.shape), lambda: factors, "", "f32")


def _blocks(weight: NetWeight, config: LanguageConfig) -> Iterator[ByteArray]:
    if weight.place.heads and config.architecture in _PAIRED:
        whole = np.concatenate(list(weight.rows()))
        yield stored.pairs(whole.reshape(weight.place.shape[0], -1), weight.place.heads)
    else:
        yield from weight.rows()


def _gap(size: int) -> int:
    """Bytes up to the next place for a tensor."""
    return -size % 32


def _header(net: TrainedNet, config: LanguageConfig, found: Sequence[NetWeight]) -> bytes:
    infos, offset = b"", 0
    for weight in found:
        shape = weight.place.shape
        infos += _text(weight.place.gguf) + pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        infos += pack("<IQ", _NUMBERS[weight.format], offset)
        offset += weight.nbytes + _gap(weight.nbytes)
    metadata = _metadata(net, config, found)
    header = MAGIC + pack("<IQQ", 3, len(found), len(metadata)) + b"".join(metadata) + infos
    return header + bytes(_gap(len(header)))


def _metadata(net: TrainedNet, config: LanguageConfig, found: Sequence[NetWeight]) -> list[bytes]:
    """All pairs: those of the file that the net came from, but for what follows from the net."""
    form, _ = Counter(weight.format for weight in found if len(weight.place.shape) > 1).most_common(1)[0]
    types = {"general.file_type": _FILE_TYPES[form], "general.quantization_version": 2}
    values = [*_values(config), *((key, _U32, value) for key, value in types.items())]
    tokenizer = getattr(net, "tokenizer", None)
    source = getattr(tokenizer, "source", None)
    if tokenizer is not None and source is None:
        values += vocabulary.metadata(tokenizer)
    own = {key: _pair(key, kind, value) for key, kind, value in values}
    if isinstance(source, GGUFFile):
        for key, (begin, end) in source.pairs.items():
            if key.startswith(("general.", "tokenizer.")) and key != ALIGNMENT:
                own.setdefault(key, source.data[begin:end].tobytes())
    return list(own.values())


def _values(config: LanguageConfig) -> Iterator[tuple[str, int, object]]:
    """Key, type and value of what the configuration says."""
    values = {theirs: getattr(config, ours) for ours, (_, theirs) in NAMES.items()} | {_WINDOW: config.window}
    values |= dict.fromkeys(("attention.value_length", "rope.dimension_count"), config.head_size)
    scaling = config.rotary_scaling
    if scaling is not None and scaling["rope_type"] == "linear":
        values |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(str(scaling["factor"]))}
    architecture = "llama" if config.architecture in _PAIRED else config.architecture
    yield "general.architecture", TEXT, architecture
    for name, value in values.items():
        if value is not None:
            kind = TEXT if isinstance(value, str) else _F32 if isinstance(value, float) else _U32
            yield f"{architecture}.{name}", kind, value


def _text(value: str) -> bytes:
    """A text as files have it: its size, and UTF-8."""
    data = value.encode()
    return pack("<Q", len(data)) + data


def _pair(key: str, kind: int, value: object) -> bytes:
    """A key and a value of this type; a list is an array of such."""
    many = value if isinstance(value, list) else [value]
    data = b"".join(map(_text, many)) if kind == TEXT else pack(f"<{len(many)}{LETTERS[kind]}", *many)
    head = pack("<IIQ", ARRAY, kind, len(many)) if isinstance(value, list) else pack("<I", kind)
    return _text(key) + head + data
