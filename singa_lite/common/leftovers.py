"""Removes temporary files of killed savers when the same file is next saved, but none of a saver that is alive.

A saver holds a lock on its temporary file, which the system drops with the process. A file is removed if its lock is
free and its last write an hour ago: on some file systems other machines do not see locks.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import sys
import time
from contextlib import suppress
from hashlib import sha256

if sys.platform != "win32":  # Windows removes no file that is open, so that no lock is needed there
    import fcntl

#: Seconds since the last write after which a file may be removed.
_OLD = 3600

#: The longest name in bytes: file systems take 255, of which dots, digits and ".tmp" need 22.
_LONGEST = 230

_TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp", re.DOTALL)


def temporary_name(name: str) -> str:
    """A name for the new file that is to take the place of `name`: ".<name>.<16 digits>.tmp"."""
    return f".{_stem(name)}.{secrets.token_hex(8)}.tmp"


def hold(handle: int) -> None:
    """Lock this temporary file until it is closed, so that no saver removes it. Without locks its age protects it."""
    if sys.platform != "win32":
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove(folder: str, name: str) -> None:
    """Remove temporary files that killed savers of `name` left in the folder. One that cannot be removed stays."""
    with suppress(OSError), os.scandir(folder) as entries:
        for path in [entry.path for entry in entries if _is_temporary(entry.name, name)]:
            with suppress(OSError):
                _remove_if_dead(path)


def _is_temporary(found: str, name: str) -> bool:
    """Whether it is a `temporary_name` of `name`."""
    match = _TEMPORARY.fullmatch(found)
    return match is not None and match[1] == _stem(name)


def _stem(name: str) -> str:
    """The name, or its digest where the temporary name would be too long for the file system."""
    encoded = os.fsencode(name)
    return name if len(encoded) <= _LONGEST else sha256(encoded).hexdigest()


def _remove_if_dead(path: str) -> None:
    """Remove a file if no saver holds it. OSError for what is no file, is locked, or cannot be locked at all."""
    handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or time.time() - found.st_mtime < _OLD:
            return
        if sys.platform != "win32":
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
    finally:
        os.close(handle)
    if sys.platform == "win32":
        os.unlink(path)
