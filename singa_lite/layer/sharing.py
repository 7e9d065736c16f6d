"""Layers that use the parameters of others: what is used in the place of what, what does not fit, copies over bytes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.common.nesting import make_room
from singa_lite.layer.base import LayerBase
from singa_lite.tensor import Shape, Tensor


def borrowed(layer: LayerBase, other: LayerBase, table: str, name: str, shape: Shape) -> Tensor:
    """The tensor of the other layer's table that stands for a new one. ShapeError where it has none of this shape."""
    found: dict[str, Tensor] = getattr(other, table)
    if name not in found or found[name].shape != shape:
        theirs = {n: t.shape for n, t in found.items()}
        raise ShapeError(f"layer {layer.path!r}: wanted to share {name!r} of shape {shape}, received {theirs}")
    return found[name]


def check_shared(layer: LayerBase, other: LayerBase) -> None:
    """ShapeError unless `setup` has made all parameters of the layer that this one shares, inner layers' too."""
    if layer.parameters.keys() != other.parameters.keys():
        raise ShapeError(
            f"layer {layer.path!r}: wanted to share {sorted(layer.parameters)}, "
            f"but {other.path!r} has {sorted(other.parameters)}"
        )


def counterpart(name: str, layer: LayerBase) -> Any:
    """The layer whose parameters the inner layer of this name uses, where `layer` shares another layer's parameters.

    ShapeError where there is none.
    """
    found = layer.shared_with._layers.get(name)
    if found is None:
        raise ShapeError(
            f"layer {layer.path!r}: wanted to share the parameters of its {list(layer._layers)}, received "
            f"{layer.shared_with.path!r} with {list(layer.shared_with._layers)}"
        )
    return found


def depth(layers: Sequence[LayerBase]) -> int:
    """How many layers lie within each other, these included."""
    level, depth = list(layers), 0
    while level:
        level, depth = [inner for each in level for inner in each._layers.values()], depth + 1
    return depth


def add_copies(holder: LayerBase, layers: Sequence[LayerBase]) -> None:
    """For `setup` of the holder: let it hold copies of these layers, set up as they are.

    Their parameters and state are the same bytes, under the holder's path. GraphError where one uses parameters of a
    layer that is not given.
    """
    for layer in layers:
        outside = [owner.name for owner in layer.owners() if owner not in layers]
        if outside:
            raise GraphError(
                f"layer {holder.path!r}: wanted layers that share parameters among themselves, received "
                f"{layer.name!r}, which uses those of {outside[0]!r}"
            )
    make_room(len([*holder._holders()]) + depth(layers))
    tensors = [
        t for layer in layers for table in (layer.parameters, layer.states, layer.frozen) for t in table.values()
    ]
    memo: dict[int, object] = {id(tensor): _over_same_bytes(tensor) for tensor in tensors}
    every = (inner for layer in layers for inner in layer.with_sublayers())
    memo |= {id(tensor): tensor for each in every for tensor in each.constants.values()}
    others = [None if holder.shared_with is None else counterpart(layer.name, holder) for layer in layers]
    for layer, other in zip(layers, others, strict=True):
        if other is not None:
            memo |= {id(t): other.parameters[name] for name, t in layer.parameters.items()}
    for layer, other in zip(deepcopy(list(layers), memo), others, strict=True):
        holder._check_free(f"layer {holder.path!r}: add_copies", layer.name)
        holder._layers[layer.name] = layer
        layer._holder = holder
        holder._made_in_setup.append(layer.name)
        _name_tensors(layer, other)
        if not holder.trainable:
            layer.trainable = False


def _over_same_bytes(tensor: Tensor) -> Tensor:
    made = tensor.detach()
    made.layout, made.stores_grad, made.is_parameter = tensor.layout, tensor.stores_grad, tensor.is_parameter
    return made


def _name_tensors(layer: LayerBase, other: LayerBase | None) -> None:
    """Name tensors by the layer's path. other: the layer whose parameters they are."""
    layer.shared_with = other or layer.shared_with
    own = [layer._states] if layer.shared_with else [layer._parameters, layer._states, layer._frozen]
    for table in own:
        for name, tensor in table.items():
            tensor.name = f"{layer.path}/{name}"
    for inner in layer._layers.values():
        _name_tensors(inner, None if other is None else other._layers[inner.name])
