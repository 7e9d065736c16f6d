"""What Keras's group of a layer holds: arrays, cells of recurrent layers, products of attention, other layers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from singa_lite.snapshots.formats.keras.layouts import VARIABLES, Layout, keras_class, layout, same, snake_case
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


class Part(NamedTuple):
    """A group within a layer's: its path below that one, "" for the layer's own; its name; its arrays."""

    within: str
    name: str
    variables: tuple[Variable, ...] = ()


class Described(NamedTuple):
    """Describes layers as Keras has them. owned: {layer: its arrays}; depthwise: as for `keras_class`."""

    owned: Mapping[str, Mapping[str, ArraySpec]]
    depthwise: bool

    def parts(self, info: LayerInfo, order: Order, axes: int) -> tuple[str, list[Part]]:
        """(name of its class in paths, its groups, its own first). order: of the features that reach it.

        axes: from how many on a sample has channels. ValueError for a layer that Keras lacks.
        """
        if info.kind in GATES:
            return self._recurrent(info, order)
        if info.kind == "MultiHeadAttention":
            return self._attention(info, order)
        if info.kind == "Bidirectional" and len(info.held) == 2:
            return "bidirectional", list(self._both_directions(info, order))
        if info.kind == "TimeDistributed" and len(info.held) == 1:
            return "time_distributed", list(self._steps(info, order))
        if info.kind == "Sequential":
            return "sequential", list(self._chain(info, order, axes))
        kind, variables = self._variables(info, order)
        return kind, [Part("", info.last_name, variables)]

    def _shapes(self, info: LayerInfo) -> Mapping[str, ArraySpec]:
        return self.owned.get(info.name, {})

    def _variables(self, info: LayerInfo, order: Order) -> tuple[str, tuple[Variable, ...]]:
        """(name of its class in paths, its arrays). ValueError for arrays that Keras lacks."""
        owned = self._shapes(info)
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

    def _recurrent(self, info: LayerInfo, order: Order) -> tuple[str, list[Part]]:
        """A cell; with two directions, as `Bidirectional` has them, one of each."""
        if not is_plain(order):
            raise ValueError("the order of the features that reach it is not known in Keras")
        if info.option("num_stacks") != 1:
            raise ValueError("it has several stacks; Keras has a layer for each")
        kind = snake_case(info.kind)
        if not info.option("bidirectional"):
            return kind, [Part("", info.last_name), self._cell(info, "/cell", "_l0")]
        found = [Part("", info.last_name)]
        for direction, ending in (("forward", "_l0"), ("backward", "_l0_reverse")):
            within = f"/{direction}_layer"
            found += [Part(within, f"{direction}_{kind}"), self._cell(info, f"{within}/cell", ending)]
        return "bidirectional", found

    def _cell(self, info: LayerInfo, within: str, ending: str) -> Part:
        owned, gates = self._shapes(info), GATES[info.kind]
        paths = {name: f"parameters/{info.name}/{name}{ending}" for name in ("weight_ih", "weight_hh")}
        biases = {name: f"parameters/{info.name}/{name}{ending}" for name in ("bias_ih", "bias_hh")}
        missing = [path for path in paths.values() if path not in owned]
        if missing:
            raise ValueError(f"{missing} are wanted")
        paths |= {name: path for name, path in biases.items() if path in owned}
        shapes = {name: owned[path].shape for name, path in paths.items()}
        if any(not shape or shape[-1] % len(gates) for shape in shapes.values()):
            raise ValueError(f"the shapes {shapes} of {len(gates)} gates")
        layouts = {name: same(shape)._replace(gates=_moved(gates)) for name, shape in shapes.items()}
        found = [Variable(paths[name], layouts[name], number) for number, name in enumerate(("weight_ih", "weight_hh"))]
        if "bias_hh" in paths and "bias_ih" in paths:
            apart = info.kind == "GRU" and info.option("reset_after") == 1
            rows = (0, 1) if apart else (None, None)
            one, other = (layouts[name]._replace(row=row) for name, row in zip(biases, rows, strict=True))
            found.append(Variable(paths["bias_ih"], one, 2))
            found.append(Variable(paths["bias_hh"], other, 2, "" if apart else paths["bias_ih"]))
        return Part(within, f"{snake_case(info.kind)}_cell", tuple(found))

    def _attention(self, info: LayerInfo, order: Order) -> tuple[str, list[Part]]:
        """Four products, each with an axis for the heads; grouped queries are another class."""
        if not is_plain(order):
            raise ValueError("the order of the features that reach it is not known in Keras")
        grouped = info.option("heads") != info.option("kv_heads")
        found = [Part("", info.last_name), Part("/_softmax", "softmax"), Part("/_dropout_layer", "dropout")]
        for name, option in _PRODUCTS:
            variables = self._product(f"{info.name}/{name}", info.option(option), name == "output")
            within = f"/_{name}_dense" if grouped else f"/{name}_dense"
            found.append(Part(within, f"attention_{name}" if name == "output" else name, tuple(variables)))
        return "grouped_query_attention" if grouped else "multi_head_attention", found

    def _product(self, layer: str, heads: int, is_last: bool) -> Iterator[Variable]:
        """is_last: whether it takes the heads, and does not give them."""
        owned = self.owned.get(layer, {})
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

    def _both_directions(self, info: LayerInfo, order: Order) -> Iterator[Part]:
        yield Part("", info.last_name)
        for layer, direction in zip(info.held, ("forward", "backward"), strict=True):
            kind, parts = self._recurrent(layer, order)
            names = {"": f"{direction}_{kind}"}
            yield from (_within(f"/{direction}_layer", p._replace(name=names.get(p.within, p.name))) for p in parts)

    def _steps(self, info: LayerInfo, order: Order) -> Iterator[Part]:
        if order is None:
            raise ValueError("the order of the features that reach it is not known in Keras")
        net = steps_of(info)
        orders, axes = input_orders(net), channel_axes(net)
        yield Part("", info.last_name)
        for name, layer in net.items():
            yield from (_within("/layer", part) for part in self.parts(_own(layer), orders[name], axes)[1])

    def _chain(self, info: LayerInfo, order: Order, axes: int) -> Iterator[Part]:
        orders = orders_within(info, order, axes)
        counts: Counter[str] = Counter()
        yield Part("", info.last_name)
        for name, layer in chained(info, info.inputs).items():
            kind, parts = self.parts(_own(layer), orders[name], axes)
            at = f"/layers/{numbered(kind, counts)}"
            yield from (_within(at, part) for part in parts)


def _moved(gates: tuple[int, ...]) -> tuple[int, ...]:
    """() where they are in order."""
    return () if gates == tuple(range(len(gates))) else gates


def _own(layer: LayerInfo) -> LayerInfo:
    """A layer within another. ValueError for one that uses the parameters of a third."""
    if layer.shares:
        raise ValueError(f"{layer.name!r} in it shares the parameters of {layer.shares!r}")
    return layer


def _within(path: str, part: Part) -> Part:
    return part._replace(within=path + part.within)


def numbered(name: str, counts: Counter[str]) -> str:
    """The next group of this name: "dense", "dense_1" and so on."""
    number = counts[name]
    counts[name] += 1
    return f"{name}_{number}" if number else name
