"""Reads config.json of Hugging Face's into a LanguageConfig."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.language.config import ARCHITECTURES, LanguageConfig
from singa_lite.snapshots.readers import raw
from singa_lite.snapshots.readers.raw import Json

T = TypeVar("T", int, float, str, bool)

#: {our name: GPT-2's, and all others'}.
_SIZES = {
    "width": ("n_embd", "hidden_size"),
    "layers": ("n_layer", "num_hidden_layers"),
    "heads": ("n_head", "num_attention_heads"),
    "vocabulary": ("vocab_size", "vocab_size"),
    "context": ("n_positions", "max_position_embeddings"),
}
#: Options that no layer has, and the values without effect.
_PLAIN: dict[str, tuple[Json, ...]] = {
    "hidden_act": ("silu",),
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "mlp_bias": (False,),
    "attention_bias": (False,),
    "partial_rotary_factor": (1, None),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
}


def read(path: str | os.PathLike[str]) -> LanguageConfig:
    """Returns the sizes and options of the model of a config.json. SnapshotError for a model that is not built here."""
    with raw.reading(path) as file:
        options = raw.load_json(file, "the file", file.read("the file", 0, file.size))
    values = _Values(os.fsdecode(path), options)
    architecture = values.get("model_type", str)
    if architecture not in ARCHITECTURES:
        wanted = ", ".join(ARCHITECTURES)
        raise SnapshotError(f"{values.path}: wanted a model_type of {wanted}, received {architecture[:100]!r}")
    lacking = [
        f"{name} {str(options[name])[:50]!r}"
        for name, plain in _PLAIN.items()
        if options.get(name, plain[0]) not in plain
    ]
    packing = values.options.get("quantization_config")
    if packing and not (isinstance(packing, dict) and packing.get("bnb_4bit_quant_type") == "nf4"):
        lacking.append(f"quantization_config {str(packing)[:100]}")
    rotary = _rotary(values, architecture)
    window = _window(values, architecture, lacking)
    if lacking:
        raise SnapshotError(f"{values.path}: wanted a model of what this version has, received {'; '.join(lacking)}")
    is_gpt2 = architecture == "gpt2"
    sizes: dict[str, Any] = {ours: values.get(theirs[not is_gpt2], int) for ours, theirs in _SIZES.items()}
    norm = ("layer_norm_epsilon", 1e-5) if is_gpt2 else ("rms_norm_eps", 1e-6)
    hidden = ("n_inner", 4 * sizes["width"]) if is_gpt2 else ("intermediate_size", None)
    head_size = 128 if architecture == "qwen3" else sizes["width"] // max(1, sizes["heads"])
    try:
        return LanguageConfig(
            architecture=architecture,
            **sizes,
            **rotary,
            kv_heads=values.get("num_key_value_heads", int, sizes["heads"]),
            head_size=values.get("head_dim", int, head_size),
            hidden_size=values.get(hidden[0], int, hidden[1]),
            epsilon=values.get(norm[0], float, norm[1]),
            biases=architecture == "qwen2",
            query_key_norm=architecture == "qwen3",
            window=window,
            tied=values.get("tie_word_embeddings", bool, is_gpt2),
        )
    except (ValueError, TypeError) as error:
        raise SnapshotError(f"{values.path}: {error}") from error


class _Values:
    """The entries of the file."""

    def __init__(self, path: str, options: Mapping[str, Json]) -> None:
        self.path, self.options = path, options

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        """A value. SnapshotError for one that is not there and has no default, or is of another kind."""
        found = self.options.get(name)
        found = default if found is None else found
        if kind is float and type(found) is int:
            found = float(found)
        if type(found) is not kind:
            received = "none of that name" if found is None else str(found)[:100]
            raise SnapshotError(f"{self.path}: {name}: wanted {kind.__name__}, received {received}")
        return found


def _rotary(values: _Values, architecture: str) -> dict[str, Any]:
    """Base and scaling, of which newer files have one object and older ones two entries."""
    if architecture == "gpt2":
        return {}
    both = values.options.get("rope_parameters") or {}
    old = values.options.get("rope_scaling") or {}
    if not isinstance(both, dict) or not isinstance(old, dict):
        raise SnapshotError(f"{values.path}: rope_parameters: wanted an object, received {str(both or old)[:100]}")
    base = _Values(f"{values.path}: rope_parameters", both).get("rope_theta", float, -1.0)
    base = values.get("rope_theta", float, 10000.0) if base == -1.0 else base
    scaling: dict[str, object] = {name: value for name, value in (both or old).items() if name != "rope_theta"}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    return {"rotary_base": base, "rotary_scaling": None if kind == "default" else scaling}


def _window(values: _Values, architecture: str, lacking: list[str]) -> int | None:
    """How many keys a position sees. What differs between layers is put into `lacking`."""
    kinds = values.options.get("layer_types")
    if isinstance(kinds, list) and len(set(map(str, kinds))) > 1:
        lacking.append("layer_types that differ")
    if architecture == "mistral":
        found = values.options.get("sliding_window", 4096)
    elif values.options.get("use_sliding_window"):
        found = values.options.get("sliding_window", 4096)
        if values.get("max_window_layers", int, 0) > 0:
            lacking.append("max_window_layers")
    else:
        found = None
    if found is not None and type(found) is not int:
        raise SnapshotError(f"{values.path}: sliding_window: wanted a number or null, received {str(found)[:100]}")
    return found
