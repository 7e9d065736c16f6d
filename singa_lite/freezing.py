"""Which layers `freeze` leaves untrained, those within other layers too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from singa_lite.layer import Layer


class Freezing(NamedTuple):
    """What comes before the layer `freeze`.

    frozen: layers that do not train, by path; holding: paths of layers that hold some of these and others that train;
    the parameters that a holding layer has itself train. trained: all other layers, the holding ones among them.
    """

    frozen: dict[str, Layer]
    holding: frozenset[str]
    trained: list[Layer]


def freezing(layers: Iterable[Layer], freeze: str | None) -> Freezing:
    """layers: of a net, in topological order; layers within them stand in the order of adding.

    freeze: the path of the first layer that trains; None: all do.
    """
    inner = [layer for outer in layers for layer in outer.with_sublayers()]
    if freeze is None:
        return Freezing({}, frozenset(), inner)
    paths = [layer.path for layer in inner]
    at = paths.index(freeze)
    holding = frozenset(path for path in paths[:at] if freeze.startswith(f"{path}/"))
    frozen = {layer.path: layer for layer in inner[:at] if layer.path not in holding}
    return Freezing(frozen, holding, [layer for layer in inner if layer.path not in frozen])
