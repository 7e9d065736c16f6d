"""Reading of data files: libraries that only some need, errors that name the file, and texts of any encoding."""

from __future__ import annotations

import codecs
import io
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import IO

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


def require(where: str, name: str) -> ModuleType:
    """The module. ImportError that names the extra which brings it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{where}: wanted {name}, which pip install 'singa-lite[data]' brings, received: {error}"
        ) from error


#: First bytes of packed files, and the module that opens them.
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ": "lzma"}
#: Marks at the beginning of a text, and its encoding. UTF-32's goes first, as it begins with UTF-16's.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: "utf-8-sig",
}
#: Bytes that are looked at to tell the ends of lines.
_LOOK = 2**16


class TextFile:
    """A text as UTF-8. path: of the file itself, or of a temporary one, if it is packed or in another encoding.

    start: where the text begins, behind a mark. The temporary file goes with this object. encoding: None is UTF-8, or
    what a mark says.
    """

    def __init__(self, path: str, encoding: str | None) -> None:
        self.path, self.start = path, 0
        with open(path, "rb") as raw:
            head = raw.read(6)
        packed = next((module for mark, module in _PACKED.items() if head.startswith(mark)), None)
        with import_module(packed).open(path, "rb") if packed else open(path, "rb") as file:
            head = file.read(_LOOK)
            if not head:
                raise DataFileError(f"{path}: wanted text, received an empty file")
            mark = next((mark for mark in _MARKS if head.startswith(mark)), b"")
            name = codecs.lookup(encoding or _MARKS.get(mark, "utf-8")).name
            has_old_lines = b"\r" in head and b"\n" not in head
            if packed or has_old_lines or name not in ("ascii", "utf-8", "utf-8-sig"):
                file.seek(0)
                self._convert(file, "utf-8-sig" if name == "utf-8" else name)
            elif mark == codecs.BOM_UTF8:
                self.start = len(mark)

    def _convert(self, file: IO[bytes], encoding: str) -> None:
        folder = tempfile.mkdtemp(prefix="singa_lite_")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = os.path.join(folder, "text")
        text = io.TextIOWrapper(file, encoding)  # whatever ends lines is read as "\n"
        with open(self.path, "w", encoding="utf-8", newline="\n") as made:
            shutil.copyfileobj(text, made)
        text.detach()
