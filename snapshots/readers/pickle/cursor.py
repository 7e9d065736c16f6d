"""Reads a file from its beginning to its end, a little at a time. What is skipped is not read into memory."""

from __future__ import annotations

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers.raw import RawFile

#: Characters in a line that is no string.
_MOST_LINE = 64

#: Bytes of the file that are read at once.
_WINDOW = 1 << 16


class Cursor:
    """stored: the file; at: the byte that comes next."""

    def __init__(self, file: RawFile) -> None:
        self.file, self.at = file, 0
        self._window, self._begin = b"", 0

    def wrong(self, text: str) -> SnapshotError:
        """An error that names the file and the byte."""
        return SnapshotError(f"{self.file.path}: byte {self.at}: wanted {text}")

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        begin = self.at - self._begin
        if not 0 <= begin <= len(self._window) - count:
            size = max(0, min(max(count, _WINDOW), self.file.size - self.at))
            self._window, self._begin, begin = bytes(self.file.read("a pickle", self.at, size)), self.at, 0
        data = self._window[begin : begin + count]
        if len(data) != count:
            raise self.wrong(f"{count} more bytes, received the file's end")
        self.at += count
        return data

    def number(self, width: int, signed: bool = False) -> int:
        """A little-endian integer."""
        return int.from_bytes(self.take(width), "little", signed=signed)

    def skip(self, count: int) -> None:
        """Skip `count` bytes. SnapshotError if the file ends before."""
        if count > self.file.size - self.at:
            raise self.wrong(f"{count} more bytes, received {self.file.size - self.at}")
        self.at += count

    def line(self) -> int:
        """Skip a line; returns its bytes without the line feed."""
        begin = self.at
        while True:
            count = min(_WINDOW, self.file.size - self.at)
            if not count:
                raise self.wrong("a line feed, received the file's end")
            found = self.take(count).find(b"\n")
            if found >= 0:
                self.at += found + 1 - count
                return self.at - 1 - begin

    def short_line(self) -> str:
        """The characters of a line that is no string."""
        begin = self.at
        count = self.line()
        if count > _MOST_LINE:
            raise self.wrong(f"a line of at most {_MOST_LINE} bytes, received {count}")
        self.at = begin
        return self.take(count + 1)[:-1].decode("latin-1")
