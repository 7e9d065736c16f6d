"""Checked entries of what a file says of its model, and the error for what it wants that is not here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.language.config import LanguageConfig

T = TypeVar("T", int, float, str, bool)

#: Architectures whose files are read and written; GPT-2's are those of `snapshots.maps.gpt2`.
ARCHITECTURES = ("llama", "qwen2", "qwen3", "mistral")


class Values:
    """The entries of a file by name. prefix: of all names that are asked for."""

    def __init__(self, path: str, entries: Mapping[str, object], prefix: str = "") -> None:
        self.path, self.entries, self.prefix = path, entries, prefix

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        """Returns a value. SnapshotError for one that is not there and has no default, or is of another kind."""
        found = self.entries.get(self.prefix + name)
        found = default if found is None else found
        if kind is float and type(found) is int:
            found = float(found)
        if type(found) is not kind:
            received = "none of that name" if found is None else repr(found)[:100]
            raise SnapshotError(f"{self.path}: {self.prefix}{name}: wanted {kind.__name__}, received {received}")
        return found

    def architecture(self, name: str, known: Sequence[str] = ARCHITECTURES) -> str:
        """Returns the architecture under a name. SnapshotError for one that is not known."""
        found = self.get(name, str)
        if found not in known:
            raise SnapshotError(f"{self.path}: {name}: wanted one of {', '.join(known)}, received {found[:100]!r}")
        return found


def rotary_factors(config: LanguageConfig, scaling: Mapping[str, object]) -> NDArray[np.float64]:
    """Returns by what a scaling divides each of the rotary frequencies, (head_size / 2,)."""
    from singa_lite.layers.rotary_scaling import scaled_rates

    rates = config.rotary_base ** (-np.arange(0, config.head_size, 2) / config.head_size)
    factors: NDArray[np.float64] = rates / scaled_rates("rotary_scaling", rates, scaling)
    return factors


def check_lacking(path: str, lacking: Sequence[str]) -> None:
    """SnapshotError that lists all that a file wants and is not here, if there is any."""
    if lacking:
        raise SnapshotError(f"{path}: wanted a model of what this version has, received {'; '.join(lacking[:20])}")
