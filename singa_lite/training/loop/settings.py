"""Texts of settings: runs, and ranks, whose texts are equal compute alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

#: Options of `parallel.mpi` that all ranks are to have alike.
OF_RANKS = ("bucket_bytes", "in_flight_bytes", "shard", "sync", "check_every")


def described(value: object) -> str:
    """A text that each process gives to equal settings: a class with its public attributes, or a function's name."""
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return repr(value.item() if isinstance(value, np.generic) else value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {described(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(described, value)) + "]"
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    public = {name: item for name, item in getattr(value, "__dict__", {}).items() if not name.startswith("_")}
    return f"{type(value).__name__}({', '.join(f'{name}={described(item)}' for name, item in sorted(public.items()))})"
