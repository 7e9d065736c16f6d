"""Reading of data files: whatever a library raises over a damaged one comes as one DataError that names it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from singa_lite.common.errors import DataError, DataFileError


@contextmanager
def reading(path: str | os.PathLike[str], wanted: str) -> Iterator[None]:
    """DataFileError in the place of what is raised while the file is read, and for a folder. wanted: what the file is.

    A file that is not there, may not be read, or is locked, is the system's own error; DataErrors pass as they are.
    """
    here = os.fspath(path)
    if os.path.isdir(here):
        raise DataFileError(f"{here}: wanted {wanted}, received a folder")
    try:
        yield
    except (DataError, BlockingIOError, FileNotFoundError, NotADirectoryError, PermissionError):
        raise
    except Exception as error:  # damaged files give nearly any kind: OSError, ValueError, KeyError, zlib.error, ...
        raise DataFileError(f"{here}: wanted {wanted}, received {error or repr(error)}") from error
