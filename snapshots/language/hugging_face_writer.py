"""Writes a net of a language model as a folder of Hugging Face's."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from singa_lite.common.atomic import replacing, write_anew
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots import output
from singa_lite.snapshots.language.config import LanguageConfig
from singa_lite.snapshots.language.net_weights import NetWeight, config_of, weights
from singa_lite.snapshots.language.tokenizer import Tokenizer
from singa_lite.snapshots.readers.raw import ByteArray
from singa_lite.training.trained_net import TrainedNet

#: {format: dtype in the file, bytes of a number}.
_DTYPES = {"f32": ("F32", 4), "f16": ("F16", 2), "bf16": ("BF16", 2)}
_CLASSES = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM"}


def save(net: TrainedNet, path: str, quantization: str | None = None) -> None:
    """Writes config.json, model.safetensors and the files of the tokenizer; the folder is made where there is none.

    quantization: "f16", "bf16" or None for float32, of all matrices but frozen ones in these formats, which go out as
    they came. SnapshotError for what cannot be written; each file is whole or as before.
    """
    if quantization is not None and quantization not in _DTYPES:
        wanted = f"None or one of {', '.join(_DTYPES)}, as Hugging Face has no other"
        raise SnapshotError(f"{path}: quantization: wanted {wanted}, received {quantization!r:.100}")
    config = config_of(net, path)
    options = config_json(path, config)
    found = weights(net, path, quantization, ("f16", "bf16"))
    tokenizer = getattr(net, "tokenizer", None)
    tokenizer = tokenizer if isinstance(tokenizer, Tokenizer) else None
    texts = {} if tokenizer is None else _tokenizer_files(tokenizer)
    if tokenizer is not None:
        ends = list(tokenizer.stop_ids)
        options |= {"bos_token_id": tokenizer.begin_id, "eos_token_id": tokenizer.end_id}
        texts["generation_config.json"] = _text({"eos_token_id": ends, "bos_token_id": tokenizer.begin_id})
    os.makedirs(path, exist_ok=True)
    _write_weights(os.path.join(path, "model.safetensors"), found, config)
    for name, text in {**texts, "config.json": _text(options)}.items():
        write_anew(os.path.join(path, name), text)


def _text(options: Mapping[str, object]) -> str:
    return json.dumps(options, indent=2, ensure_ascii=False) + "\n"


def _write_weights(path: str, found: Sequence[NetWeight], config: LanguageConfig) -> None:
    groups: dict[str, list[NetWeight]] = {}
    for weight in found:
        groups.setdefault(weight.place.hugging_face, []).append(weight)
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, group in groups.items():
        first, begin = group[0], end
        shape = (first.place.whole or first.place.shape[0], *first.place.shape[1:])
        end += sum(weight.nbytes for weight in group)
        entries[f"transformer.{name}" if config.architecture == "gpt2" and name != "lm_head.weight" else name] = {
            "dtype": _DTYPES[first.format][0],
            "shape": shape[::-1] if first.place.is_turned else shape,
            "data_offsets": [begin, end],
        }
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with replacing(path) as file:
        output.write_all(file, len(header).to_bytes(8, "little") + header)
        for name, group in groups.items():
            with output.writing(name, 8 + len(header) + end):
                for blocks in _blocks(group):
                    output.write_all(file, np.ascontiguousarray(blocks).reshape(-1).data)


def _blocks(group: Sequence[NetWeight]) -> Iterator[ByteArray]:
    """The bytes of an array, one part after the other; of one that lies the other way there, at once."""
    rows = (blocks for weight in group for blocks in weight.rows())
    first = group[0]
    if not first.place.is_turned:
        yield from rows
        return
    whole = np.concatenate(list(rows))
    yield whole.reshape(len(whole), -1, _DTYPES[first.format][1]).swapaxes(0, 1)


def config_json(path: str, config: LanguageConfig) -> dict[str, object]:
    """Returns the entries of config.json. SnapshotError for rotary factors, for which it has no form."""
    kind = config.architecture
    found: dict[str, object] = {
        "architectures": [_CLASSES.get(kind, f"{kind.capitalize()}ForCausalLM")],
        "model_type": kind,
        "vocab_size": config.vocabulary,
        "tie_word_embeddings": config.tied,
    }
    if kind == "gpt2":
        sizes = {
            "n_embd": config.width,
            "n_layer": config.layers,
            "n_head": config.heads,
            "n_positions": config.context,
        }
        return {**found, **sizes, "n_inner": config.hidden_size, "layer_norm_epsilon": config.epsilon}
    scaling = dict(config.rotary_scaling or {"rope_type": "default"})
    if scaling["rope_type"] == "factors":
        raise SnapshotError(f"{path}: wanted rotary scaling that config.json can say, received a factor each")
    found |= {
        "hidden_size": config.width, "num_hidden_layers": config.layers, "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads, "head_dim": config.head_size, "intermediate_size": config.hidden_size,
        "max_position_embeddings": config.context, "rms_norm_eps": config.epsilon, "hidden_act": "silu",
        "rope_theta": config.rotary_base, "rope_parameters": {**scaling, "rope_theta": config.rotary_base},
    }  # fmt: skip
    if kind == "mistral" or config.window is not None:
        found |= {"sliding_window": config.window}
    if kind != "mistral" and config.window is not None:
        found |= {"use_sliding_window": True, "max_window_layers": 0}
    return found


def _tokenizer_files(tokenizer: Tokenizer) -> dict[str, str]:
    options = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokenizer.name_of(tokenizer.begin_id),
        "eos_token": tokenizer.name_of(tokenizer.end_id),
        "add_bos_token": tokenizer.special.adds_begin,
        "clean_up_tokenization_spaces": False,
        "chat_template": tokenizer.template,
    }
    present = {name: value for name, value in options.items() if value is not None}
    return {"tokenizer.json": tokenizer.inner.to_str(pretty=True), "tokenizer_config.json": _text(present)}
