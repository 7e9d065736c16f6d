"""Snapshots: a net and its optimizer in a file, and back; checkpoints of a training run. All formats hold one tree."""

from importlib import import_module
from typing import TYPE_CHECKING

from singa_lite.snapshots.formats import load as load
from singa_lite.snapshots.formats import save as save

if TYPE_CHECKING:
    from singa_lite.snapshots import maps as maps
    from singa_lite.snapshots.checkpoints import checkpoint as checkpoint
    from singa_lite.snapshots.checkpoints.callback import Checkpoint as Checkpoint
    from singa_lite.snapshots.checkpoints.folder import latest as latest
else:
    #: What a net's `save` and `load` do not need, imported when asked for: {name: module, and what it is there}.
    _LATER = {
        "maps": ("maps", ""),
        "checkpoint": ("checkpoints.checkpoint", ""),
        "Checkpoint": ("checkpoints.callback", "Checkpoint"),
        "latest": ("checkpoints.folder", "latest"),
    }

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, inside = _LATER[name]
        found = import_module(f"{__name__}.{module}")
        globals()[name] = getattr(found, inside) if inside else found
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LATER})
