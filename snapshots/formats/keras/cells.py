"""The contents of Keras's group of a layer: arrays, cells of recurrent layers, products of attention, other layers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from singa_lite.snapshots.formats.keras.layouts import (
    VARIABLES,
    Layout,
    identity_layout,
    keras_class,
    layout,
    snake_case,
)
from singa_lite.snapshots.formats.keras.net import LayerInfo, chained
from singa_lite.snapshots.formats.keras.orders import (
    Order,
    channel_axes,
    input_orders,
    is_plain,
    orders_within,
    steps_of,
)
from singa_lite.snapshots.tree import ArraySpec
from singa_lite.tensor import Shape

#: {layer: its arrays by path}.
Owned = Mapping[str, Mapping[str, ArraySpec]]

#: {class of a recurrent layer: the number of our gate for each of Keras's}. Ours are PyTorch's: i, f, g, o and r, z, n.
GATES = {"LSTM": (0, 1, 2, 3), "GRU": (1, 0, 2), "SimpleRNN": (0,)}

#: The products of an attention, their names in Keras, and the option that says of how many heads they are.
_PRODUCTS = (("query", "heads"), ("key", "kv_heads"), ("value", "kv_heads"), ("output", "heads"))


class Variable(NamedTuple):
    """An array of the tree, its layout in Keras, and the number of the array there that it is, or is a row of.

    added_to: the path of the other summand, where Keras has but the sum: this one is 0 in the file's place; "" if not.
    """

    path: str
    layout: Layout
    number: int
    added_to: str = ""

    @property
    def is_stored(self) -> bool:
        """Whether it is in the file."""
        return not self.added_to


class CellGroup(NamedTuple):
    """A group within a layer's: its path below that one, "" for the layer's own; its name; its arrays."""

    within: str
    name: str
    variables: tuple[Variable, ...] = ()


def recurrent(info: LayerInfo, order: Order, owned: Owned) -> tuple[str, list[CellGroup]]:
    """A cell; with two directions, as `Bidirectional` has them, one of each."""
    if not is_plain(order):
        raise ValueError("the order of the features that reach it is not known in Keras")
    if info.option("num_stacks") != 1:
        raise ValueError("it has several stacks; Keras has a layer for each")
    kind, arrays = snake_case(info.kind), owned.get(info.name, {})
    if not info.option("bidirectional"):
        return kind, [CellGroup("", info.last_name), _cell(info, "/cell", "_l0", arrays)]
    found = [CellGroup("", info.last_name)]
    for direction, ending in (("forward", "_l0"), ("backward", "_l0_reverse")):
        within = f"/{direction}_layer"
        found += [CellGroup(within, f"{direction}_{kind}"), _cell(info, f"{within}/cell", ending, arrays)]
    return "bidirectional", found


def _cell(info: LayerInfo, within: str, ending: str, owned: Mapping[str, ArraySpec]) -> CellGroup:
    gates = GATES[info.kind]
    paths = {name: f"parameters/{info.name}/{name}{ending}" for name in ("weight_ih", "weight_hh")}
    biases = {name: f"parameters/{info.name}/{name}{ending}" for name in ("bias_ih", "bias_hh")}
    missing = [path for path in paths.values() if path not in owned]
    if missing:
        raise ValueError(f"{missing} are wanted")
    paths |= {name: path for name, path in biases.items() if path in owned}
    shapes = {name: owned[path].shape for name, path in paths.items()}
    if any(not shape or shape[-1] % len(gates) for shape in shapes.values()):
        raise ValueError(f"the shapes {shapes} of {len(gates)} gates")
    layouts = {name: identity_layout(shape)._replace(gates=_gate_order(gates)) for name, shape in shapes.items()}
    found = [Variable(paths[name], layouts[name], number) for number, name in enumerate(("weight_ih", "weight_hh"))]
    if "bias_hh" in paths and "bias_ih" in paths:
        apart = info.kind == "GRU" and info.option("reset_after") == 1
        rows = (0, 1) if apart else (None, None)
        one, other = (layouts[name]._replace(row=row) for name, row in zip(biases, rows, strict=True))
        found.append(Variable(paths["bias_ih"], one, 2))
        found.append(Variable(paths["bias_hh"], other, 2, "" if apart else paths["bias_ih"]))
    return CellGroup(within, f"{snake_case(info.kind)}_cell", tuple(found))


def attention(info: LayerInfo, order: Order, owned: Owned) -> tuple[str, list[CellGroup]]:
    """Four products, each with an axis for the heads; grouped queries are another class."""
    if not is_plain(order):
        raise ValueError("the order of the features that reach it is not known in Keras")
    if dict(info.options).get("rotary"):
        raise ValueError("it turns queries and keys by their positions, which Keras's does not")
    grouped = info.option("heads") != info.option("kv_heads")
    found = [CellGroup("", info.last_name), CellGroup("/_softmax", "softmax"), CellGroup("/_dropout_layer", "dropout")]
    for name, option in _PRODUCTS:
        layer = f"{info.name}/{name}"
        variables = _product(layer, info.option(option), name == "output", owned.get(layer, {}))
        within = f"/_{name}_dense" if grouped else f"/{name}_dense"
        found.append(CellGroup(within, f"attention_{name}" if name == "output" else name, tuple(variables)))
    return "grouped_query_attention" if grouped else "multi_head_attention", found


def _product(layer: str, heads: int, is_last: bool, owned: Mapping[str, ArraySpec]) -> Iterator[Variable]:
    """is_last: whether it takes the heads, and does not give them."""
    weight, bias = (f"parameters/{layer}/{name}" for name in ("weight", "bias"))
    shape = owned[weight].shape if weight in owned else ()
    if len(shape) != 2 or heads < 1 or shape[0 if is_last else 1] % heads:
        raise ValueError(f"the shape {shape} of {weight!r} of {heads} heads")
    split: Shape = (heads, shape[0] // heads, shape[1]) if is_last else (shape[0], heads, shape[1] // heads)
    yield Variable(weight, Layout(shape, split, (0, 1, 2)), 0)
    if bias in owned:
        if owned[bias].shape != shape[1:]:
            raise ValueError(f"the shape {owned[bias].shape} of {bias!r}")
        split = shape[1:] if is_last else split[1:]
        yield Variable(bias, Layout(shape[1:], split, tuple(range(len(split)))), 1)


def _gate_order(gates: tuple[int, ...]) -> tuple[int, ...]:
    """() where they are in order."""
    return () if gates == tuple(range(len(gates))) else gates


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
