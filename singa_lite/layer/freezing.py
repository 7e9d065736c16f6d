"""Freezing: the layers that `freeze` leaves untrained, those within other layers too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from singa_lite.common.checks import goes_through
from singa_lite.common.errors import GraphError
from singa_lite.layer.layer import Layer
from singa_lite.tensor import Tensor

#: The path of the first layer that trains; paths of the very layers that do not; or None: all train.
Freeze: TypeAlias = str | tuple[str, ...] | None


class Freezing(NamedTuple):
    """The layers that do not train.

    frozen: those before the first one that trains, by path; holding: paths of layers that hold some of these and others
    that train; the parameters that a holding layer has itself train. passing: paths of those that were chosen one by
    one, which derivatives pass through. trained: all other layers, the holding ones among them.
    """

    frozen: dict[str, Layer]
    holding: frozenset[str]
    passing: frozenset[str]
    trained: list[Layer]


def freezing(layers: Iterable[Layer], freeze: Freeze) -> Freezing:
    """layers: of a net, in topological order; layers within them stand in the order of adding."""
    inner = [layer for outer in layers for layer in outer.with_sublayers()]
    none = frozenset[str]()
    if freeze is None:
        return Freezing({}, none, none, inner)
    paths = [layer.path for layer in inner]
    if isinstance(freeze, tuple):
        passing = frozenset(path for path in paths if any(f"{path}/".startswith(f"{name}/") for name in freeze))
        return Freezing({}, none, passing, [layer for layer in inner if layer.path not in passing])
    at = paths.index(freeze)
    holding = frozenset(path for path in paths[:at] if freeze.startswith(f"{path}/"))
    frozen = {layer.path: layer for layer in inner[:at] if layer.path not in holding}
    return Freezing(frozen, holding, none, [layer for layer in inner if layer.path not in frozen])


def trained_values(layers: Iterable[Layer], freeze: Freeze) -> list[Tensor]:
    """The parameters that training updates, each once. layers: as for `freezing`."""
    trained = (layer for layer in freezing(layers, freeze).trained if layer.trainable)
    values = (value for layer in trained for value in layer.own_parameters.values() if value.stores_grad)
    return list({id(value): value for value in values}.values())


def names_in(freeze: Freeze) -> tuple[str, ...]:
    """The paths in it."""
    return freeze if isinstance(freeze, tuple) else () if freeze is None else (freeze,)


def checked(where: str, given: object, layers: Mapping[str, Layer]) -> Freeze:
    """What `compile(freeze=)` was given. layers: of the net, by path.

    TypeError for what is neither a name nor a list or set of names or layers, GraphError for a layer of another net, or
    a name of none.
    """
    if given is None or isinstance(given, str):
        chosen = [] if given is None else [given]
    elif isinstance(given, Collection) and goes_through(given):
        chosen = [_path(where, each, layers) for each in given]
    else:
        raise TypeError(
            f"{where}: wanted the name of the first layer that trains, or a list of layers or names that do not, "
            f"received {given!r:.100}"
        )
    for name in chosen:
        if name not in layers:
            raise GraphError(f"{where}: wanted the name of a layer of the net, received {name!r}")
    if isinstance(given, str):
        return given
    return tuple(name for name in layers if name in chosen) or None


def _path(where: str, given: object, layers: Mapping[str, Layer]) -> str:
    if isinstance(given, Layer):
        if layers.get(given.path) is not given:
            raise GraphError(f"{where}: wanted layers of the net, received {given.path!r}, which is not in it")
        return given.path
    if not isinstance(given, str):
        raise TypeError(f"{where}: wanted layers or their names, received {given!r:.100} among them")
    return given
