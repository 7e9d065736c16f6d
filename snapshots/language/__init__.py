"""Language models: their configuration, files and tokenizers."""

from __future__ import annotations

import os
from typing import Any

from singa_lite.common import checks
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.language import config_json, gguf_model, hugging_face
from singa_lite.snapshots.language.config import IN_FILES, LanguageConfig
from singa_lite.snapshots.language.names import places
from singa_lite.snapshots.language.stored import StoredModel
from singa_lite.training.trained_net import TrainedNet


def opened(path: str | os.PathLike[str]) -> StoredModel:
    """Reads a GGUF file or a folder of Hugging Face's, whose blocks are mapped. SnapshotError for what is neither."""
    name = checks.path("load path", path)
    return hugging_face.read(name) if os.path.isdir(name) else gguf_model.read(name)


def described(path: str | os.PathLike[str]) -> tuple[LanguageConfig, dict[str, str]]:
    """Returns a model's configuration and {parameter: its format}: of a GGUF file, a folder, or a config.json alone."""
    name = checks.path("load path", path)
    name = os.path.join(name, "config.json") if os.path.isdir(name) else name
    if not name.endswith(".json"):
        stored = gguf_model.read(name)
        return stored.config, {each: weight.format for each, weight in stored.weights.items()}
    config, form = config_json.read(name), config_json.stored_format(name)
    return config, {each: form for each, _ in places(config)}


def is_model(path: object) -> bool:
    """Whether a path is one that `save` writes: a name that ends in .gguf, or a folder."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    return isinstance(name, str) and (name.lower().endswith(".gguf") or name.endswith("/") or os.path.isdir(name))


def save(net: TrainedNet, path: str | os.PathLike[str], quantization: Any = None, **options: object) -> None:
    """Writes a net of `models.language_model` or `models.load`: a GGUF file, or else a folder of Hugging Face's.

    quantization: the format of matrices that are parameters of the net, "f32", "f16", "bf16", and of GGUF files
    "q4_0", "q4_1", "q8_0"; None: float32, or bfloat16 where the net has that.
    SnapshotError for a net with other parameters, and what cannot be written.
    """
    name, config = checks.path("save", path), getattr(net, "language", None)
    if options:
        raise TypeError(f"{name}: wanted options of a language model, ['quantization'], received {sorted(options)}")
    if not isinstance(config, LanguageConfig):
        raise SnapshotError(f"{name}: wanted a net of models.language_model or models.load, received another")
    if config.architecture not in IN_FILES:
        raise SnapshotError(
            f"{name}: wanted one of {', '.join(IN_FILES)}, received {config.architecture}, whose files snapshots.maps "
            "has"
        )
    (gguf_model if name.lower().endswith(".gguf") else hugging_face).save(net, config, name, quantization)
