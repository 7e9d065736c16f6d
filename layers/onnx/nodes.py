"""OnnxNodes: some nodes of an ONNX graph as a layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from singa_lite import autograd
from singa_lite.common.array_types import Array
from singa_lite.common.errors import SnapshotError
from singa_lite.layer.layer import Layer, SampleShape
from singa_lite.layers.onnx import elements, moving, products  # noqa: F401  their functions enter themselves
from singa_lite.layers.onnx.table import ARRAYS, TENSORS, OnnxNode, Value, functions_for
from singa_lite.tensor import Shape, Tensor


class OnnxNodes(Layer):
    """Runs nodes of an ONNX graph in their order; `models.from_onnx` makes it of a file.

    nodes: of each {"name", "operator", "inputs", "outputs", "attributes"}; inputs and outputs name values. takes,
    makes: the values that are the layer's inputs and outputs, batch first. weights, running: {name of a parameter or a
    state: (the value that it is, its shape)}. arrays: {value: constant}. ids: {value: how many ids there are} of those
    inputs that are integers. Computations of shapes are done as a step is recorded, so the batch may have any size.

    >>> node = {"name": "double", "operator": "Add", "inputs": ["x", "x"], "outputs": ["y"], "attributes": {}}
    >>> net = Sequential([layers.Input((3,)), layers.onnx.OnnxNodes("double", [node], ["x"], ["y"])])
    >>> print(net.predict([[1.0, 2.0, 3.0]]))
    [[2. 4. 6.]]
    """

    def __init__(
        self,
        name: str,
        nodes: Sequence[Mapping[str, Any]],
        takes: Sequence[str],
        makes: Sequence[str],
        weights: Mapping[str, tuple[str, Sequence[int]]] | None = None,
        running: Mapping[str, tuple[str, Sequence[int]]] | None = None,
        arrays: Mapping[str, Array] | None = None,
        ids: Mapping[str, int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        unknown = sorted({str(one["operator"]) for one in nodes} - known_operators())
        if unknown:
            raise ValueError(f"layer {name!r}: wanted operators of ONNX that are here, received {unknown}")
        self.nodes, self.takes, self.makes = list(nodes), list(takes), list(makes)
        self.weights, self.running, self.ids = dict(weights or {}), dict(running or {}), dict(ids or {})
        self.arrays = dict(arrays or {})
        object.__setattr__(self, "batch_statistics", bool(self.running))
        self.input_ids = min(self.ids.values(), default=None)

    def setup(self, *shapes: Shape) -> SampleShape:
        """The sample shapes of the outputs, of one alone by itself."""
        for name, (_, shape) in self.weights.items():
            self.add_parameter(name, tuple(shape), 0.0)
        for name, (_, shape) in self.running.items():
            self.add_state(name, tuple(shape))
        device = self._placed().device
        with device.recording(), autograd.no_grad():
            dtypes = [np.dtype(np.int64) if one in self.ids else self.dtype for one in self.takes]
            inputs = [device.empty((2, *shape), dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
            found = [output.shape[1:] for output in self._outputs(False, inputs)]
        return found if len(found) > 1 else found[0]

    def forward(self, training: bool, *xs: Tensor) -> Tensor | list[Tensor]:
        """xs, each (n, ...) -> the outputs."""
        found = [autograd.identity(y) if any(y is x for x in xs) else y for y in self._outputs(training, xs)]
        return found if len(found) > 1 else found[0]

    def _outputs(self, training: bool, xs: Sequence[Tensor]) -> list[Tensor]:
        values: dict[str, Value] = {**self.arrays, **dict(zip(self.takes, xs, strict=True))}
        values |= {value: self.parameters[name] for name, (value, _) in self.weights.items()}
        values |= {value: self.states[name] for name, (value, _) in self.running.items()}
        run(self.nodes, values, training)
        return [values[name] for name in self.makes]


def known_operators() -> set[str]:
    """Names of all operators that can be run."""
    return TENSORS.keys() | ARRAYS.keys()


def run(nodes: Iterable[Mapping[str, Any]], values: dict[str, Value], training: bool = False) -> None:
    """Run the nodes in their order; values get what they make. SnapshotError, with the node's name, where one fails."""
    for one in nodes:
        node = OnnxNode(one["name"], one["operator"], one["attributes"], len(one["outputs"]), training)
        given = [values[name] if name else None for name in one["inputs"]]
        table, what = (TENSORS, "arrays alone") if functions_for(*given) is autograd else (ARRAYS, "tensors")
        if node.operator not in table:
            raise node.wants("others", what)
        try:
            made = table[node.operator](node, *given)
        except (ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
            raise SnapshotError(
                f"node {node.name!r}: wanted inputs that {node.operator} takes, received: {error}"
            ) from error
        values.update(by_output(one, made if isinstance(made, list) else [made]))


def by_output(node: Mapping[str, Any], results: Sequence[Value]) -> dict[str, Value]:
    """Returns a node's results by the names of its outputs; "" names one that nothing uses, which is left out.

    SnapshotError for an output that something uses, and for which there is no result.
    """
    more = [name for name in node["outputs"][len(results) :] if name]
    if more:
        raise SnapshotError(
            f"node {node['name']!r}: wanted the first {len(results)} outputs of {node['operator']} to be used, "
            f"received uses of {more}"
        )
    return {name: result for name, result in zip(node["outputs"], results, strict=False) if name}
