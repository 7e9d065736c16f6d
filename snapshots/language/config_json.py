"""config.json of Hugging Face's as a LanguageConfig, and the other way."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.language.config import (
    NAMES,
    LanguageConfig,
    Values,
    check_lacking,
    read_config,
    rotary_factors,
)
from singa_lite.snapshots.readers import raw

#: The scaling of all models of Llama 3, but for the factor.
_LLAMA3: dict[str, object] = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
#: Options that no layer has, and the value without effect.
_PLAIN = {"hidden_act": "silu", "mlp_bias": False, "attention_bias": False, "partial_rotary_factor": 1.0}


def read(path: str | os.PathLike[str]) -> LanguageConfig:
    """Returns the sizes and options of the model of a config.json. SnapshotError for a model that is not built here."""
    options = entries(path)
    values = Values(os.fsdecode(path), options)
    architecture = values.architecture("model_type")
    lacking = [
        f"{name} {str(options[name])[:50]!r}" for name, plain in _PLAIN.items() if options.get(name, plain) != plain
    ]
    packing = options.get("quantization_config")
    if packing and not (isinstance(packing, dict) and packing.get("bnb_4bit_quant_type") == "nf4"):
        lacking.append(f"quantization_config {str(packing)[:100]}")
    window = _window(values, architecture, lacking)
    check_lacking(values.path, lacking)
    return read_config(
        values,
        0,
        architecture,
        **_rotary(values),
        **({"head_size": 128} if architecture == "qwen3" else {}),
        epsilon=values.get("rms_norm_eps", float, 1e-6),
        biases=architecture == "qwen2",
        query_key_norm=architecture == "qwen3",
        window=window,
        tied=values.get("tie_word_embeddings", bool, False),
    )


def stored_format(path: str | os.PathLike[str]) -> str:
    """Returns the format of the matrices beside a config.json, as `models.load` has them: NF4 becomes Q8_0."""
    options = entries(path)
    names, dtype = {"bfloat16": "bf16", "float16": "f16"}, options.get("dtype", options.get("torch_dtype"))
    return "q8_0" if options.get("quantization_config") else names.get(str(dtype), "f32")


def entries(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the object in a file of JSON. SnapshotError for anything else."""
    with raw.reading(path) as file:
        return raw.load_json(file, "the file", file.read("the file", 0, file.size))


def _rotary(values: Values) -> dict[str, Any]:
    """Base and scaling, of which newer files have one object and older ones two entries."""
    both, old = (values.entries.get(name) or {} for name in ("rope_parameters", "rope_scaling"))
    if not isinstance(both, dict) or not isinstance(old, dict):
        raise SnapshotError(f"{values.path}: rope_parameters: wanted an object, received {str(both or old)[:100]}")
    base = Values(values.path, {"rope_theta": values.entries.get("rope_theta"), **both}).get(
        "rope_theta", float, 10000.0
    )
    scaling = {name: value for name, value in (both or old).items() if name != "rope_theta"}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    return {"rotary_base": base, "rotary_scaling": None if kind == "default" else scaling}


def _window(values: Values, architecture: str, lacking: list[str]) -> int | None:
    """How many keys a position sees. What differs between layers is put into `lacking`."""
    kinds = values.entries.get("layer_types")
    if isinstance(kinds, list) and len(set(map(str, kinds))) > 1:
        lacking.append("layer_types that differ")
    if architecture != "mistral" and not values.entries.get("use_sliding_window"):
        return None
    if architecture != "mistral" and values.get("max_window_layers", int, 0) > 0:
        lacking.append("max_window_layers")
    if values.entries.get("sliding_window", 0) is None:
        return None
    return values.get("sliding_window", int, 4096)


def written(path: str, config: LanguageConfig) -> dict[str, object]:
    """Returns the entries of config.json. SnapshotError for rotary factors that are not those of Llama 3."""
    kind = config.architecture
    scaling = dict(config.rotary_scaling or {"rope_type": "default"})
    if scaling["rope_type"] == "factors":  # GGUF files have these alone
        factors = rotary_factors(config, scaling)
        scaling = {**_LLAMA3, "factor": float(factors.max())}
        if not np.allclose(factors, rotary_factors(config, scaling), rtol=1e-5, atol=0):
            raise SnapshotError(f"{path}: wanted rotary factors of Llama 3 for config.json, received others")
    if (config.biases, config.query_key_norm) != (kind == "qwen2", kind == "qwen3"):
        raise SnapshotError(
            f"{path}: wanted biases of qwen2 and norms of queries and keys of qwen3, received others: {kind}"
        )
    if kind == "llama" and config.window is not None:
        raise SnapshotError(
            f"{path}: wanted a llama without a window, received one of {config.window}; mistral has one"
        )
    window = {"sliding_window": config.window}
    if kind != "mistral":
        window = {} if config.window is None else {**window, "use_sliding_window": True, "max_window_layers": 0}
    return {
        "architectures": [f"{kind.capitalize()}ForCausalLM"],
        "model_type": kind,
        **{theirs: getattr(config, ours) for ours, (theirs, _) in NAMES.items()},
        "hidden_act": "silu",
        "rope_parameters": {**scaling, "rope_theta": config.rotary_base},
        "tie_word_embeddings": config.tied,
        **window,
    }
