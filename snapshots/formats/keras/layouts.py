"""Keras's classes for ours, their variables in order, and the layout of each array there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.array_types import Array
from singa_lite.snapshots.formats.keras.net import LayerInfo
from singa_lite.snapshots.formats.keras.orders import Order, is_plain
from singa_lite.tensor import Shape

#: Layers of one name in both.
_ALIKE = (
    *("Activation", "BatchNormalization", "Conv1D", "Conv1DTranspose", "Conv2D", "Conv2DTranspose", "Cropping2D"),
    *("Dense", "DepthwiseConv2D", "Dropout", "Embedding", "Flatten", "GaussianNoise", "GlobalMaxPooling1D"),
    *("GlobalMaxPooling2D", "GroupNormalization", "Lambda", "LayerNormalization", "MaxPooling1D", "MaxPooling2D"),
    *("Multiply", "PReLU", "RMSNormalization", "Rescaling", "Reshape", "Softmax", "SpatialDropout1D"),
    *("SpatialDropout2D", "ZeroPadding2D"),
)

#: {our class: Keras's}, of the layers that both have.
CLASSES = dict(zip(_ALIKE, _ALIKE, strict=True)) | {
    "AvgPooling1D": "AveragePooling1D",
    "AvgPooling2D": "AveragePooling2D",
    "Concat": "Concatenate",
    "Dummy": "Identity",
    "GlobalAvgPooling1D": "GlobalAveragePooling1D",
    "GlobalAvgPooling2D": "GlobalAveragePooling2D",
    "L2Norm": "UnitNormalization",
    "Merge": "Add",
    "Upsampling2D": "UpSampling2D",
}

#: {our class: paths of its arrays in Keras's order}; {} is the layer.
_KERNEL = ("parameters/{}/weight", "parameters/{}/bias")
_SCALE = ("parameters/{}/gamma", "parameters/{}/beta")
VARIABLES = {
    "BatchNormalization": (*_SCALE, "state/{}/running_mean", "state/{}/running_var"),
    "Conv1D": _KERNEL,
    "Conv1DTranspose": _KERNEL,
    "Conv2D": _KERNEL,
    "Conv2DTranspose": _KERNEL,
    "Dense": _KERNEL,
    "DepthwiseConv2D": _KERNEL,
    "Embedding": _KERNEL[:1],
    "GroupNormalization": _SCALE,
    "LayerNormalization": _SCALE,
    "PReLU": ("parameters/{}/alpha",),
    "RMSNormalization": _SCALE[:1],
}

#: Classes whose arrays may have the axes of a sample.
_SHAPED = ("LayerNormalization", "PReLU")

#: {Keras's class: axes of our weight in Keras's order}, after the reshape to `Layout.split`.
_KERNELS = {
    "Conv1D": (2, 1, 0),  # (out, in, width) -> (width, in, out)
    "Conv1DTranspose": (2, 1, 0),  # (in, out, width) -> (width, out, in)
    "Conv2D": (2, 3, 1, 0),
    "Conv2DTranspose": (2, 3, 1, 0),
    "DepthwiseConv1D": (2, 0, 1),  # (in, out of each, width) -> (width, in, out of each)
    "DepthwiseConv2D": (2, 3, 0, 1),
}


def keras_class(info: LayerInfo, weight: Shape | None, depthwise: bool) -> str | None:
    """The layer's class in Keras, None if Keras has none. weight: its shape, None for a layer without one.

    depthwise: whether a Conv1D or Conv2D with a group for each of several channels is a DepthwiseConv, as other
    people's models may have it and files of former versions do. It is a Conv with that many groups where we write one.
    """
    if info.kind == "Dummy" and not info.sources:
        return "InputLayer"
    if depthwise and info.kind in ("Conv1D", "Conv2D") and weight is not None and weight[1:2] == (1,):
        return info.kind if info.inputs[0][:1] == (1,) else f"Depthwise{info.kind}"
    return CLASSES.get(info.kind)


def snake_case(name: str) -> str:
    """A class's name as Keras has it in paths: "MaxPooling2D" -> "max_pooling2d"."""
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def kernel(kind: str, shape: Shape, channels: int) -> Layout:
    """The layout of a convolution's weight. kind: Keras's class; shape: ours; channels: of the input."""
    out, per_group, *window = shape
    if "1D" in kind:
        window = window[1:]
    split = (channels, out // channels, *window) if kind.startswith("Depthwise") else (out, per_group, *window)
    return Layout(shape, split, _KERNELS[kind])


def _is_kernel(kind: str, shape: Shape, sample: Shape, channels: int) -> bool:
    """Whether a convolution of this class in Keras can have a weight of this shape, ours, on such samples.

    channels: of its output.
    """
    if len(shape) != 4 or ("1D" in kind and shape[2] != 1):
        return False
    if kind.endswith("Transpose"):
        return shape[:2] == (sample[0], channels)  # Keras's have no groups
    return not kind.startswith("Depthwise") or (shape[1] == 1 and shape[0] % sample[0] == 0)


def _has_axes(kind: str, name: str, shape: Shape) -> bool:
    """Whether an array of this name, which is no convolution's weight, can have so many axes."""
    if kind in _SHAPED:
        return len(shape) > 0
    return len(shape) == (2 if name == "weight" else 1)


def layout(kind: str, info: LayerInfo, order: Order, path: str, shape: Shape) -> Layout:
    """The layout of the array of this path and shape. kind: the layer's class in Keras; order: of its input's features.

    ValueError for an order that is unknown but matters, and for a shape that no such layer has.
    """
    sample, name = info.inputs[0], path.rpartition("/")[2]
    convolves = kind in _KERNELS and name == "weight"
    fits = _is_kernel(kind, shape, sample, info.outputs[0][0]) if convolves and sample else _has_axes(kind, name, shape)
    if not sample or not fits:
        raise ValueError(f"the shape {shape} of {path!r}, on samples of {sample}")
    if convolves:
        return kernel(kind, shape, sample[0])
    whole = len(shape) > 1 and (shape == sample or (kind == "PReLU" and len(shape) == len(sample)))
    if kind in _SHAPED and whole and order == (sample,):
        return Layout(shape, shape, (*range(1, len(shape)), 0))  # over a whole image
    by_feature = kind == "PReLU" or kind.endswith("Normalization")
    by_feature = (kind == "Dense" and name == "weight") or (by_feature and len(sample) == 1 and shape != (1,))
    if not by_feature or is_plain(order):
        return identity_layout(shape)
    if order is None or kind == "GroupNormalization":  # whose groups would be of other features
        raise ValueError(f"the order of the features that reach it is not known in Keras, wanted for {path!r}")
    if shape[:1] != (sum(map(prod, order)),):
        raise ValueError(f"the shape {shape} of {path!r}")
    return identity_layout(shape)._replace(order=order)


def guessed(kind: str, name: str, stored: Shape) -> Layout:
    """The layout of an array in a file without a net. kind: Keras's class; stored: the shape in the file.

    ValueError where the layout depends on the net.
    """
    if kind not in _KERNELS or name != "weight":
        if kind in _SHAPED and len(stored) > 1:
            raise ValueError("the order of its axes is not known")
        if not _has_axes(kind, name, stored):
            raise ValueError(f"the shape {stored} of {name!r}")
        return identity_layout(stored)
    axes = _KERNELS[kind]
    if len(stored) != len(axes):
        raise ValueError(f"the shape {stored} of {name!r}")
    split = tuple(stored[axis] for axis in np.argsort(axes))
    window = split[2:] if "2D" in kind else (1, *split[2:])
    first = (split[0] * split[1], 1) if kind.startswith("Depthwise") else split[:2]
    return Layout((*first, *window), split, axes)


class Layout(NamedTuple):
    """An array of ours in Keras: reshaped to `split`, its axes permuted by `axes`, its rows by `order`.

    gates: the number of our gate for each of Keras's, which lie along the last axis; () if they are the same. row:
    which of the two rows of Keras's array it is, None if it is all of it.
    """

    ours: Shape
    split: Shape
    axes: tuple[int, ...]
    order: Order = ()
    gates: tuple[int, ...] = ()
    row: int | None = None

    @property
    def keras(self) -> Shape:
        """The shape in Keras."""
        shape = tuple(self.split[axis] for axis in self.axes)
        return shape if self.row is None else (2, *shape)

    def rows(self) -> NDArray[np.intp] | None:
        """The number of our row for each row of Keras's; None where they have the same order."""
        if not self.order or is_plain(self.order):
            return None
        found, start = [], 0
        for piece in self.order:
            numbers = np.arange(start, start + prod(piece)).reshape(piece)
            found.append(np.moveaxis(numbers, 0, -1).reshape(-1))
            start += prod(piece)
        return np.concatenate(found)

    def view(self, array: Array) -> Array:
        """Our array with Keras's axes, its rows in our order; a view, unless gates are moved."""
        return self._gates_moved(array, self.gates).reshape(self.split).transpose(self.axes)

    @staticmethod
    def _gates_moved(array: Array, gates: Sequence[int]) -> Array:
        if not gates:
            return array
        parts = array.reshape(*array.shape[:-1], len(gates), array.shape[-1] // len(gates))
        return parts[..., list(gates), :].reshape(array.shape)

    def to_ours(self, array: Array) -> Array:
        """Keras's array as one of ours, C order."""
        array = array if self.row is None else array[self.row]
        array = self._gates_moved(array, np.argsort(self.gates).tolist())
        if self.order and not is_plain(self.order):
            return self._rows_moved(array)
        return np.ascontiguousarray(array.transpose(np.argsort(self.axes)).reshape(self.ours))

    def _rows_moved(self, array: Array) -> Array:
        """Keras's rows in our order. `rows` might take more memory than the array, whose shape a file decides."""
        moved, start = np.empty_like(array), 0
        for piece in self.order or ():
            rows, rest = slice(start, start + prod(piece)), array.shape[1:]
            theirs = array[rows].reshape(*piece[1:], piece[0], *rest)
            moved[rows].reshape(*piece, *rest)[...] = np.moveaxis(theirs, len(piece) - 1, 0)
            start += prod(piece)
        return moved


def identity_layout(shape: Shape) -> Layout:
    """The layout of an array that is the same in Keras."""
    return Layout(shape, shape, tuple(range(len(shape))))
