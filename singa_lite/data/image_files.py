"""Image files of a folder: which there are, behind links too, and whether each is whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from singa_lite.common.errors import DataFileError
from singa_lite.data.reading import reading

#: Endings of the files that are taken for images.
ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
#: Names of files that systems leave in folders; those that begin with a dot aside.
_LEFT_BY_SYSTEMS = ("Thumbs.db", "desktop.ini")
#: Images of at most so many bytes in all are decoded once at the beginning.
_DECODED_AT_ONCE = 16 * 2**20
#: How files of the usual formats begin, and how whole ones end. WebP and BMP say their size instead.
_MARKS = {b"\xff\xd8\xff": b"\xff\xd9", b"\x89PNG\r\n\x1a\n": b"IEND\xaeB\x60\x82", b"GIF8": b";"}


def images_of(folder: Path) -> list[str]:
    """Paths of a class's images, at any depth, sorted. DataFileError for a file that is none, and a link to nothing.

    Links to folders are followed, but for one to a folder that the link lies in.
    """
    files = sorted(Path(file) for file in _files(os.fspath(folder), (os.path.realpath(folder.parent),)))
    if not files:
        raise DataFileError(f"{folder}: wanted at least one image, received none")
    for file in files:
        if file.suffix.lower() not in ENDINGS:
            raise DataFileError(
                f"{file}: wanted an image, a file that ends in one of {ENDINGS}, received {file.name!r}"
            )
    return [os.fspath(file) for file in files]


def check_link(path: str) -> None:
    """DataFileError for a link to what is not there."""
    if not os.path.exists(path):
        raise DataFileError(f"{path}: wanted an image, received a link to {os.readlink(path)!r}, which is not there")


def _files(folder: str, outer: tuple[str, ...]) -> list[str]:
    """Files at any depth but hidden ones. outer: real paths of the folders that it lies in."""
    real = os.path.realpath(folder)
    if any(each == real or each.startswith(real + os.sep) for each in outer):
        return []
    found = []
    for entry in list(os.scandir(folder)):
        if entry.name.startswith(".") or entry.name in _LEFT_BY_SYSTEMS:
            continue
        if entry.is_symlink():
            check_link(entry.path)
        found += _files(entry.path, (*outer, real)) if entry.is_dir() else [entry.path]
    return found


def check_whole(files: Sequence[str]) -> None:
    """DataFileError for a file that does not begin as an image, or is cut off, and, of few bytes in all, is damaged."""
    sizes = [os.path.getsize(file) for file in files]
    total = sum(sizes)
    for file, size in zip(files, sizes, strict=True):
        with reading(file, "an image"), open(file, "rb") as opened:
            if total <= _DECODED_AT_ONCE or not _seems_whole(opened, size):
                from PIL import Image

                with Image.open(opened) as image:
                    image.load()


def _seems_whole(file: IO[bytes], size: int) -> bool:
    """Whether it begins and ends as an image. False for formats that do not tell, and for bytes behind the end."""
    head = file.read(8)
    file.seek(max(0, size - 64))
    end = next((end for mark, end in _MARKS.items() if head.startswith(mark)), None)
    said = {b"RI": int.from_bytes(head[4:], "little") + 8, b"BM": int.from_bytes(head[2:6], "little")}
    seems = end in file.read() if end is not None else 8 < said.get(head[:2], 0) <= size
    file.seek(0)
    return seems
