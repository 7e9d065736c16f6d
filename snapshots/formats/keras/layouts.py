"""Keras's classes for ours, their variables in order, and the layout of each array there."""

from __future__ import annotations

import re
from math import prod

import numpy as np

from singa_lite.snapshots.formats.keras.layout import Layout, same
from singa_lite.snapshots.formats.keras.net import LayerInfo
from singa_lite.snapshots.formats.keras.orders import Order, is_plain
from singa_lite.tensor import Shape

#: {our class: Keras's}, of the layers that both have.
CLASSES = {
    "Activation": "Activation",
    "AvgPooling1D": "AveragePooling1D",
    "AvgPooling2D": "AveragePooling2D",
    "BatchNormalization": "BatchNormalization",
    "Concat": "Concatenate",
    "Conv1D": "Conv1D",
    "Conv2D": "Conv2D",
    "Dense": "Dense",
    "Dropout": "Dropout",
    "Dummy": "Identity",
    "Embedding": "Embedding",
    "Flatten": "Flatten",
    "GlobalAvgPooling2D": "GlobalAveragePooling2D",
    "L2Norm": "UnitNormalization",
    "LayerNormalization": "LayerNormalization",
    "MaxPooling1D": "MaxPooling1D",
    "MaxPooling2D": "MaxPooling2D",
    "Merge": "Add",
    "Multiply": "Multiply",
    "RMSNormalization": "RMSNormalization",
    "Reshape": "Reshape",
    "Softmax": "Softmax",
    "Upsampling2D": "UpSampling2D",
}

#: {our class: paths of its arrays in Keras's order}; {} is the layer.
_KERNEL = ("parameters/{}/weight", "parameters/{}/bias")
_SCALE = ("parameters/{}/gamma", "parameters/{}/beta")
VARIABLES = {
    "BatchNormalization": (*_SCALE, "state/{}/running_mean", "state/{}/running_var"),
    "Conv1D": _KERNEL,
    "Conv2D": _KERNEL,
    "Dense": _KERNEL,
    "Embedding": _KERNEL[:1],
    "LayerNormalization": _SCALE,
    "RMSNormalization": _SCALE[:1],
}

#: {Keras's class: axes of our weight in Keras's order}, after the reshape to `Layout.split`.
_KERNELS = {
    "Conv1D": (2, 1, 0),  # (out, in, width) -> (width, in, out)
    "Conv2D": (2, 3, 1, 0),
    "DepthwiseConv1D": (2, 0, 1),  # (in, out of each, width) -> (width, in, out of each)
    "DepthwiseConv2D": (2, 3, 0, 1),
}


def keras_class(info: LayerInfo, weight: Shape | None, depthwise: bool = True) -> str | None:
    """The layer's class in Keras, None if Keras has none. weight: its shape, None for a layer without one.

    depthwise: whether a convolution with a group for each of several channels is a DepthwiseConv, not a Conv with that
    many groups. Both exist in Keras; other groups are Conv's alone.
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
    if kind.endswith("1D"):
        window = window[1:]
    split = (channels, out // channels, *window) if kind.startswith("Depthwise") else (out, per_group, *window)
    return Layout(shape, split, _KERNELS[kind])


def _is_kernel(kind: str, shape: Shape, sample: Shape) -> bool:
    """Whether a convolution of this class in Keras can have a weight of this shape, ours, on such samples."""
    if len(shape) != 4 or (kind.endswith("1D") and shape[2] != 1):
        return False
    return not kind.startswith("Depthwise") or (shape[1] == 1 and shape[0] % sample[0] == 0)


def _has_axes(kind: str, name: str, shape: Shape) -> bool:
    """Whether an array of this name, which is no convolution's weight, can have so many axes."""
    if kind == "LayerNormalization":
        return len(shape) > 0
    return len(shape) == (2 if name == "weight" else 1)


def layout(kind: str, info: LayerInfo, order: Order, path: str, shape: Shape) -> Layout:
    """The layout of the array of this path and shape. kind: the layer's class in Keras; order: of its input's features.

    ValueError for an order that is unknown but matters, and for a shape that no such layer has.
    """
    sample, name = info.inputs[0], path.rpartition("/")[2]
    convolves = kind in _KERNELS and name == "weight"
    if not sample or not (_is_kernel(kind, shape, sample) if convolves else _has_axes(kind, name, shape)):
        raise ValueError(f"the shape {shape} of {path!r}, on samples of {sample}")
    if convolves:
        return kernel(kind, shape, sample[0])
    if kind == "LayerNormalization" and len(shape) > 1 and shape == sample and order == (sample,):
        return Layout(shape, shape, (*range(1, len(shape)), 0))  # over a whole image
    by_feature = (kind == "Dense" and name == "weight") or (kind.endswith("Normalization") and len(sample) == 1)
    if not by_feature or is_plain(order):
        return same(shape)
    if order is None:
        raise ValueError(f"the order of the features that reach it is not known in Keras, wanted for {path!r}")
    if shape[:1] != (sum(map(prod, order)),):
        raise ValueError(f"the shape {shape} of {path!r}")
    return same(shape)._replace(order=order)


def guessed(kind: str, name: str, stored: Shape) -> Layout:
    """The layout of an array in a file without a net. kind: Keras's class; stored: the shape in the file.

    ValueError where the layout depends on the net.
    """
    if kind not in _KERNELS or name != "weight":
        if kind == "LayerNormalization" and len(stored) > 1:
            raise ValueError("the order of its axes is not known")
        if not _has_axes(kind, name, stored):
            raise ValueError(f"the shape {stored} of {name!r}")
        return same(stored)
    axes = _KERNELS[kind]
    if len(stored) != len(axes):
        raise ValueError(f"the shape {stored} of {name!r}")
    split = tuple(stored[axis] for axis in np.argsort(axes))
    window = split[2:] if kind.endswith("2D") else (1, *split[2:])
    first = (split[0] * split[1], 1) if kind.startswith("Depthwise") else split[:2]
    return Layout((*first, *window), split, axes)
