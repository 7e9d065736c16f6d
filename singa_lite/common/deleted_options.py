"""Options that were deleted: each raises an error, for one version, that names what takes its place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class DeletedOption(NamedTuple):
    """An option that a call no longer takes: the call's name, the version that deleted it, and what takes its place."""

    call: str
    name: str
    version: str
    replacement: str


OPTIONS = (
    DeletedOption("mpi", "compress", "0.2", "nothing: gradients are summed in float32; shard='state' saves memory"),
    DeletedOption("compile", "budget_profile", "0.2", "memory_budget alone, by estimated costs"),
    DeletedOption("compile", "offload to a folder", "0.2", "memory_budget alone; offload='host' is for GPUs"),
)


def check_deleted(call: str, given: Iterable[str]) -> None:
    """Raises TypeError for a deleted option among these names of options."""
    for option in OPTIONS:
        if option.call == call and option.name in given:
            raise TypeError(
                f"{call}: wanted options of this version, received {option.name}, which version {option.version} "
                f"deleted; what takes its place: {option.replacement}"
            )
