"""Options of a layer that are set after it was made: what follows them, and what cannot any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from singa_lite import device as devices
from singa_lite.common.described import Arguments, differences, options_of
from singa_lite.common.errors import GraphError
from singa_lite.common.option_version import equal_values
from singa_lite.device import Device
from singa_lite.layer.base import LayerBase

#: What a net makes of a layer, not its options.
OF_THE_NET = frozenset(
    {"_name", "_unnamed", "_holder", "_layers", "_parameters", "_states", "_made_in_setup", "_prepared_for", "context"}
    | {"_constants", "_frozen", "output_sample_shape", "input_sample_shapes", "shared_with", "trainable", "set_later"}
)


def check_changeable(layer: LayerBase, changes: Mapping[str, object]) -> None:
    """GraphError for an option that has done all that it does."""
    for name, value in changes.items():
        where = f"layer {layer.path!r}: {name}"
        if _holds_objects(layer.given_arguments.get(name)) or _holds_objects(value):
            raise GraphError(f"{where}: wanted what the layer was made with, received another; make another layer")
        if layer.context is None:
            continue
        if name == "input_sample_shape":
            raise GraphError(f"{where}: wanted it set before the layer is in a net, received {value!r:.100} afterwards")
        if name.endswith("_init") and not layer.context.device.is_abstract:
            raise GraphError(
                f"{where}: wanted it set before the layer is in a net, where it gives parameters their first values, "
                f"received {value!r:.100} afterwards; copy_from_numpy() of the parameters sets their values"
            )


def adopt(layer: LayerBase, changes: Mapping[str, object], before: LayerBase, after: LayerBase) -> None:
    """Take over what differs between two layers that were made anew, one of them with other values of these options.

    GraphError where it would change layers within the layer, parameters, state, or the shape of the output; what
    `setup` says of its inputs.
    """
    was, would_be = (list(_form(each, layer.context is not None)) for each in (before, after))
    if was != would_be:
        now = {name: layer.given_arguments.get(name, options_of(type(layer)).get(name)) for name in changes}
        raise GraphError(
            f"layer {layer.path!r}: {', '.join(changes)}: wanted a value by which parameters, state, layers within it "
            f"and the output stay of the same names and shapes, received {list(changes.values())!r:.100} in the place "
            f"of {list(now.values())!r:.100}; make another layer"
        )
    _take(layer, before, after)


def _take(layer: LayerBase, before: LayerBase, after: LayerBase) -> None:
    for name, value in differences(before, after).items():
        if name not in OF_THE_NET and not _holds_objects(value):
            object.__setattr__(layer, name, value)
    given, wanted = before.given_arguments, after.given_arguments
    changed = {
        name: value for name, value in wanted.items() if name not in given or not equal_values(given[name], value)
    }
    layer._given = Arguments({**layer.given_arguments, **changed}, True)
    for name, inner in layer._layers.items():
        if name in after._layers:
            _take(inner, before._layers[name], after._layers[name])


def _form(layer: LayerBase, is_set_up: bool) -> Iterator[object]:
    """What a change must leave as it is."""
    for each in layer.with_sublayers():
        yield each.path, type(each), [(name, tensor.shape) for name, tensor in each.constants.items()]
    if is_set_up:
        yield layer.output_sample_shapes
        for table in (layer.parameters, layer.states, layer.frozen):
            yield from ((name, tensor.shape, tensor.dtype) for name, tensor in table.items())


def _holds_objects(value: object) -> bool:
    """Whether there are layers in it, or a net of layers, which are not made again."""
    if isinstance(value, list | tuple | set):
        return any(map(_holds_objects, value))
    return hasattr(value, "with_sublayers") or hasattr(value, "ordered")


@cache
def trial_device() -> Device:
    """Where layers are set up to see what they would be."""
    return devices.abstract("numpy")
