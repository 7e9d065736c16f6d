"""A layer is put into a net, taken out again, and moved from device to device, with those that it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from singa_lite.common.errors import GraphError
from singa_lite.common.table import Table
from singa_lite.device import Device
from singa_lite.layer.layer_base.layer_tensors import Context
from singa_lite.layer.layer_base.sample_shape import SampleShape, checked_output
from singa_lite.layer.layer_base.sharing import check_shared
from singa_lite.tensor import Shape, Tensor


class Placed(Protocol):
    """What is asked here of a layer."""

    setup: Callable[..., SampleShape]
    trainable: bool
    context: Context | None
    output_sample_shape: SampleShape | None
    shared_with: Any
    _layers: dict[str, Any]
    _made_in_setup: list[str]
    _parameters: dict[str, Tensor]
    _prepared_for: tuple[Shape, ...]
    _states: dict[str, Tensor]

    @property
    def path(self) -> str: ...
    @property
    def parameters(self) -> Table[Tensor]: ...
    def prepare(self, shapes: Sequence[Shape], context: Context) -> None: ...
    def reset(self) -> None: ...
    def with_sublayers(self) -> Iterator[Any]: ...
    def owners(self) -> Iterator[Any]: ...
    def _placed(self) -> Context: ...


def prepare(layer: Placed, shapes: Sequence[Shape], context: Context) -> None:
    """See `Layer.prepare`. Where `setup` fails, the layer is as before."""
    if layer.shared_with is not None and layer.shared_with.context is None:
        raise GraphError(
            f"layer {layer.path!r} shares the parameters of {layer.shared_with.path!r}, which is in no net yet"
        )
    layer.context, layer._prepared_for = context, tuple(shapes)
    try:
        with context.device.first_values():
            layer.output_sample_shape = checked_output(layer.path, layer.setup(*shapes))
        _check_held(layer)
        check_shared(layer, layer.shared_with)
        if not layer.trainable:
            layer.trainable = False  # for what `setup` has made
    except BaseException:
        layer.reset()
        raise


def _check_held(layer: Placed) -> None:
    left = [name for name, held in layer._layers.items() if held.context is None]
    if left:
        raise GraphError(
            f"layer {layer.path!r}: wanted setup() to set_up() each layer that it holds, received none for {left}"
        )


def reset(layer: Placed) -> None:
    """See `Layer.reset`."""
    layer._parameters, layer._states = {}, {}
    layer.context = layer.output_sample_shape = None
    for held in layer._layers.values():
        held.reset()
    for name in layer._made_in_setup:
        layer._layers.pop(name)._holder = None
    layer._made_in_setup = []


def move(layer: Placed, device: Device) -> None:
    """Parameters and state, and those of the layers within it, to another device."""
    other = layer.shared_with
    if other is not None:  # it may come after this layer, and must have moved by then
        other.to_device(device)
    for name, tensor in layer._parameters.items():
        layer._parameters[name] = tensor.to_device(device) if other is None else other.parameters[name]
    for name, tensor in layer._states.items():
        layer._states[name] = tensor.to_device(device)
    for held in layer._layers.values():
        held.to_device(device)
    layer.context = layer._placed()._replace(device=device)


def set_up_anew(layer: Placed, device: Device) -> None:
    """See `Layer.set_up_anew`."""
    context, shapes = layer._placed(), layer._prepared_for
    if context.device is device:
        return
    for owner in layer.owners():  # it may come after this layer, and must be there by then
        owner.set_up_anew(device)
    for each in layer.with_sublayers():
        each.before_anew(device)
    trains = {name: tensor.stores_grad for name, tensor in layer.parameters.items()}
    layer.reset()
    try:
        layer.prepare(shapes, context._replace(device=device))
    except BaseException:
        layer.prepare(shapes, context)
        raise
    finally:
        for name, tensor in layer.parameters.items():
            tensor.stores_grad = trains[name]
