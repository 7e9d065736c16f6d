"""Images in a folder for each class, decoded as batches ask for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from singa_lite.common import checks
from singa_lite.common.array_types import Array
from singa_lite.common.checks import flag, fraction, is_int, whole
from singa_lite.common.elsewhere import told
from singa_lite.data.extras import needed
from singa_lite.data.paired import Paired
from singa_lite.errors import DataError

#: Endings of the files that are taken for images.
_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
#: Names of files that systems leave in folders; those that begin with a dot aside.
_LEFT_BY_SYSTEMS = ("Thumbs.db", "desktop.ini")
#: Pillow's modes of more than 8 bits a channel, whose values a conversion would cut off.
_DEEP = ("I", "F")


class Images:
    """Image files as one array (n, channels, height, width) of uint8, of which `[]` decodes those that are asked for.

    shape, dtype: of that array; files: paths, in order. DataError for a file that is no image, with its number.
    """

    one_by_one = True
    dtype = np.dtype(np.uint8)

    def __init__(self, files: Sequence[str], size: tuple[int, int], channels: int, crop: bool) -> None:
        self.files = list(files)
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

    def _decoded(self, number: int) -> Array:
        file = self.files[number]
        try:
            return self._read(file)
        except Exception as error:  # Pillow has many for damaged files: OSError, SyntaxError, ValueError, struct.error
            raise DataError(f"{file}: sample {number}: wanted an image, received {error or repr(error)}") from error

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
    """What `image_folder` makes. classes: names of the subfolders, sorted; files: paths; y: int64 (n,) class ids."""

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
        order = np.random.default_rng(whole("split seed", seed, 0)).permutation(len(self))
        first, second = np.sort(order[count:]), np.sort(order[:count])
        return self._part(first), self._part(second)

    def _part(self, numbers: Array) -> ImageFolder:
        images = Images([self.files[number] for number in numbers], self.x.shape[2:], self.x.shape[1], self.x._crop)
        return ImageFolder(images, self.y[numbers], self.classes)


@told(path=checks.path)
def image_folder(
    path: str | os.PathLike[str], size: int | tuple[int, int], *, channels: int = 3, crop: bool = False
) -> ImageFolder:
    """Images of a folder with a subfolder for each class, at any depth below: `net.fit(data.image_folder(...))`.

    Class ids count the subfolders' names in sorted order, and images come in the order of their paths. Pillow decodes
    those of a batch as it is made, by `fit(workers=)` if there are any; memory holds paths alone.

    size: (height, width), or one number for both; channels: 3, red, green and blue, or 1, grey. crop: keep the ratio of
    the sides, and cut off what is too much in the middle; else the sides are stretched. Needs Pillow, extra `data`.

    NotADirectoryError, and ValueError for a folder without classes, a class without images, and a file that has no
    image's ending. DataError for a file that is no image, when it is read.
    """
    needed("image_folder", "PIL")
    height, width = _size(size)
    depth = whole("image_folder channels", channels, 1, 3)
    if depth == 2:
        raise ValueError("image_folder channels: wanted 1 or 3, received 2")
    folder = Path(path)
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder}: wanted a folder with a subfolder for each class, received none")
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        raise ValueError(f"{folder}: wanted a subfolder for each class, received none")
    _check_no_files(folder)
    found = [_images(folder / name) for name in classes]
    labels = np.repeat(np.arange(len(classes)), [len(files) for files in found])
    images = Images(
        [file for files in found for file in files], (height, width), depth, flag("image_folder crop", crop)
    )
    return ImageFolder(images, labels, tuple(classes))


def _size(given: object) -> tuple[int, int]:
    height, width = given if isinstance(given, tuple | list) and len(given) == 2 else (given, given)
    if not is_int(height) or not is_int(width):
        raise TypeError(f"image_folder size: wanted (height, width) or one number for both, received {given!r:.100}")
    return whole("image_folder size", height, 1), whole("image_folder size", width, 1)


def _images(folder: Path) -> list[str]:
    """Paths of a class's images."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not _is_hidden(file.relative_to(folder)))
    if not files:
        raise ValueError(f"{folder}: wanted at least one image, received none")
    for file in files:
        if file.suffix.lower() not in _ENDINGS:
            raise ValueError(f"{file}: wanted an image, a file that ends in one of {_ENDINGS}, received {file.name!r}")
    return [os.fspath(file) for file in files]


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts) or path.name in _LEFT_BY_SYSTEMS


def _check_no_files(folder: Path) -> None:
    """ValueError for images beside the classes, which would be left out."""
    for file in folder.iterdir():
        if file.is_file() and file.suffix.lower() in _ENDINGS:
            raise ValueError(f"{file}: wanted images in a subfolder for their class, received one beside them")
