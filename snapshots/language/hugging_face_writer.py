"""Writes a net of a language model as a folder of Hugging Face's."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import numpy as np

from singa_lite.common.atomic import replacing, write_anew
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots import output
from singa_lite.snapshots.language import config_json
from singa_lite.snapshots.language.hugging_face import INDEX, ONE, TEMPLATE
from singa_lite.snapshots.language.net_weights import NetWeight, config_of, weights
from singa_lite.snapshots.language.tokenizer import Tokenizer
from singa_lite.training.trained_net import TrainedNet

#: {format: dtype in the file}.
DTYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16"}


def save(net: TrainedNet, path: str, quantization: str | None = None) -> None:
    """Writes config.json, model.safetensors and the files of the tokenizer; the folder is made where there is none.

    quantization: "f16", "bf16" or None for float32, of all matrices but frozen ones in these formats, which go out as
    they came. SnapshotError for what cannot be written; each file is whole or as before.
    """
    if quantization is not None and quantization not in DTYPES:
        wanted = f"None or one of {', '.join(DTYPES)}, as Hugging Face has no other"
        raise SnapshotError(f"{path}: quantization: wanted {wanted}, received {quantization!r:.100}")
    config = config_of(net, path)
    files = {"config.json": config_json.written(path, config)}
    found = weights(net, path, quantization, ("f16", "bf16"))
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
    os.makedirs(path, exist_ok=True)
    _write_weights(os.path.join(path, ONE), found)
    texts |= {name: json.dumps(options, indent=2, ensure_ascii=False) + "\n" for name, options in files.items()}
    for name, text in texts.items():
        write_anew(os.path.join(path, name), text)


def _write_weights(path: str, found: Sequence[NetWeight]) -> None:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for weight in found:
        begin, end = end, end + weight.nbytes
        entry = {"dtype": DTYPES[weight.format], "shape": weight.place.shape, "data_offsets": [begin, end]}
        entries[weight.place.hugging_face] = entry
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with replacing(path) as file:
        output.write_all(file, len(header).to_bytes(8, "little") + header)
        for weight in found:
            with output.writing(weight.name, 8 + len(header) + end):
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
