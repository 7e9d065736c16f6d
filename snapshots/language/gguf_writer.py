"""Writes a net of a language model as a GGUF file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from struct import pack

import numpy as np

from singa_lite.common.atomic import replacing
from singa_lite.snapshots import output
from singa_lite.snapshots.language import vocabulary
from singa_lite.snapshots.language.config import LanguageConfig, rotary_factors
from singa_lite.snapshots.language.gguf_model import FACTORS, OTHERS, PAIRED, SIZES
from singa_lite.snapshots.language.stored import NetWeight, pairs, weights
from singa_lite.snapshots.readers.gguf import ALIGNMENT, ARRAY, BLOCKS, LETTERS, MAGIC, TEXT, TYPES, GGUFFile
from singa_lite.snapshots.readers.raw import ByteArray
from singa_lite.tensor import Shape
from singa_lite.training.trained_net import TrainedNet

#: Numbers of types, of values and of tensors.
_U32, _F32 = 4, 6
_NUMBERS = {name: number for number, (name, _, _) in TYPES.items()}
#: {format of most weights: general.file_type}.
_FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q4_k": 15, "q5_k": 17, "q6_k": 18, "bf16": 32}
_ALIGNED = 32


def save(net: TrainedNet, config: LanguageConfig, path: str, quantization: str | None) -> None:
    """Writes the net: frozen weights as they came, parameters in float32, matrices among them in `quantization`.

    SnapshotError for what cannot be written; the file is then as before.
    """
    found, factors = weights(net, config, path, quantization, BLOCKS), _factors(config)
    header = _header(net, config, found, factors)
    total = len(header) + len(_padded(factors)) + sum(_aligned(weight.nbytes) for weight in found)
    with replacing(path) as file:
        output.write_all(file, header + _padded(factors))
        for weight in found:
            with output.writing(weight.name, total):
                for blocks in _blocks(weight, config):
                    output.write_all(file, np.ascontiguousarray(blocks).reshape(-1).data)
                output.write_all(file, bytes(_aligned(weight.nbytes) - weight.nbytes))


def _factors(config: LanguageConfig) -> bytes:
    """The tensor of factors of rotary frequencies; nothing for a model without such."""
    scaling = config.rotary_scaling
    if scaling is None or scaling["rope_type"] == "linear":
        return b""
    return rotary_factors(config, scaling).astype("<f4").tobytes()


def _blocks(weight: NetWeight, config: LanguageConfig) -> Iterator[ByteArray]:
    if weight.place.heads and config.architecture in PAIRED:
        whole = np.concatenate(list(weight.rows()))
        yield pairs(whole.reshape(weight.place.shape[0], -1), weight.place.heads)
    else:
        yield from weight.rows()


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _padded(data: bytes) -> bytes:
    return data + bytes(_aligned(len(data)) - len(data))


# ---- the header


def _header(net: TrainedNet, config: LanguageConfig, found: Sequence[NetWeight], factors: bytes) -> bytes:
    entries: list[tuple[str, Shape, str, int]] = (
        [(FACTORS, (len(factors) // 4,), "f32", len(factors))] if factors else []
    )
    entries += [(weight.place.gguf, weight.place.shape, weight.format, weight.nbytes) for weight in found]
    infos, offset = b"", 0
    for name, shape, form, size in entries:
        infos += _text(name) + pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), _NUMBERS[form], offset)
        offset += _aligned(size)
    metadata = _metadata(net, config, found)
    return _padded(MAGIC + pack("<IQQ", 3, len(entries), len(metadata)) + b"".join(metadata) + infos)


def _metadata(net: TrainedNet, config: LanguageConfig, found: Sequence[NetWeight]) -> list[bytes]:
    """All pairs: those of the file that the net came from, but for what follows from the net."""
    form, _ = Counter(weight.format for weight in found if len(weight.place.shape) > 1).most_common(1)[0]
    values = [
        *_values(config),
        ("general.file_type", _U32, _FILE_TYPES[form]),
        ("general.quantization_version", _U32, 2),
    ]
    tokenizer = getattr(net, "tokenizer", None)
    source = getattr(tokenizer, "source", None)
    if tokenizer is not None and not isinstance(source, GGUFFile):
        values += vocabulary.metadata(tokenizer)
    own = {key: _pair(key, kind, value) for key, kind, value in values}
    if isinstance(source, GGUFFile):
        for key, (begin, end) in source.pairs.items():
            if key.startswith(("general.", "tokenizer.")) and key != ALIGNMENT:
                own.setdefault(key, source.data[begin:end].tobytes())
    return list(own.values())


def _values(config: LanguageConfig) -> Iterator[tuple[str, int, object]]:
    """Key, type and value of what the configuration says."""
    values = {theirs: getattr(config, ours) for ours, theirs in {**SIZES, **OTHERS}.items()}
    values |= dict.fromkeys(("attention.value_length", "rope.dimension_count"), config.head_size)
    values["vocab_size"] = config.vocabulary
    scaling = config.rotary_scaling
    if scaling is not None and scaling["rope_type"] == "linear":
        values |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(str(scaling["factor"]))}
    architecture = "llama" if config.architecture in PAIRED else config.architecture
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
    if isinstance(value, list):
        array = b"".join(map(_text, value)) if kind == TEXT else pack(f"<{len(value)}{LETTERS[kind]}", *value)
        return _text(key) + pack("<IIQ", ARRAY, kind, len(value)) + array
    return _text(key) + pack("<I", kind) + (_text(str(value)) if kind == TEXT else pack(f"<{LETTERS[kind]}", value))
