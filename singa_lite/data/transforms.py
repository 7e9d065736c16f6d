"""Random changes of images, for `net.fit(transform=)`: each a function transform(image, random).

image: (channels, height, width), uint8 from 0 to 255, or floats from 0 to 1, of any range where values are only moved.
The result has the image's dtype. Other shapes, dtypes and ranges are refused: `image / 255` makes floats from 0 to 1.
random: a `numpy.random.Generator`, of which `fit` gives each sample its own in each epoch. Any function of this form
serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import cos, pi, sin
from typing import TypeAlias

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.arrays import kind
from singa_lite.common.checks import at_least_zero, flag, integer, share
from singa_lite.common.errors import ShapeError

Transform: TypeAlias = "Callable[[Array, np.random.Generator], Array]"  # text, as numpy.random takes time to import

#: Shares of red, green and blue in grey, ITU-R BT.601.
_GREY = np.array([0.299, 0.587, 0.114])

#: By so much floats may be out of their range, as sums of shares of pixels are, in float16 too.
_ROUNDING = 2e-3


class Compose:
    """Applies several transforms, one behind the other, over the same random numbers.

    >>> from singa_lite.data import transforms
    >>> both = transforms.Compose([transforms.RandomFlip(), transforms.RandomCrop(4, padding=1)])
    >>> both(np.ones((3, 6, 5)), np.random.default_rng(0)).shape
    (3, 4, 4)
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        for each in transforms:
            if not callable(each) or isinstance(each, type):
                raise TypeError(f"Compose: wanted functions transform(image, random), received {kind(each)}")
        self._transforms = tuple(transforms)

    def __call__(self, image: Array, random: np.random.Generator) -> Array:
        for transform in self._transforms:
            image = transform(image, random)
        return image


class RandomFlip:
    """Mirrors an image with probability 1/2: left and right (horizontal), top and bottom (vertical), each by itself.

    Values of any range. ShapeError for an image that has not three axes.

    >>> from singa_lite.data import transforms
    >>> image = np.arange(3.0).reshape(1, 1, 3)
    >>> print(transforms.RandomFlip()(image, np.random.default_rng(3)))
    [[[2. 1. 0.]]]
    """

    def __init__(self, horizontal: bool = True, vertical: bool = False) -> None:
        self._axes = [
            axis
            for axis, wanted in (
                (-1, flag("RandomFlip horizontal", horizontal)),
                (-2, flag("RandomFlip vertical", vertical)),
            )
            if wanted
        ]

    def __call__(self, image: Array, random: np.random.Generator) -> Array:
        _check_shape("RandomFlip", image)
        for axis in self._axes:
            if random.random() < 0.5:
                image = np.flip(image, axis)
        return image


class RandomCrop:
    """Cuts a piece of this size out of an image, anywhere. padding: of zeros on each side beforehand, in pixels.

    size: (height, width), or one number for both. Values of any range. ShapeError for an image that is smaller, or has
    not three axes.

    >>> from singa_lite.data import transforms
    >>> transforms.RandomCrop((4, 3), padding=1)(np.ones((3, 6, 5)), np.random.default_rng(0)).shape
    (3, 4, 3)
    """

    def __init__(self, size: int | tuple[int, int], padding: int = 0) -> None:
        height, width = size if isinstance(size, tuple | list) and len(size) == 2 else (size, size)
        self._size = integer("RandomCrop size", height, 1), integer("RandomCrop size", width, 1)
        self._padding = integer("RandomCrop padding", padding, 0)

    def __call__(self, image: Array, random: np.random.Generator) -> Array:
        _check_shape("RandomCrop", image)
        padded = np.pad(image, ((0, 0), *[(self._padding, self._padding)] * 2)) if self._padding else image
        free = [most - size for most, size in zip(padded.shape[-2:], self._size, strict=True)]
        if min(free) < 0:
            raise ShapeError(f"RandomCrop: wanted an image of at least {self._size}, received {padded.shape}")
        top, left = (int(random.integers(each + 1)) for each in free)
        return padded[..., top : top + self._size[0], left : left + self._size[1]]


class RandomRotation:
    """Turns an image about its centre by up to so many degrees either way, bilinear; zeros where it gives nothing.

    Values of any range; integers are rounded. ShapeError for an image that has not three axes.

    >>> from singa_lite.data import transforms
    >>> transforms.RandomRotation(10)(np.ones((3, 6, 5)), np.random.default_rng(0)).shape
    (3, 6, 5)
    """

    def __init__(self, degrees: float) -> None:
        self._most = at_least_zero("RandomRotation degrees", degrees) * pi / 180

    def __call__(self, image: Array, random: np.random.Generator) -> Array:
        _check_shape("RandomRotation", image)
        angle = random.uniform(-self._most, self._most)
        height, width = image.shape[-2:]
        y, x = np.mgrid[:height, :width].astype(np.float64)
        y -= (height - 1) / 2
        x -= (width - 1) / 2
        rows = cos(angle) * y + sin(angle) * x + (height - 1) / 2
        columns = cos(angle) * x - sin(angle) * y + (width - 1) / 2
        return _cast_like(_bilinear(image, rows, columns), image)


