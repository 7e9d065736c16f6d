"""The contents of Keras's group of a layer: arrays, cells, products, other layers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from singa_lite.snapshots.formats.keras.cells import GATES, CellGroup, Owned, Variable, attention, recurrent
from singa_lite.snapshots.formats.keras.layouts import VARIABLES, keras_class, layout, snake_case
from singa_lite.snapshots.formats.keras.net import LayerInfo, chained
from singa_lite.snapshots.formats.keras.orders import (
    Order,
    channel_axes,
    input_orders,
    orders_within,
    steps_of,
)


class Described(NamedTuple):
    """Describes layers as Keras has them. owned: {layer: its arrays}; depthwise: as for `keras_class`."""

    owned: Owned
    depthwise: bool

    def parts(self, info: LayerInfo, order: Order, axes: int) -> tuple[str, list[CellGroup]]:
        """(name of its class in paths, its groups, its own first). order: of the features that reach it.

        axes: from how many on a sample has channels. ValueError for a layer that Keras lacks.
        """
        if info.kind in GATES:
            return recurrent(info, order, self.owned)
        if info.kind == "MultiHeadAttention":
            return attention(info, order, self.owned)
        if info.kind == "Bidirectional" and len(info.held) == 2:
            return "bidirectional", list(self._both_directions(info, order))
        if info.kind == "TimeDistributed" and len(info.held) == 1:
            return "time_distributed", list(self._steps(info, order))
        if info.kind == "SeparableConv2D" and len(info.held) == 2:
            return "separable_conv2d", [CellGroup("", info.last_name, tuple(self._separable(info)))]
        if info.kind == "Sequential":
            return "sequential", list(self._chain(info, order, axes))
        kind, variables = self._variables(info, order)
        return kind, [CellGroup("", info.last_name, variables)]

    def _variables(self, info: LayerInfo, order: Order) -> tuple[str, tuple[Variable, ...]]:
        """(name of its class in paths, its arrays). ValueError for arrays that Keras lacks."""
        owned = self.owned.get(info.name, {})
        paths = [path.format(info.name) for path in VARIABLES.get(info.kind, ())]
        strange = [path for path in owned if path not in paths]
        missing = [path for path in paths if path not in owned and not path.endswith("/bias")]
        if strange or missing:
            raise ValueError(f"arrays {strange} are not in it, {missing} are wanted")
        weight = owned[paths[0]].shape if paths else None
        kind = keras_class(info, weight, self.depthwise)
        if kind is None:
            # A class that Keras lacks gets a name that Keras never looks for: its own have neither dots nor capitals.
            return f"singa_lite.{re.sub(r'[^A-Za-z0-9]', '', info.kind)}", ()
        there = [path for path in paths if path in owned]
        layouts = [layout(kind, info, order, path, owned[path].shape) for path in there]
        return snake_case(kind), tuple(map(Variable, there, layouts, range(len(there))))

    def _separable(self, info: LayerInfo) -> Iterator[Variable]:
        """Both weights and the bias, side by side."""
        number = 0
        for kind, layer in zip(("DepthwiseConv2D", "Conv2D"), chained(info, info.inputs).values(), strict=True):
            for path, spec in sorted(self.owned.get(layer.name, {}).items(), reverse=True):  # the weight first
                yield Variable(path, layout(kind, layer, (layer.inputs[0],), path, spec.shape), number)
                number += 1

    def _both_directions(self, info: LayerInfo, order: Order) -> Iterator[CellGroup]:
        yield CellGroup("", info.last_name)
        for layer, direction in zip(info.held, ("forward", "backward"), strict=True):
            kind, parts = recurrent(layer, order, self.owned)
            names = {"": f"{direction}_{kind}"}
            yield from (_prefixed(f"/{direction}_layer", p._replace(name=names.get(p.within, p.name))) for p in parts)

    def _steps(self, info: LayerInfo, order: Order) -> Iterator[CellGroup]:
        if order is None:
            raise ValueError("the order of the features that reach it is not known in Keras")
        net = steps_of(info)
        orders, axes = input_orders(net), channel_axes(net)
        yield CellGroup("", info.last_name)
        for name, layer in net.items():
            yield from (_prefixed("/layer", part) for part in self.parts(_inner_layer(layer), orders[name], axes)[1])

    def _chain(self, info: LayerInfo, order: Order, axes: int) -> Iterator[CellGroup]:
        orders = orders_within(info, order, axes)
        counts: Counter[str] = Counter()
        yield CellGroup("", info.last_name)
        for name, layer in chained(info, info.inputs).items():
            kind, parts = self.parts(_inner_layer(layer), orders[name], axes)
            at = f"/layers/{numbered(kind, counts)}"
            yield from (_prefixed(at, part) for part in parts)


def _inner_layer(layer: LayerInfo) -> LayerInfo:
    """A layer within another. ValueError for one that uses the parameters of a third."""
    if layer.shares:
        raise ValueError(f"{layer.name!r} in it shares the parameters of {layer.shares!r}")
    return layer


def _prefixed(path: str, part: CellGroup) -> CellGroup:
    return part._replace(within=path + part.within)


def numbered(name: str, counts: Counter[str]) -> str:
    """The next group of this name: "dense", "dense_1" and so on."""
    number = counts[name]
    counts[name] += 1
    return f"{name}_{number}" if number else name
