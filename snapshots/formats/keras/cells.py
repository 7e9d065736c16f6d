"""Keras's groups of recurrent layers, which hold cells, and of attention, which holds products by heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from singa_lite.snapshots.formats.keras.layout import Layout, identity_layout
from singa_lite.snapshots.formats.keras.layouts import snake_case
from singa_lite.snapshots.formats.keras.net import LayerInfo
from singa_lite.snapshots.formats.keras.orders import Order, is_plain
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
