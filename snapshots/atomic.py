"""Replacing a file so that a kill at any moment leaves the old one or the new one, never something between."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from singa_lite.errors import SnapshotError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the name of a temporary file to write; at the end it takes the place of `path`.

    Written beside it, fsynced, renamed, and the folder fsynced, so that the rename survives a power cut. If the
    body or the file system fails, the temporary file is removed, `path` is as before, and an OSError becomes a
    SnapshotError that names it. A link is followed, and the old file's permissions are kept.
    """
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{name}.", suffix=".tmp", dir=folder)
        os.close(handle)
    except OSError as error:
        raise SnapshotError(f"{path}: cannot write into its folder: {error}") from error
    try:
        yield temporary
        os.chmod(temporary, _permissions(target))
        _sync(temporary)
        os.replace(temporary, target)
        _sync_folder(folder)
    except BaseException as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        if isinstance(error, OSError) and not isinstance(error, SnapshotError):
            raise SnapshotError(f"{path}: cannot be written, the file there is as before: {error}") from error
        raise


def _permissions(target: str) -> int:
    """Those of the file to be replaced, else what the process's mask allows a new file."""
    if os.path.exists(target):
        return os.stat(target).st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: str) -> None:
    if os.name == "nt":  # Windows cannot open a folder, and its rename needs no fsync of it
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
