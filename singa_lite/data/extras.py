"""Libraries that only some data need, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def require(where: str, name: str) -> ModuleType:
    """The module. ImportError that names the extra which brings it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{where}: wanted {name}, which pip install 'singa-lite[data]' brings, received: {error}"
        ) from error
