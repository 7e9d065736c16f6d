"""Layers that use the parameters of others: what is used in the place of what, and what does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from singa_lite.common.errors import ShapeError
from singa_lite.common.table import Table
from singa_lite.tensor import Shape, Tensor

Held_co = TypeVar("Held_co", covariant=True)


class Sharing(Protocol):
    """What is asked here of a layer's parameters."""

    _parameters: dict[str, Tensor]

    @property
    def path(self) -> str: ...
    @property
    def parameters(self) -> Table[Tensor]: ...


class Holding(Protocol[Held_co]):
    """What is asked here of a layer that holds others."""

    @property
    def path(self) -> str: ...
    @property
    def layers(self) -> Mapping[str, Held_co]: ...


def borrowed(layer: Sharing, other: Sharing, name: str, shape: Shape) -> Tensor:
    """The parameter of the other layer that stands for this new one. ShapeError where it has none of this shape."""
    if name not in other._parameters or other._parameters[name].shape != shape:
        theirs = {n: t.shape for n, t in other.parameters.items()}
        raise ShapeError(f"layer {layer.path!r}: wanted to share {name!r} of shape {shape}, received {theirs}")
    return other._parameters[name]


def check_shared(layer: Sharing, other: Sharing | None) -> None:
    """ShapeError unless `setup` has made all parameters of the other layer, those of layers within it too."""
    if other is not None and layer.parameters.keys() != other.parameters.keys():
        raise ShapeError(
            f"layer {layer.path!r}: wanted to share {sorted(layer.parameters)}, "
            f"but {other.path!r} has {sorted(other.parameters)}"
        )


def counterpart(name: str, layer: Holding[Held_co], other: Holding[Held_co]) -> Held_co:
    """The layer in `other` whose parameters the one of this name in `layer` uses. ShapeError where there is none."""
    found = other.layers.get(name)
    if found is None:
        raise ShapeError(
            f"layer {layer.path!r}: wanted to share the parameters of its {list(layer.layers)}, received "
            f"{other.path!r} with {list(other.layers)}"
        )
    return found


def share_bytes(tensor: Tensor) -> Tensor:
    """A parameter or state over the same bytes."""
    made = tensor.detach()
    made.layout, made.stores_grad = tensor.layout, tensor.stores_grad
    return made
