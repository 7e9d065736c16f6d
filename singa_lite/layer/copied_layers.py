"""Layers of a net as layers within another layer, over the very bytes of their parameters and state."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from singa_lite.common.errors import GraphError
from singa_lite.common.nesting import make_room
from singa_lite.layer.layer import Layer, depth
from singa_lite.layer.layer_base.sharing import counterpart, share_bytes


def add_copies(holder: Layer, layers: Sequence[Layer]) -> None:
    """For `setup` of the holder: let it hold copies of these layers, set up as they are.

    Their parameters and state are the same bytes, under the holder's path. GraphError where one uses parameters of a
    layer that is not given.
    """
    _check_owners(holder, layers)
    make_room(len([*holder._held_by()]) + max(map(depth, layers), default=0))
    tensors = [t for layer in layers for table in (layer.parameters, layer.states) for t in table.values()]
    memo: dict[int, object] = {id(tensor): share_bytes(tensor) for tensor in tensors}
    other = holder.shared_with
    if other is not None:
        parameters = [counterpart(layer.name, holder, other).parameters for layer in layers]
        pairs = zip(layers, parameters, strict=True)
        memo |= {id(t): theirs[name] for layer, theirs in pairs for name, t in layer.parameters.items()}
    for layer in deepcopy(list(layers), memo):
        holder._check_free(f"layer {holder.path!r}: add_copies", layer.name)
        holder._layers[layer.name] = layer
        layer._holder = holder
        holder._made_in_setup.append(layer.name)
        _take_names(layer, None if other is None else other._layers[layer.name])


def _check_owners(holder: Layer, layers: Sequence[Layer]) -> None:
    for layer in layers:
        outside = [owner.name for owner in layer.owners() if owner not in layers]
        if outside:
            raise GraphError(
                f"layer {holder.path!r}: wanted layers that share parameters among themselves, received "
                f"{layer.name!r}, which uses those of {outside[0]!r}"
            )


def _take_names(layer: Layer, other: Layer | None) -> None:
    """Name tensors by the layer's path. other: the layer whose parameters they are."""
    layer.shared_with = other or layer.shared_with
    for table in [layer._states] if layer.shared_with else [layer._parameters, layer._states]:
        for name, tensor in table.items():
            tensor.name = f"{layer.path}/{name}"
    for inner in layer._layers.values():
        _take_names(inner, None if other is None else other._layers[inner.name])