class RandomColor:
    """Changes brightness, contrast and saturation, each by a factor of 1 - amount to 1 + amount, in this order.

    As torchvision's ColorJitter blends: with black, with the mean of the grey image, and with the grey image.
    Saturation is that of images of three channels: red, green, blue. image: uint8, or floats from 0 to 1: TypeError for
    another dtype, ValueError for another range, ShapeError for an image that has not three axes.

    >>> from singa_lite.data import transforms
    >>> image = np.full((3, 6, 5), 100, "uint8")
    >>> transforms.RandomColor(brightness=0.2)(image, np.random.default_rng(0)).shape
    (3, 6, 5)
    """

    def __init__(self, brightness: float = 0.0, contrast: float = 0.0, saturation: float = 0.0) -> None:
        self._brightness = share("RandomColor brightness", brightness)
        self._contrast = share("RandomColor contrast", contrast)
        self._saturation = share("RandomColor saturation", saturation)

    def __call__(self, image: Array, random: np.random.Generator) -> Array:
        _check_shape("RandomColor", image)
        most = _range("RandomColor", image)
        made = image.astype(np.float32)
        made = np.clip(made * _factor(random, self._brightness), 0, most)
        made = _blend(made, _grey(made).mean(), _factor(random, self._contrast), most)
        if self._saturation:
            if len(image) != 3:
                raise ShapeError(f"RandomColor saturation: wanted an image of 3 channels, received {image.shape}")
            made = _blend(made, _grey(made), _factor(random, self._saturation), most)
        return _cast_like(made, image)


def _check_shape(where: str, image: Array) -> None:
    """ShapeError for what is no image, and for colours along the last axis, as Pillow has them."""
    is_last = image.shape[-1:] == (3,) and min(image.shape[:2]) > 4
    if image.ndim != 3 or is_last:
        raise ShapeError(
            f"{where}: wanted an image (channels, height, width), received shape {image.shape}"
            + ("; image.transpose(2, 0, 1) makes one of it" if image.ndim == 3 else "")
        )


def _range(where: str, image: Array) -> float:
    """The largest value that the image may have: 255 or 1. TypeError and ValueError for other images."""
    if image.dtype == np.uint8:
        return 255.0
    if image.dtype.kind != "f":
        raise TypeError(f"{where}: wanted an image of uint8, or of floats from 0 to 1, received {image.dtype}")
    if not (image.min() >= -_ROUNDING and image.max() <= 1 + _ROUNDING):  # NaN too
        raise ValueError(
            f"{where}: wanted floats from 0 to 1, or uint8, received {image.dtype} from {image.min():g} to "
            f"{image.max():g}; image / 255 makes pixels from 0 to 255 so"
        )
    return 1.0


def _factor(random: np.random.Generator, amount: float) -> float:
    return random.uniform(1 - amount, 1 + amount) if amount else 1.0


def _grey(image: Array) -> Array:
    """(height, width): of three channels by their shares, else their mean."""
    grey: Array = np.tensordot(_GREY, image, 1) if len(image) == 3 else image.mean(axis=0)
    return grey


def _blend(image: Array, other: Array | float, factor: float, most: float) -> Array:
    blended: Array = np.clip(factor * image + (1 - factor) * other, 0, most)
    return blended


def _cast_like(made: Array, image: Array) -> Array:
    """In the image's dtype; integers are rounded."""
    return (np.rint(made) if image.dtype.kind in "biu" else made).astype(image.dtype)


def _bilinear(image: Array, rows: Array, columns: Array) -> Array:
    """The image's values between pixels, zeros outside. rows, columns: float (height, width)."""
    height, width = image.shape[-2:]
    top, left = np.floor(rows).astype(int), np.floor(columns).astype(int)
    down, right = rows - top, columns - left
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))
    y = [np.clip(top + 1 + step, 0, height + 1) for step in (0, 1)]
    x = [np.clip(left + 1 + step, 0, width + 1) for step in (0, 1)]
    above = padded[:, y[0], x[0]] * (1 - right) + padded[:, y[0], x[1]] * right
    below = padded[:, y[1], x[0]] * (1 - right) + padded[:, y[1], x[1]] * right
    between: Array = above * (1 - down) + below * down
    return between
