"""Checked entries of what a file says of its model, and the error for what it wants that is not here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from singa_lite.common.errors import SnapshotError

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

    def architecture(self, name: str) -> str:
        """Returns the architecture under a name. SnapshotError for one that is not read here."""
        found = self.get(name, str)
        if found not in ARCHITECTURES:
            raise SnapshotError(
                f"{self.path}: {name}: wanted one of {', '.join(ARCHITECTURES)}, received {found[:100]!r}"
            )
        return found


def check_lacking(path: str, lacking: Sequence[str]) -> None:
    """SnapshotError that lists all that a file wants and is not here, if there is any."""
    if lacking:
        raise SnapshotError(f"{path}: wanted a model of what this version has, received {'; '.join(lacking[:20])}")
