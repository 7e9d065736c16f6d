"""A net by the name of the function that makes it, as commands are given it: MODULE:FUNCTION, or SCRIPT:FUNCTION."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from singa_lite.net.feed_forward_net import FeedForwardNet

WANTED = "MODULE:FUNCTION"


def net_of(function: str, *arguments: object) -> FeedForwardNet:
    """What "MODULE:FUNCTION", or "path/to/script.py:FUNCTION", returns of these arguments. ValueError unless it is a
    net, which names what failed.
    """
    module, _, name = function.rpartition(":")
    if not module or not name:
        raise ValueError(f"wanted {WANTED}, received {function!r}")
    try:
        found = getattr(_imported(module), name, None)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{function}: cannot import {module!r}: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ValueError(f"{function}: wanted a function {name!r} in the module, received {found!r:.80}")
    try:
        net = found(*arguments)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{function}: {name}() failed: {type(error).__name__}: {error}") from error
    if not isinstance(net, FeedForwardNet):
        raise ValueError(f"{function}: wanted a FeedForwardNet from {name}(), received {type(net).__name__}")
    return net


def _imported(module: str) -> ModuleType:
    """A module by its name; a script, which ends in .py, by its path, and what lies beside it can be imported too."""
    if not module.endswith(".py"):
        return import_module(module)
    path = Path(module).resolve()
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"wanted a script, received {module!r}")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    made = module_from_spec(spec)
    before = sys.modules.get(path.stem)
    sys.modules[path.stem] = made  # as pickles and dataclasses of the script look for it
    try:
        spec.loader.exec_module(made)
    except BaseException:
        if before is None:
            del sys.modules[path.stem]
        else:
            sys.modules[path.stem] = before
        raise
    return made
