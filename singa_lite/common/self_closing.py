"""SelfClosing: a file that an interrupt does not leave open."""

from __future__ import annotations

from io import FileIO


class SelfClosing(FileIO):
    """A file that is closed when it is dropped, without a warning: Ctrl-C may come before its `with` block begins."""

    __del__ = FileIO.close  # in C, so that no interrupt comes within it
