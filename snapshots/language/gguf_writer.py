"""Writes a net of a language model as a GGUF file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from struct import pack

import numpy as np

from singa_lite.common.atomic import replacing
from singa_lite.snapshots import output
from singa_lite.snapshots.language import gguf_tokens
from singa_lite.snapshots.language.config import LanguageConfig
from singa_lite.snapshots.language.net_weights import NetWeight, config_of, weights
from singa_lite.snapshots.language.stored import pairs
from singa_lite.snapshots.readers.gguf import ALIGNMENT, ARRAY, BLOCKS, LETTERS, MAGIC, TEXT, TYPES, GGUFFile
from singa_lite.snapshots.readers.raw import ByteArray
from singa_lite.training.trained_net import TrainedNet

#: Numbers of types, of values and of tensors.
_U32, _I32, _F32, _BOOL = 4, 5, 6, 7
_NUMBERS = {name: number for number, (name, _, _) in TYPES.items()}
#: {format of most weights: general.file_type}.
_FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q4_k": 15, "q5_k": 17, "q6_k": 18, "bf16": 32}
_ALIGNED = 32


def save(net: TrainedNet, path: str, quantization: str | None = None) -> None:
    """Writes the net: frozen weights as they came, parameters in float32, matrices among them in `quantization`.

    SnapshotError for what cannot be written; the file is then as before.
    """
    config = config_of(net, path)
    found = [*joined(weights(net, path, quantization, tuple(BLOCKS)))]
    extra = factors(config)
    header = _header(net, config, found, extra)
    total = len(header) + sum(_padded(_size(group)) for group in found)
    with replacing(path) as file:
        _write(file, header)
        for array in extra.values():
            _write(file, array.tobytes())
        for group in found:
            with output.writing(group[0].name, total):
                for blocks in _blocks(group, config):
                    output.write_all(file, np.ascontiguousarray(blocks).reshape(-1).data)
                output.write_all(file, bytes(_padded(_size(group)) - _size(group)))


def joined(found: Sequence[NetWeight]) -> Iterator[list[NetWeight]]:
    """Yields weights in groups, each of which is one tensor of a file."""
    groups: dict[str, list[NetWeight]] = {}
    for weight in found:
        groups.setdefault(weight.place.gguf, []).append(weight)
    yield from groups.values()


def factors(config: LanguageConfig) -> dict[str, np.ndarray]:
    """Returns the tensor of factors of rotary frequencies, of a model that has such."""
    scaling = config.rotary_scaling
    if scaling is None or scaling["rope_type"] == "linear":
        return {}
    from singa_lite.layers.rotary_scaling import scaled_rates

    rates = config.rotary_base ** (-np.arange(0, config.head_size, 2) / config.head_size)
    return {"rope_freqs.weight": (rates / scaled_rates("save", rates, scaling)).astype("<f4")}


def _blocks(group: Sequence[NetWeight], config: LanguageConfig) -> Iterator[ByteArray]:
    for weight in group:
        if weight.place.heads and config.architecture == "llama":
            whole = np.concatenate(list(weight.rows()))
            if len(weight.place.shape) == 1:
                whole = whole.reshape(weight.place.shape[0], -1)
            yield pairs(whole, weight.place.heads)
        else:
            yield from weight.rows()


def _size(group: Sequence[NetWeight]) -> int:
    return sum(weight.nbytes for weight in group)


def _padded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _write(file: FileIO, data: bytes) -> None:
    output.write_all(file, data + bytes(_padded(len(data)) - len(data)))


# ---- the header


def _header(
    net: TrainedNet, config: LanguageConfig, found: Sequence[list[NetWeight]], extra: Mapping[str, np.ndarray]
) -> bytes:
    metadata = _metadata(net, config, found)
    infos, offset = [], 0
    for name, array in extra.items():
        infos.append(_info(name, array.shape, "f32", offset))
        offset += _padded(array.nbytes)
    for group in found:
        first = group[0]
        shape = (first.place.whole or first.place.shape[0], *first.place.shape[1:])
        infos.append(_info(first.place.gguf, shape, first.format, offset))
        offset += _padded(_size(group))
    counts = MAGIC + pack("<IQQ", 3, len(infos), len(metadata))
    data = counts + b"".join(metadata) + b"".join(infos)
    return data + bytes(_padded(len(data)) - len(data))


def _info(name: str, shape: Sequence[int], form: str, offset: int) -> bytes:
    extents = pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
    return text(name) + extents + pack("<IQ", _NUMBERS[form], offset)


def _metadata(net: TrainedNet, config: LanguageConfig, found: Sequence[list[NetWeight]]) -> list[bytes]:
    """All pairs: those of the file that the net came from, but for what follows from the net."""
    forms = Counter(weight.format for group in found for weight in group if len(weight.place.shape) > 1)
    own = {"general.architecture": pair("general.architecture", TEXT, config.architecture)}
    own |= {key: pair(key, kind, value) for key, kind, value in _sizes(config)}
    own["general.file_type"] = pair("general.file_type", _U32, _FILE_TYPES[forms.most_common(1)[0][0]])
    own["general.quantization_version"] = pair("general.quantization_version", _U32, 2)
    tokenizer = getattr(net, "tokenizer", None)
    source = getattr(tokenizer, "source", None)
    if isinstance(source, GGUFFile):
        for key, (begin, end) in source.pairs.items():
            if key.startswith(("general.", "tokenizer.")) and key != ALIGNMENT:
                own.setdefault(key, source.data[begin:end].tobytes())
    elif tokenizer is not None:
        own |= {key: pair(key, kind, value) for key, kind, value in gguf_tokens.metadata(tokenizer)}
    return list(own.values())


def _sizes(config: LanguageConfig) -> Iterator[tuple[str, int, object]]:
    """Of the architecture."""
    is_gpt2 = config.architecture == "gpt2"
    norm = "attention.layer_norm_epsilon" if is_gpt2 else "attention.layer_norm_rms_epsilon"
    values: dict[str, int | float | str] = {
        "block_count": config.layers, "context_length": config.context, "embedding_length": config.width,
        "feed_forward_length": config.hidden_size, "attention.head_count": config.heads, norm: config.epsilon,
        "vocab_size": config.vocabulary,
    }  # fmt: skip
    if not is_gpt2:
        values |= {"attention.head_count_kv": config.kv_heads, "rope.freq_base": config.rotary_base}
        values |= {"rope.dimension_count": config.head_size, "attention.key_length": config.head_size}
        values["attention.value_length"] = config.head_size
    if config.window is not None:
        values["attention.sliding_window"] = config.window
    scaling = config.rotary_scaling
    if scaling is not None and scaling["rope_type"] == "linear":
        values |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(str(scaling["factor"]))}
    for name, value in values.items():
        kind = TEXT if isinstance(value, str) else _F32 if isinstance(value, float) else _U32
        yield f"{config.architecture}.{name}", kind, value


def text(value: str) -> bytes:
    """Returns a text as files have it: its size, and UTF-8."""
    data = value.encode()
    return pack("<Q", len(data)) + data


def pair(key: str, kind: int, value: object) -> bytes:
    """Returns a key and a value of this type; a list is an array of such."""
    if isinstance(value, list):
        array = b"".join(map(text, value)) if kind == TEXT else pack(f"<{len(value)}{LETTERS[kind]}", *value)
        return text(key) + pack("<IIQ", ARRAY, kind, len(value)) + array
    return text(key) + pack("<I", kind) + (text(str(value)) if kind == TEXT else pack(f"<{LETTERS[kind]}", value))
