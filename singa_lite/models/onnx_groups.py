"""The nodes of an ONNX graph in groups, each a layer: between groups there are tensors of floats, batch first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

import numpy as np

from singa_lite.autograd import no_grad
from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import SnapshotError
from singa_lite.device import Device
from singa_lite.layers.onnx.nodes import by_output, run
from singa_lite.layers.onnx.table import ARRAYS, MOST
from singa_lite.tensor import Shape, Tensor

#: A node as `layers.onnx.OnnxNodes` takes it.
Node = Mapping[str, Any]

#: {operator: {place of an input: the name of the parameter}}
WEIGHTS: Mapping[str, Mapping[int, str]] = {
    **{kind: {1: "weight", 2: "bias"} for kind in ("Conv", "ConvTranspose", "Gemm")},
    **{kind: {1: "weight", 2: "recurrent_weight", 3: "bias"} for kind in ("LSTM", "GRU", "RNN")},
    **{kind: {1: "gamma", 2: "beta"} for kind in ("BatchNormalization", "LayerNormalization")},
    **{"MatMul": {0: "weight", 1: "weight"}, "Gather": {0: "weight"}, "PRelu": {1: "slope"}},
    **{"Add": {0: "bias", 1: "bias"}, "Mul": {0: "gamma", 1: "gamma"}},
}
#: The same of states.
STATES: Mapping[str, Mapping[int, str]] = {"BatchNormalization": {3: "running_mean", 4: "running_var"}}
#: Numbers beyond it are those of masks, which do not train.
_LARGEST = 1e4


class Known(NamedTuple):
    """What is known of a graph. fed: {input: (sample shape, dtype)}; arrays: constants by value, weights among them."""

    nodes: list[Node]
    outputs: list[str]
    fed: Mapping[str, tuple[Shape, DType]]
    arrays: dict[str, Array]
    weights: Mapping[str, str]
    running: Mapping[str, str]


class Group(NamedTuple):
    """What one layer has. takes, makes: values; weights, running: {parameter or state: value}."""

    name: str
    nodes: list[Node]
    takes: list[str]
    makes: list[str]
    weights: dict[str, str]
    running: dict[str, str]


def known_of(
    nodes: Sequence[Node],
    outputs: Sequence[str],
    fed: Mapping[str, tuple[Shape, DType]],
    arrays: Mapping[str, Array],
) -> Known:
    """The graph without nodes that no output needs, that pass a value on, or that follow from constants."""
    arrays, left, same = dict(arrays), list[Node](), dict[str, str]()
    most = max([MOST, *(array.size for array in arrays.values())])
    for given in _used_nodes(nodes, outputs):
        node = {**given, "inputs": [same.get(name, name) for name in given["inputs"]]}
        if node["operator"] in ("Identity", "Dropout"):
            same |= by_output(node, node["inputs"][:1])
        elif node["operator"] in ARRAYS and all(name in arrays for name in node["inputs"]):
            run([node], arrays)
            if any(arrays[name].size > most for name in node["outputs"] if name):
                raise SnapshotError(
                    f"node {node['name']!r}: wanted constants of at most {most} elements, received more"
                )
        else:
            left.append(node)
    weights, running = _roles(left, arrays, WEIGHTS), _roles(left, arrays, STATES)
    return Known(left, [same.get(name, name) for name in outputs], fed, arrays, weights, running)


def _used_nodes(nodes: Sequence[Node], outputs: Sequence[str]) -> list[Node]:
    """Returns the nodes that the outputs need, in their order; an output that nothing uses is called ""."""
    wanted, found = set(outputs), list[Node]()
    for node in reversed(nodes):
        made = [name if name in wanted else "" for name in node["outputs"]]
        if any(made):
            wanted |= set(node["inputs"]) - {""}
            found.append({**node, "outputs": made})
    return found[::-1]


def _roles(
    nodes: Sequence[Node], arrays: Mapping[str, Array], table: Mapping[str, Mapping[int, str]]
) -> dict[str, str]:
    """{value: name of the parameter} of those that are arrays of several floats."""
    found: dict[str, str] = {}
    for node in nodes:
        for place, name in table.get(node["operator"], {}).items():
            value = node["inputs"][place] if place < len(node["inputs"]) else ""
            array = arrays.get(value)
            if array is not None and array.dtype.kind == "f" and array.size > 1 and np.abs(array).max() < _LARGEST:
                found.setdefault(value, name)
    return found


# ---- shapes


def _trace(known: Known, batch: int, device: Device) -> dict[str, tuple[Shape, DType] | None]:
    """Shape and dtype of each value for a batch; None for arrays."""
    with device.recording(), no_grad():
        values: dict[str, Any] = dict(known.arrays)
        values |= {
            name: device.empty(known.arrays[name].shape, np.float32) for name in (*known.weights, *known.running)
        }
        for name, (shape, dtype) in known.fed.items():
            values[name] = device.empty((batch, *shape), np.int64 if dtype.kind == "i" else np.float32)
        run(known.nodes, values)
        return {name: (v.shape, v.dtype) if isinstance(v, Tensor) else None for name, v in values.items()}


def _is_batch_first(found: Sequence[tuple[Shape, DType] | None], batches: Sequence[int]) -> bool:
    if any(one is None or one[0][:1] != (batch,) for one, batch in zip(found, batches, strict=True)):
        return False
    return len({one[0][1:] for one in found if one is not None}) == 1


# ---- groups


class _Grouping:
    """Nodes that compute tensors, in sets that grow together. Those that compute shapes are done again in each set."""

    def __init__(self, known: Known, device: Device) -> None:
        self.known = known
        batches = 2, 3
        traces = [_trace(known, batch, device) for batch in batches]
        self.maker = {name: at for at, node in enumerate(known.nodes) for name in node["outputs"] if name}
        self.is_first = {name: _is_batch_first([t[name] for t in traces], batches) for name in traces[0]}
        self.between = {name for name, first in self.is_first.items() if first and _is_float(traces[0][name])}
        self.tensors = {at for name, at in self.maker.items() if traces[0][name] is not None}
        self.needs: list[tuple[set[str], set[int]]] = []
        for node in known.nodes:
            self.needs.append(self._tensors_of(node))
        self.set_of = {at: at for at in self.tensors}

    def _tensors_of(self, node: Node) -> tuple[set[str], set[int]]:
        """The tensors that a node needs, and the nodes before it that compute shapes."""
        values, before = set[str](), set[int]()
        for name in node["inputs"]:
            at = self.maker.get(name)
            if at is not None and at not in self.tensors:
                values |= self.needs[at][0]
                before |= {at, *self.needs[at][1]}
            elif at is not None or name in self.known.fed:
                values.add(name)
        return values, before

    def join(self, one: int, other: int) -> None:
        """Put the sets of two nodes together."""
        kept, gone = self.set_of[one], self.set_of[other]
        if kept != gone:
            self.set_of = {at: kept if found == gone else found for at, found in self.set_of.items()}

    def arranged(self) -> list[int]:
        """The sets in an order in which each comes behind those it needs; those in a circle become one."""
        for at in sorted(self.tensors):
            for name in self.needs[at][0] - self.between - self.known.fed.keys():
                self.join(at, self.maker[name])
        while True:
            before: dict[int, set[int]] = {self.set_of[at]: set() for at in sorted(self.tensors)}
            for at in sorted(self.tensors):
                makers = {self.set_of[self.maker[name]] for name in self.needs[at][0] if name in self.maker}
                before[self.set_of[at]] |= makers - {self.set_of[at]}
            try:
                return list(TopologicalSorter(before).static_order())
            except CycleError as error:
                first, *others = error.args[1]
                for other in others:
                    self.join(first, other)

    def group(self, found: int) -> tuple[list[Node], list[str], list[str]]:
        """Nodes of a set, what they take and what others want of it."""
        members = sorted(at for at in self.tensors if self.set_of[at] == found)
        others = [at for at in self.tensors if self.set_of[at] != found]
        wanted = set(self.known.outputs).union(*(self.needs[at][0] for at in others))
        made = [name for at in members for name in self.known.nodes[at]["outputs"]]
        taken = dict.fromkeys(name for at in members for name in sorted(self.needs[at][0]) if name not in made)
        order = sorted({*members, *(one for at in members for one in self.needs[at][1])})
        return [self.known.nodes[at] for at in order], list(taken), [name for name in made if name in wanted]


def _is_float(found: tuple[Shape, DType] | None) -> bool:
    return found is not None and found[1] == np.float32


def groups_of(known: Known, device: Device) -> list[Group]:
    """One for each layer, each behind those that make what it takes."""
    grouping = _Grouping(known, device)
    bad = [name for name in known.outputs if not grouping.is_first.get(name)]
    if bad:
        raise SnapshotError(f"from_onnx: wanted outputs whose first axis is the batch, received others: {bad}")
    found: list[Group] = []
    taken = {layer_name(name) for name in (*known.fed, *known.outputs)}
    for one in grouping.arranged():
        nodes, takes, makes = grouping.group(one)
        weights, running = (_named(nodes, table) for table in (known.weights, known.running))
        name = unique(layer_name(_title(nodes, known)), taken)
        found.append(Group(name, nodes, takes, makes, weights, running))
    return found


def _named(nodes: Sequence[Node], table: Mapping[str, str]) -> dict[str, str]:
    """{name: value} of the weights of some nodes: weight, weight_1, ..."""
    count, found = Counter[str](), dict[str, str]()
    for value in dict.fromkeys(name for node in nodes for name in node["inputs"] if name in table):
        name = table[value]
        found[f"{name}_{count[name]}" if count[name] else name] = value
        count[name] += 1
    return found


def _title(nodes: Sequence[Node], known: Known) -> str:
    """The name of the first node with weights, of the last one where there is none."""
    chosen = next((node for node in nodes if any(name in known.weights for name in node["inputs"])), nodes[-1])
    return str(chosen["name"] or chosen["operator"].lower())


def layer_name(name: str) -> str:
    """The name of a value or a node as one of a layer, with dots for slashes."""
    return name.strip("/").replace("/", ".") or "value"


def unique(name: str, taken: set[str]) -> str:
    """The name, or one with a number behind; it is added to those that are taken."""
    found, number = name, 0
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found
