"""Reads and writes folders of Hugging Face's: config.json, safetensors, tokenizer.json, chat template."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.atomic import replacing, write_anew
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots import output
from singa_lite.snapshots.language import config_json, nf4
from singa_lite.snapshots.language.config import LanguageConfig, check_lacking
from singa_lite.snapshots.language.names import Place, places
from singa_lite.snapshots.language.stored import NetWeight, StoredModel, StoredWeight, check_shape, quantized, weights
from singa_lite.snapshots.language.tokenizer import Special, Tokenizer
from singa_lite.snapshots.readers import raw, safetensors
from singa_lite.snapshots.readers.raw import ByteArray
from singa_lite.snapshots.readers.safetensors import TensorInfo
from singa_lite.training.trained_net import TrainedNet

if TYPE_CHECKING:
    import tokenizers

ONE, INDEX, TEMPLATE = "model.safetensors", "model.safetensors.index.json", "chat_template.jinja"
#: {format: dtype in the file}, which is the format in capitals.
_DTYPES = {form: form.upper() for form in ("f32", "f16", "bf16")}


def read(folder: str) -> StoredModel:
    """Reads a folder; weights are mapped. SnapshotError for a damaged file, and one for all that is not here."""
    config = config_json.read(os.path.join(folder, "config.json"))
    arrays, found = dict(_arrays(folder)), {}
    lacking, used = [], {"lm_head.weight"} if config.tied else set()
    for name, place in places(config):
        stored_as = place.hugging_face
        info, data = arrays.get(stored_as, (None, None))
        used.add(stored_as)
        if stored_as + nf4.STATE in arrays:
            used.update(stored_as + beside for beside in nf4.BESIDE)
            found[name] = _converted(folder, place, nf4.numbers(folder, stored_as, arrays))
            continue
        check_shape(folder, stored_as, place.shape, None if info is None else info.shape)
        if info is None or data is None or info.code not in _DTYPES.values():
            lacking.append(f"tensor {stored_as!r} in {info and info.code} (here: {', '.join(_DTYPES.values())})")
            continue
        rows = place.shape[0] if len(place.shape) == 2 else 1
        found[name] = StoredWeight(info.code.lower(), place.shape, data.reshape(rows, -1))
    lacking += [f"tensor {name!r}" for name in arrays if name not in used and not name.endswith("rotary_emb.inv_freq")]
    check_lacking(folder, lacking)
    return StoredModel(config, found, _tokenizer(folder, config))


def _converted(folder: str, place: Place, numbers: NDArray[np.float32]) -> StoredWeight:
    """A weight in q8_0, of which frozen weights may be, or in f16 where its rows are no whole blocks."""
    check_shape(folder, place.hugging_face, place.shape, numbers.shape)
    form = "q8_0" if numbers.shape[1] % 32 == 0 else "f16"
    return StoredWeight(form, place.shape, quantized(numbers, form))


def _arrays(folder: str) -> Iterator[tuple[str, tuple[TensorInfo, ByteArray]]]:
    """Of all files, by name: an array's entry, and its bytes."""
    for file in _files(folder):
        path = os.path.join(folder, file)
        with raw.reading(path) as opened:
            header = safetensors.read(opened)
            empty = opened.size == header.start
        data = np.empty(0, np.uint8) if empty else np.asarray(np.memmap(path, np.uint8, "r"))
        for name, info in header.entries.items():
            yield name, (info, data[header.start + info.begin : header.start + info.end])


def _files(folder: str) -> list[str]:
    if not os.path.exists(os.path.join(folder, INDEX)):
        return [ONE]
    index = _json(folder, INDEX).get("weight_map")
    if not isinstance(index, dict) or not all(isinstance(name, str) for name in index.values()):
        raise SnapshotError(f"{folder}: {INDEX}: wanted a weight_map of names of files, received something else")
    files = sorted({str(name) for name in index.values()})
    for name in files:
        if os.path.basename(name) != name or not name.endswith(".safetensors"):
            raise SnapshotError(f"{folder}: {INDEX}: wanted files of this folder, received {name[:100]!r}")
    return files


# ---- the tokenizer


def _json(folder: str, name: str) -> dict[str, Any]:
    """The object in a file of JSON, empty where there is no such file."""
    path = os.path.join(folder, name)
    return config_json.entries(path) if os.path.exists(path) else {}


