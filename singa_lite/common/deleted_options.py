"""Deleted options: each raises an error, for one version, that names what takes its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class DeletedOption(NamedTuple):
    """An option that is gone: the call that took it, its name, the first version without it, what takes its place."""

    call: str
    name: str
    version: str
    replacement: str

    def message(self, received: object) -> str:
        """Returns the text of the error for what was received."""
        return (
            f"{self.call} {self.name}: wanted {self.replacement}, received {received!r:.100}, which is deleted in "
            f"version {self.version}"
        )


#: Values copied to a file, by `compile(offload="/some/folder")`: an argument that is gone, the option stays.
OFFLOAD_TO_FOLDER = DeletedOption("compile", "offload", "0.2.0", "memory_budget alone, or offload='host' on a GPU")
OPTIONS = (
    DeletedOption("mpi", "compress", "0.2.0", "gradients in float32, which have no option"),
    DeletedOption("compile", "budget_profile", "0.2.0", "memory_budget alone, which goes by estimated costs"),
)


def check_deleted(call: str, given: Mapping[str, object]) -> None:
    """Raises TypeError for a deleted option among these options."""
    for option in OPTIONS:
        if option.call == call and option.name in given:
            raise TypeError(option.message(given[option.name]))
