"""Entries of the history: their names, and whether less or more of one is better."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from singa_lite.common.checks import check_choice, flag
from singa_lite.training.loop.measures import FIXED, LOSS, RATE, VALIDATED, Measures

#: What `mode` of a callback may be.
MODES = ("auto", "min", "max")

#: The direction of an entry whose last words are these, where no metric says it.
_KNOWN: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("loss", "error", "mse", "mae", "rmse", "perplexity", "high_water"), "min")
    | dict.fromkeys(("accuracy", "acc", "auc", "f1", "r2", "precision", "recall", "samples_per_second"), "max")
)


def entries(measures: Measures, validates: bool) -> list[str]:
    """Names of what the history will have of each epoch, and is one number. validates: whether a validation ends it."""
    numbers = [each.entry for each in measures if each.metric.is_number]
    validated = [f"{VALIDATED}{name}" for name in (LOSS, *numbers)] if validates else []
    return list(dict.fromkeys([LOSS, *numbers, *validated, *FIXED, RATE]))


def checked_mode(where: str, mode: object) -> str:
    """ValueError unless it is one of `MODES`."""
    return check_choice(f"{where} mode", mode, MODES)


def direction(where: str, entry: str, mode: str, measures: Measures) -> str:
    """ "min" or "max": mode itself, or for "auto" what the entry's metric states, or what is known of its name.

    ValueError where neither says it.
    """
    found = None if mode == "auto" else mode
    if found is None:
        found = _stated(entry, measures) or next((way for name, way in _KNOWN.items() if _ends_with(entry, name)), None)
    if found is None:
        raise ValueError(
            f"{where} mode: wanted 'min' or 'max' for the entry {entry!r}, as neither its name nor higher_is_better of "
            f"its metric's class says which is better, received {mode!r}"
        )
    return found


def _stated(entry: str, measures: Measures) -> str | None:
    for each in measures:
        stated = each.metric.higher_is_better
        if entry in (each.entry, VALIDATED + each.entry) and stated is not None:
            return "max" if flag(f"{type(each.metric).__name__} higher_is_better", stated) else "min"
    return None


def _ends_with(entry: str, name: str) -> bool:
    """Whether these are its last whole words."""
    return f"_{entry.replace('/', '_')}".endswith(f"_{name}")
