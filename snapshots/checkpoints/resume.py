"""Resumes training from a checkpoint: a file, or the newest one that is whole."""

from __future__ import annotations

import os
from pathlib import Path

from singa_lite.common.errors import SnapshotError, SnapshotVersionError
from singa_lite.common.notice import warn
from singa_lite.snapshots.checkpoints import checkpoint
from singa_lite.snapshots.checkpoints.callback import Checkpoint
from singa_lite.snapshots.checkpoints.folder import BEST, checkpoints, set_aside, step_of
from singa_lite.training.fit import Training

PathLike = str | os.PathLike[str]


def resume(training: Training, where: PathLike) -> None:
    """Resume from a file, or for "auto" from the newest one in the callbacks' folders that is whole.

    SnapshotError for one that does not fit, and where a callback's folder has later ones; then nothing has changed.
    """
    if not isinstance(where, str | os.PathLike):
        raise TypeError(f'fit resume: wanted "auto" or the path of a checkpoint, received {where!r}')

    def check_folders(step: int) -> None:
        for callback in _checkpoints(training) if training.is_first else ():
            callback.folder.prepare(step)

    if where != "auto":
        checkpoint.restore(training, where, check_folders)
        return
    found = training.from_first(lambda: _resume_newest(training), "fit resume")
    if found is not None and not training.is_first:
        checkpoint.restore(training, found)


def _resume_newest(training: Training) -> Path | None:
    """Go on from the newest one that is whole, if there is any; which one it is."""
    folders = [callback.folder for callback in _checkpoints(training)]
    if not folders:
        raise ValueError('fit: wanted a Checkpoint among the callbacks to resume="auto" from, received none')
    for folder in folders:
        folder.settle()
    found = sorted((file for folder in folders for file in checkpoints(folder.path)), key=step_of, reverse=True)
    return _restore_first_whole(training, found)


def _restore_first_whole(training: Training, files: list[Path]) -> Path | None:
    """Resume from the first that is whole, if there are any, and rename those before it; which one it was.

    SnapshotError where none is whole, and for one that is whole and does not fit.
    """
    damaged: list[tuple[Path, SnapshotError]] = []
    for file in files:
        try:
            checkpoint.restore(training, file)
        except SnapshotError as error:
            damage = _damage(file)
            if damage is None:
                raise error
            damaged.append((file, damage))
            continue
        for other, why in damaged:
            warn(f"{why}; set aside as {set_aside(other).name}, taking the one before it")
        return file
    if damaged:
        raise _none_is_whole(damaged)
    return None


def _damage(file: Path) -> SnapshotError | None:
    """What is wrong with a file; None for a whole one, and one of a later version."""
    try:
        checkpoint.verify(file)
    except SnapshotVersionError:
        return None
    except SnapshotError as error:
        return error
    return None


def _none_is_whole(damaged: list[tuple[Path, SnapshotError]]) -> SnapshotError:
    newest, why = damaged[0]
    best = newest.with_name(BEST)
    hint = f"; there is {BEST} too, for resume={str(best)!r}" if best.exists() else ""
    return SnapshotError(
        f"{newest.parent}: wanted a checkpoint that is whole, received {len(damaged)} damaged ones{hint}; "
        f"of the newest: {why}"
    )


def _checkpoints(training: Training) -> list[Checkpoint]:
    return [callback for callback in training.callbacks if isinstance(callback, Checkpoint)]
