"""Going on from a checkpoint: from a file, or from the newest one that is whole."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from singa_lite.errors import SnapshotError
from singa_lite.fit import Training
from singa_lite.snapshots.checkpoints import checkpoint
from singa_lite.snapshots.checkpoints.callback import Checkpoint
from singa_lite.snapshots.checkpoints.folder import checkpoints, set_aside


def resume(training: Training, where: str | os.PathLike[str]) -> None:
    """Let the training go on from a file, or, for "auto", from the newest of the callback's that is whole."""
    if where != "auto":
        checkpoint.restore(training, where)
        return
    folder = next((c.folder.path for c in training.callbacks if isinstance(c, Checkpoint)), None)
    if folder is None:
        raise ValueError('fit: wanted a Checkpoint among the callbacks to resume="auto" from, received none')
    found = checkpoints(folder)
    for file in found:
        if _restored(training, file):
            return
    if found:
        raise SnapshotError(f"{folder}: wanted a checkpoint that is whole, received {len(found)} damaged ones")


def _restored(training: Training, file: Path) -> bool:
    """Whether the checkpoint is whole; else a warning names it, and it is set aside.

    SnapshotError for one that is whole and does not fit.
    """
    try:
        checkpoint.restore(training, file)
        return True
    except SnapshotError as error:
        try:
            checkpoint.verify(file)
        except SnapshotError as damage:
            warnings.warn(f"{damage}; set aside as {set_aside(file).name}, taking the one before it", stacklevel=6)
            return False
        raise error
