"""Layers of a net that compute otherwise than Keras's of the same class, though these have the same arrays."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from singa_lite.common.notice import warn
from singa_lite.layer.layer import Layer
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layers._windows import padded
from singa_lite.layers.convolution.convolution import Convolution
from singa_lite.layers.convolution.transposed_convolution import TransposedConvolution, keras_pads
from singa_lite.layers.pooling.pooling import AvgPooling, Pooling
from singa_lite.snapshots.formats.keras.net import LayerInfo, layers_of
from singa_lite.snapshots.formats.keras.orders import channel_axes, input_orders
from singa_lite.snapshots.tree import Tree
from singa_lite.tensor import Shape

#: Layers that go along the last axis, which has the channels in Keras.
_LAST_AXIS = ("LayerNormalization", "RMSNormalization")


def warn_of(net: LayerGraph, wanted: Tree, where: str) -> None:
    """Warns of layers that no layer of Keras with the same arrays is like. wanted: the net's tree; where: the file."""
    infos = layers_of(where, wanted.attributes)
    axes, orders = channel_axes(infos), input_orders(infos)
    found = [f"{name!r} (Reshape) {text}" for name, info in infos.items() for text in _of_features(info, axes)]
    found += [
        f"{layer.path!r} ({type(layer).__name__}) {text}"
        for path, layer in net.all_layers().items()
        for shape in layer._prepared_for[:1]
        for text in _texts(layer, shape, len(shape) > 2 or (len(shape) == axes and orders.get(path) == (shape,)))
    ]
    if found:
        warn(
            f"{where}: the values of Keras's layers were read into layers of another kind, whose outputs differ: "
            f"{'; '.join(found[:8])}{'; ...' if found[8:] else ''}"
        )


def _texts(layer: Layer, shape: Shape, has_channels: bool) -> Iterator[str]:
    """What differs. shape: of its input samples; has_channels: whether these are images or sequences of channels."""
    kind = type(layer).__name__
    if isinstance(layer, Convolution | Pooling):
        given = layer.padding is not None or layer.given_arguments.get("pad") is not None
        yield from () if given else _of_pads(layer, shape)
    if isinstance(layer, AvgPooling) and layer.count_pad and any(layer.window.pad):
        yield "counts pads as zeros, Keras's leaves them out: wanted count_pad=False"
    if kind in _LAST_AXIS and has_channels and len(layer.parameters["gamma"].shape) < len(shape):
        yield f"goes along the last axis, of {shape[-1]}; Keras's goes along the channels: wanted Permute before it"
    if kind == "Softmax" and not has_channels and len(shape) > 1 and "axis" not in layer.given_arguments:
        yield "goes along axis 1, Keras's along the last one: wanted axis=-1"
    if kind == "GroupNormalization" and not has_channels and len(shape) > 1:
        yield "groups axis 1, Keras's the last one: wanted Permute before it"
    if kind == "L2Norm" and len(shape) > 1:
        yield "goes over a whole sample, Keras's UnitNormalization along the last axis"


def _of_features(info: LayerInfo, axes: int) -> Iterator[str]:
    """Of a Reshape that makes images of features, whose channels change last in Keras."""
    (before, *_), shape = info.inputs, info.outputs[0]
    if info.kind != "Reshape" or len(shape) < max(axes, 2) or shape[0] == 1 or prod(shape[1:]) == 1:
        return
    if len(before) < axes or before[0] != shape[0]:
        behind, order = (*shape[1:], shape[0]), (len(shape), *range(1, len(shape)))
        yield f"puts the features elsewhere than Keras's: wanted Reshape({behind}) and Permute({order}) behind it"


def _of_pads(layer: Convolution | Pooling, shape: Shape) -> Iterator[str]:
    """Of a layer whose border_mode says how it pads."""
    window, padding = layer.window, "same" if any(layer.window.pad) else "valid"
    ours: object = window.pad
    theirs: object = padded(window, padding, shape[1:]).pad
    if isinstance(layer, TransposedConvolution):
        ours, theirs = (window.pad, layer.output_padding), keras_pads(window, padding)
    if ours != theirs:
        yield f"has pads {ours}, Keras's padding={padding!r} has {theirs}: wanted padding={padding!r}"