def _tokenizer(folder: str, config: LanguageConfig) -> Tokenizer | None:
    path = os.path.join(folder, "tokenizer.json")
    if not os.path.exists(path):
        return None
    options = _json(folder, "tokenizer_config.json")
    begin, end = (_content(options.get(key)) for key in ("bos_token", "eos_token"))
    ends: tuple[int | str, ...] = () if end is None else (end,)
    for name in ("generation_config.json", "config.json"):
        ends += _ids(_json(folder, name).get("eos_token_id"), config)
    special = Special(begin, ends, options.get("add_bos_token") is True)
    return Tokenizer(folder, partial(_built, path), config.vocabulary, _template(folder, options), special)


def _built(path: str) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer as Inner

    with raw.reading(path) as file:
        text = file.read("the file", 0, file.size).tobytes()
    try:
        return Inner.from_str(text.decode())
    except Exception as error:  # the package has no classes of its own for its errors
        raise SnapshotError(f"{path}: wanted a tokenizer, received {str(error)[:200]}") from error


def _content(given: Any) -> str | None:
    """The text of a token, which may be an object."""
    found = given.get("content") if isinstance(given, dict) else given
    return found if isinstance(found, str) else None


def _ids(given: Any, config: LanguageConfig) -> tuple[int, ...]:
    numbers = given if isinstance(given, list) else [given]
    return tuple(number for number in numbers if type(number) is int and 0 <= number < config.vocabulary)


def _template(folder: str, options: Mapping[str, Any]) -> str | None:
    """Of chats: in a file of its own, or among the options, where there may be several by name."""
    path = os.path.join(folder, TEMPLATE)
    if os.path.exists(path):
        with raw.reading(path) as file:
            return file.read("the file", 0, file.size).tobytes().decode("utf-8", "replace")
    given = options.get("chat_template")
    if isinstance(given, list):
        named = {each["name"]: each.get("template") for each in given if isinstance(each, dict) and "name" in each}
        given = named.get("default")
    return given if isinstance(given, str) else None


# ---- writing


def save(net: TrainedNet, config: LanguageConfig, path: str, quantization: str | None) -> None:
    """Writes config.json, model.safetensors and the files of the tokenizer; the folder is made where there is none.

    quantization: "f16", "bf16" or None for that of the net, of all matrices but frozen ones in these formats, which go
    out as they came. SnapshotError for what cannot be written; each file is whole or as before.
    """
    found = weights(net, config, path, quantization, _DTYPES)
    files = {"config.json": config_json.written(path, config)}
    tokenizer, texts = getattr(net, "tokenizer", None), dict[str, str]()
    if isinstance(tokenizer, Tokenizer):
        ids = {"bos_token_id": tokenizer.begin_id, "eos_token_id": tokenizer.end_id}
        files["config.json"] |= ids
        files["generation_config.json"] = {**ids, "eos_token_id": list(tokenizer.stop_ids)}
        files["tokenizer_config.json"] = _options(tokenizer)
        texts = {"tokenizer.json": tokenizer.inner.to_str(pretty=True)}
        texts |= {} if tokenizer.template is None else {TEMPLATE: tokenizer.template}
    if os.path.exists(os.path.join(path, INDEX)):
        raise SnapshotError(f"{path}: wanted a folder of one file of weights or a new one, received one with {INDEX}")
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise SnapshotError(f"{path}: wanted a folder to write into, received none: {error}") from error
    _write_weights(os.path.join(path, ONE), found)
    texts |= {name: json.dumps(options, indent=2, ensure_ascii=False) + "\n" for name, options in files.items()}
    for name, text in texts.items():
        write_anew(os.path.join(path, name), text)


def _write_weights(path: str, found: Sequence[NetWeight]) -> None:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for weight in found:
        begin, end = end, end + weight.nbytes
        entry = {"dtype": _DTYPES[weight.format], "shape": weight.place.shape, "data_offsets": [begin, end]}
        entries[weight.place.hugging_face] = entry
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    with replacing(path) as file:
        output.write_all(file, header)
        for weight in found:
            with output.writing(weight.name, len(header) + end):
                for blocks in weight.rows():
                    output.write_all(file, np.ascontiguousarray(blocks).reshape(-1).data)


def _options(tokenizer: Tokenizer) -> dict[str, object]:
    """The entries of tokenizer_config.json."""
    options = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokenizer.name_of(tokenizer.begin_id),
        "eos_token": tokenizer.name_of(tokenizer.end_id),
        "add_bos_token": tokenizer.special.adds_begin,
        "clean_up_tokenization_spaces": False,
    }
    return {name: value for name, value in options.items() if value is not None}
