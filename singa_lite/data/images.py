"""Images in a folder for each class: which files there are, behind links too, decoded as batches ask for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np

from singa_lite.common import checks
from singa_lite.common.array_types import Array
from singa_lite.common.checks import flag, fraction, integer, is_int
from singa_lite.common.errors import DataError, DataFileError
from singa_lite.common.keywords import explains_keywords
from singa_lite.data.given import Paired
from singa_lite.data.reading import reading, require

#: Pillow's modes of more than 8 bits a channel, whose values a conversion would cut off.
_DEEP = ("I", "F")


class Images:
    """Image files as one array (n, channels, height, width) of uint8, of which `[]` decodes those that are asked for.

    shape, dtype: of that array; files: paths, in order; numbers: by which errors call them, by default from 0.
    DataError for a file that is no image, with its number.
    """

    one_by_one = True
    dtype = np.dtype(np.uint8)

    def __init__(
        self,
        files: Sequence[str],
        size: tuple[int, int],
        channels: int,
        crop: bool,
        numbers: Sequence[int] | None = None,
    ) -> None:
        self.files = list(files)
        self._numbers = range(len(self.files)) if numbers is None else numbers
        self.shape = len(self.files), channels, *size
        self._crop = crop

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: slice | Array) -> Array:
        numbers = np.arange(len(self.files))[index]
        made = np.empty((len(numbers), *self.shape[1:]), np.uint8)
        for place, number in enumerate(numbers.tolist()):
            made[place] = self._decoded(number)
        return made

    def part(self, numbers: Array, keep: bool = True) -> Images:
        """The images of these numbers. keep: whether errors call them by these numbers still."""
        files = [self.files[number] for number in numbers.tolist()]
        return Images(files, self.shape[2:], self.shape[1], self._crop, numbers.tolist() if keep else None)

    def _decoded(self, number: int) -> Array:
        file = self.files[number]
        try:
            return self._read(file)
        except Exception as error:  # Pillow has many for damaged files: OSError, SyntaxError, ValueError, struct.error
            raise DataError(
                f"{file}: sample {self._numbers[number]}: wanted an image, received {error or repr(error)}"
            ) from error

    def _read(self, file: str) -> Array:
        from PIL import Image, ImageOps

        channels, height, width = self.shape[1:]
        with Image.open(file) as opened:
            if opened.mode.startswith(_DEEP):
                raise ValueError(f"wanted 8 bits a channel, received Pillow's mode {opened.mode!r}")
            image = ImageOps.exif_transpose(opened).convert("RGB" if channels == 3 else "L")
        size, way = (width, height), Image.Resampling.BILINEAR
        fitted = ImageOps.fit(image, size, way) if self._crop else image.resize(size, way)
        pixels = np.asarray(fitted)
        return pixels.transpose(2, 0, 1) if channels == 3 else pixels[None]


class ImageFolder(Paired):
    """The images and class ids that `image_folder` found. classes: names of the subfolders, sorted; files: paths; y:
    int64 (n,) class ids.

    >>> from pathlib import Path
    >>> from PIL import Image
    >>> Path("pets", "cats").mkdir(parents=True, exist_ok=True)
    >>> Image.new("RGB", (8, 6)).save("pets/cats/0.png")
    >>> len(data.image_folder("pets", size=4))
    1
    """

    x: Images
    y: Array

    def __init__(self, images: Images, labels: Array, classes: tuple[str, ...]) -> None:
        super().__init__(images, labels, len(images))
        self.classes = classes

    @property
    def files(self) -> list[str]:
        """The path of each image."""
        return self.x.files

    def split(self, share: float, seed: int = 0) -> tuple[ImageFolder, ImageFolder]:
        """Two parts without a common image, drawn by `seed`: all but this share of the images, and this share."""
        count = round(fraction("split share", share) * len(self))
        if not 0 < count < len(self):
            raise ValueError(f"split share: wanted both parts to have images, received {share} of {len(self)}")
        order = np.random.default_rng(integer("split seed", seed, 0)).permutation(len(self))
        first, second = np.sort(order[count:]), np.sort(order[:count])
        return self._part(first), self._part(second)

    def _part(self, numbers: Array) -> ImageFolder:
        return ImageFolder(self.x.part(numbers, keep=False), self.y[numbers], self.classes)


@explains_keywords(path=checks.path)
def image_folder(
    path: str | os.PathLike[str], size: int | tuple[int, int], *, channels: int = 3, crop: bool = False
) -> ImageFolder:
    """Returns the images of a folder with a subfolder for each class, at any depth below:
    `net.fit(data.image_folder(...))`.

    Class ids count the subfolders' names in sorted order, and images come in the order of their paths, those behind
    links too. Pillow decodes those of a batch as it is made, by `fit(workers=)` if there are any; memory holds paths
    alone.

    size: (height, width), or one number for both; channels: 3, red, green and blue, or 1, grey. crop: keep the ratio of
    the sides, and cut off what is too much in the middle; else the sides are stretched. Needs Pillow, extra `data`.

    NotADirectoryError for what is no folder. DataFileError, also a ValueError, for a folder without classes, a class
    without images, images beside the classes, a link to nothing, and a file that has no image's ending, does not begin
    as an image, or is cut off. DataError for one that is damaged within, when it is decoded: at once where all have at
    most 16 MiB.

    >>> from pathlib import Path
    >>> from PIL import Image
    >>> for kind in ("cats", "dogs"):
    ...     Path("pets", kind).mkdir(parents=True)
    ...     Image.new("RGB", (8, 6)).save(f"pets/{kind}/0.png")
    >>> pets = data.image_folder("pets", size=(4, 5))
    >>> pets.classes, pets.x[0:2].shape
    (('cats', 'dogs'), (2, 3, 4, 5))
    """
    require("image_folder", "PIL")
    height, width = _size(size)
    depth = integer("image_folder channels", channels, 1, 3)
    if depth == 2:
        raise ValueError("image_folder channels: wanted 1 or 3, received 2")
    folder = Path(path)
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder}: wanted a folder with a subfolder for each class, received none")
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        raise DataFileError(f"{folder}: wanted a subfolder for each class, received none")
    _check_no_files(folder)
    found = [images_of(folder / name) for name in classes]
    labels = np.repeat(np.arange(len(classes)), [len(files) for files in found])
    images = Images(list(chain(*found)), (height, width), depth, flag("image_folder crop", crop))
    check_whole(images.files)
    return ImageFolder(images, labels, tuple(classes))


def _size(given: object) -> tuple[int, int]:
    height, width = given if isinstance(given, tuple | list) and len(given) == 2 else (given, given)
    if not is_int(height) or not is_int(width):
        raise TypeError(f"image_folder size: wanted (height, width) or one number for both, received {given!r:.100}")
    return integer("image_folder size", height, 1), integer("image_folder size", width, 1)


def _check_no_files(folder: Path) -> None:
    """DataFileError for images beside the classes, which would be left out, and for links to nothing."""
    for file in folder.iterdir():
        if file.is_symlink() and not file.name.startswith("."):
            check_link(os.fspath(file))
        if file.is_file() and file.suffix.lower() in ENDINGS:
            raise DataFileError(f"{file}: wanted images in a subfolder for their class, received one beside them")


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
