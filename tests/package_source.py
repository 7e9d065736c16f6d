"""The modules of the package under test, found beside its own `__init__.py`, installed or not; scripts as modules."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import singa_lite

PACKAGE = "singa_lite"


def module_files() -> dict[str, Path]:
    """Source files by full module name. Links are followed: `layers` and `snapshots` may be such."""
    root = Path(singa_lite.__file__).parent
    files = {}
    for folder, _, names in os.walk(root, followlinks=True):
        for name in names:
            path = Path(folder, name)
            if path.suffix == ".py":
                files[_module_name(path.relative_to(root))] = path
    return dict(sorted(files.items()))


def script(path: Path) -> ModuleType:
    """A script that lies in no package, run as a module of its name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def _module_name(path: Path) -> str:
    parts = path.parts[:-1] if path.name == "__init__.py" else (*path.parts[:-1], path.stem)
    return ".".join((PACKAGE, *parts))
