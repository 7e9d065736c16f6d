"""The benchmarks' modules, which are no package: imported from their folder, and forgotten after the tests."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"


@contextmanager
def benchmark_modules() -> Iterator[Callable[[str], Any]]:
    """Inside, a function that imports a module of the folder by name. Others of those names (`nets`) wait meanwhile."""
    own = {path.stem for path in FOLDER.iterdir()}
    set_aside = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in own}
    before = set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module
    finally:
        sys.path.remove(str(FOLDER))
        for name in set(sys.modules) - before:
            if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
        sys.modules.update(set_aside)
