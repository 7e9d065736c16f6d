"""Image files of a folder: which there are, behind links too, and whether each is whole."""

from __future__ import annotations

import os
from pathlib import Path

from singa_lite.data.reading import reading
from singa_lite.errors import DataFileError

#: Endings of the files that are taken for images.
ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
#: Names of files that systems leave in folders; those that begin with a dot aside.
_LEFT_BY_SYSTEMS = ("Thumbs.db", "desktop.ini")
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
        _check_whole(os.fspath(file))
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


def _check_whole(file: str) -> None:
    """DataFileError for what does not begin as an image, or is cut off; what is in between shows as it is decoded."""
    from PIL import Image

    with reading(file, "an image"), open(file, "rb") as opened:
        head, size = opened.read(8), os.path.getsize(file)
        opened.seek(max(0, size - 64))
        end = next((end for mark, end in _MARKS.items() if head.startswith(mark)), None)
        sizes = {b"RI": int.from_bytes(head[4:], "little") + 8, b"BM": int.from_bytes(head[2:6], "little")}
        if (end is None or end not in opened.read()) and not 8 < sizes.get(head[:2], 0) <= size:
            opened.seek(0)  # another format, bytes behind the end, or no whole image
            with Image.open(opened) as image:
                image.load()
