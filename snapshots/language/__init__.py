"""Language models: their configuration, files and tokenizers."""

from __future__ import annotations

import os

from singa_lite.common import checks
from singa_lite.snapshots.language.stored import StoredModel


def opened(path: str | os.PathLike[str]) -> StoredModel:
    """Reads a GGUF file or a folder of Hugging Face's, whose blocks are mapped. SnapshotError for what is neither."""
    name = checks.path("a language model", path)
    if os.path.isdir(name):
        from singa_lite.snapshots.language import hugging_face

        return hugging_face.read(name)
    from singa_lite.snapshots.language import gguf_model

    return gguf_model.read(name)
