"""Text for people, on streams that may be missing, closed, full, or of a narrow encoding: a training outlives them."""

from __future__ import annotations

import sys
from contextlib import suppress
from io import StringIO, TextIOWrapper
from typing import TextIO

#: What stands for the lines of tables where an encoding lacks these.
_PLAIN = str.maketrans("─│┌┬┐├┼┤└┴┘", "-|+++++++++")


def printable(text: str, stream: TextIO | None) -> str:
    """The text as the stream can show it: tables with plain lines, other characters that it lacks as escapes."""
    encoding = getattr(stream, "encoding", None)
    if not isinstance(encoding, str):
        return text
    try:
        text.encode(encoding)
        return text
    except LookupError:  # an encoding that Python does not know
        return text
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)


def write_line(text: str, stream: TextIO | None) -> None:
    """Write a line, as `printable`. Nothing happens where there is no stream, and where it takes no text any more."""
    Unfailing(stream).write(f"{text}\n")


def escape_streams() -> None:
    """Let standard output and error escape what they cannot show, and swallow all where they are missing.

    For a program of its own: `print(file=None)` would put errors among its results.
    """
    sys.stdout, sys.stderr = (stream or StringIO() for stream in (sys.stdout, sys.stderr))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class Unfailing:
    """A stream whose `write` and `flush` raise nothing; everything else is the stream's own."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write the text, as `printable`, at once."""
        with suppress(OSError, ValueError):  # ValueError: it was closed
            if self._stream is not None:
                self._stream.write(printable(text, self._stream))
        self.flush()

    def flush(self) -> None:
        """See `io.IOBase.flush`."""
        with suppress(OSError, ValueError, AttributeError):
            if self._stream is not None:
                self._stream.flush()

    def __getattr__(self, name: str) -> object:
        """Such as `encoding` and `fileno`, by which tqdm knows what to draw, and how wide."""
        return getattr(self._stream, name)
