"""Replaces a file so that a kill at any moment leaves the old one or the new one whole."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO

from singa_lite.common import leftovers
from singa_lite.common.errors import SnapshotError


@contextmanager
def replacing(path: str | bytes | os.PathLike[str]) -> Iterator[FileIO]:
    """Yield a new file to write and read, without a buffer; at the end it takes the place of `path`.

    It is made beside `path`, fsynced, renamed, and the folder fsynced, so that the rename survives a power cut. If
    the body or the file system fails, it is removed and `path` is as before; an OSError becomes a SnapshotError that
    names `path`. A link is followed; the old file's permissions are kept. Only a killed process leaves its
    ".<name>.<digits>.tmp" behind; the next one that saves `path` removes it.
    """
    shown = os.fsdecode(path)
    target = _target(shown)
    folder, name = os.path.split(target)
    leftovers.remove(folder, name)
    temporary = os.path.join(folder, leftovers.temporary_name(name))
    try:
        with _created(temporary, target) as file:
            yield file
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        sizes = _sizes(temporary, folder)
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and not isinstance(error, SnapshotError):
            raise SnapshotError(f"{shown}: cannot be written, all there is as before: {error}{sizes}") from error
        raise
    _sync_folder(folder, shown)


def write_anew(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8, as `replacing` does; what is no ordinary file, such as /dev/stdout, is written to.

    OSError where it cannot be written; the old file is as before then.
    """
    content = text.encode()
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as device:
            device.write(content)
        return
    with replacing(path) as file:
        write_all(file, content)


def write_all(file: FileIO, data: bytes | memoryview) -> None:
    """Write all bytes of `data`; a single call to the system may write fewer. OSError says how many were written."""
    left = memoryview(data)
    size = len(left)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        written = size - len(left)
        raise OSError(error.errno, f"{os.strerror(error.errno or 0)} after {written} of {size} bytes") from error


def _target(shown: str) -> str:
    """The file that a path leads to when all links are followed. SnapshotError for a path that leads nowhere."""
    try:
        target = os.path.realpath(shown)
        if os.path.islink(target):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    except (OSError, ValueError) as error:  # ValueError: a null byte, or a character that the file system lacks
        raise SnapshotError(f"{shown!a}: cannot be written: wanted the path of a file: {error}") from error
    return target


@contextmanager
def _created(temporary: str, target: str) -> Iterator[FileIO]:
    """Creates a file with no more permissions than the one it replaces, then gives it the same."""
    replaces = os.path.exists(target)
    if replaces and not os.path.isfile(target):
        raise OSError("wanted a file to replace, received a folder or a device")
    permissions = 0o600 if replaces else 0o666
    with SelfClosing(temporary, "x+b", opener=lambda name, flags: os.open(name, flags, permissions)) as file:
        if replaces:
            shutil.copymode(target, temporary)
        leftovers.hold(file.fileno())
        yield file


def _sizes(temporary: str, folder: str) -> str:
    """What was written and what is free, for an error."""
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
        written = os.path.getsize(temporary) if os.path.exists(temporary) else 0
        return f"; {written} bytes were written, beside which {free} bytes are free"
    return ""


def _sync_folder(folder: str, shown: str) -> None:
    if os.name == "nt":  # Windows cannot open a folder, and its rename needs no fsync of it
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems have no fsync of folders
            raise SnapshotError(f"{shown}: is written, but a power cut may undo it: {error}") from error


class SelfClosing(FileIO):
    """A file that is closed when it is dropped, without a warning: Ctrl-C may come before its `with` block begins."""

    __del__ = FileIO.close  # in C, so that no interrupt comes within it
