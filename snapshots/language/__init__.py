"""Language models: their configuration, files and tokenizers."""

from __future__ import annotations

import os
from typing import Any

from singa_lite.common import checks
from singa_lite.snapshots.language.config import LanguageConfig
from singa_lite.snapshots.language.names import places
from singa_lite.snapshots.language.stored import StoredModel
from singa_lite.snapshots.readers import gguf
from singa_lite.training.trained_net import TrainedNet


def opened(path: str | os.PathLike[str]) -> StoredModel:
    """Reads a GGUF file or a folder of Hugging Face's, whose blocks are mapped. SnapshotError for what is neither."""
    name = checks.path("a language model", path)
    if os.path.isdir(name):
        from singa_lite.snapshots.language import hugging_face

        return hugging_face.read(name)
    from singa_lite.snapshots.language import gguf_model

    return gguf_model.read(name)


def configuration(path: str | os.PathLike[str]) -> LanguageConfig:
    """Returns the sizes and options of a language model: of a GGUF file, a folder, or a config.json alone."""
    from singa_lite.snapshots.language import config_json, gguf_model

    name = checks.path("a language model", path)
    if os.path.isdir(name):
        name = os.path.join(name, "config.json")
    return config_json.read(name) if name.endswith(".json") else gguf_model.configuration(gguf.read(name))


def described(path: str | os.PathLike[str]) -> tuple[LanguageConfig, dict[str, str]]:
    """Returns a model's configuration and {parameter: its format}, without its weights.

    Of a GGUF file's header, of a folder, or of a config.json alone. SnapshotError for what is none of them.
    """
    from singa_lite.snapshots.language import config_json, gguf_model

    name, config = checks.path("a language model", path), configuration(path)
    if name.endswith(".json") or os.path.isdir(name):
        form = config_json.stored_format(name if name.endswith(".json") else os.path.join(name, "config.json"))
        return config, {each: form for each, _ in places(config)}
    return config, gguf_model.formats(gguf.read(name), config)


def is_model(path: object) -> bool:
    """Whether a path is one that `save` writes: a name that ends in .gguf, or a folder."""
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    return isinstance(name, str) and (name.lower().endswith(".gguf") or name.endswith("/") or os.path.isdir(name))


def save(net: TrainedNet, path: str | os.PathLike[str], quantization: Any = None) -> None:
    """Writes a net of `models.language_model` or `models.load`: a GGUF file, or else a folder of Hugging Face's.

    quantization: the format of matrices that are parameters of the net, "f32", "f16", "bf16", and of GGUF files
    "q4_0", "q4_1", "q8_0"; None: float32. SnapshotError for a net with other parameters, and what cannot be written.
    """
    name = checks.path("save", path)
    if name.lower().endswith(".gguf"):
        from singa_lite.snapshots.language import gguf_writer

        gguf_writer.save(net, name, quantization)
    else:
        from singa_lite.snapshots.language import hugging_face_writer

        hugging_face_writer.save(net, name, quantization)
