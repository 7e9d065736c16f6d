"""Run: one batch's way through the layers, and where the walk back begins."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from singa_lite.array_types import DType
from singa_lite.autograd import no_grad
from singa_lite.backward_pass import BackwardPass
from singa_lite.contexts import in_own_context
from singa_lite.device import Device
from singa_lite.errors import GraphError, ShapeError
from singa_lite.layer import Layer, LayerOutput, Node, OneOrMore
from singa_lite.layer_walk import LayerGradients, LayerWalk
from singa_lite.ops.op import Edge, Op
from singa_lite.ops.shape import Identity
from singa_lite.tensor import Shape, Tensor
from singa_lite.unique import Unique


def nothing() -> None:
    """Called before a change, where nobody has to be told of it."""


class _Seed(NamedTuple):
    edge: Edge
    shape: Shape
    dtype: DType


class Run(Unique):
    """One batch's way through the layers.

    Each input of a layer passes a port, an Identity on the tape: there a layer's part of the tape begins, and the
    derivative by that layer's input can be read off. A walk ends at the ports of the net's inputs: what made these, as
    another net may have, keeps its tape. What it is given is checked by whoever makes it.

    training: layers train, those before the layer `freeze` aside; else nothing is kept for a walk back. moving: called
    before a layer may move its state.
    """

    def __init__(
        self,
        nodes: list[Node],
        device: Device,
        training: bool,
        freeze: str | None,
        moving: Callable[[], object] = nothing,
    ) -> None:
        self.nodes = nodes
        self.device = device
        self.training = training
        self._moving = moving
        names = [node.layer.name for node in nodes]
        self._frozen = frozenset(names[: names.index(freeze)]) if freeze is not None else frozenset()
        self._ports: dict[str, list[Op]] = {}
        self._seeds: dict[str, list[_Seed]] = {}
        self._walk: LayerWalk | None = None

    @property
    def stopped_at(self) -> str:
        """The layer at which the walk back stands, "" before its first gradients and after its end."""
        return self._walk.stopped_at if self._walk is not None else ""

    @in_own_context
    def forward(self, inputs: dict[str, Tensor], output: Collection[str]) -> OneOrMore:
        """The outputs: one alone, or {layer: output} if there are several or some are wanted in `output` too.

        inputs: {input layer: batch}, emptied on the way.
        """
        if self.training:
            return self._forward(inputs, output)
        with no_grad():
            return self._forward(inputs, output)

    def _forward(self, inputs: dict[str, Tensor], output: Collection[str]) -> OneOrMore:
        """All layers in order; each output is let go of as soon as its last consumer has run."""
        self._check_frozen_inputs(inputs)
        uses = Counter(source for node in self.nodes for source in node.sources)
        values: dict[tuple[str, int], Tensor] = {}
        results: dict[str, LayerOutput] = {}
        for node in self.nodes:
            name = node.layer.name
            given = [values[source] for source in node.sources] or [inputs.pop(name)]
            for source in node.sources:
                uses[source] -= 1
                if not uses[source]:
                    values.pop(source, None)
            outputs = self._layer_forward(node.layer, given)
            del given
            left = [tensor for index, tensor in enumerate(outputs) if not uses[name, index]]
            if name in output:
                results[name] = outputs if len(outputs) > 1 else outputs[0]
            elif len(left) == len(outputs):  # of a layer that feeds others, an unused output is none of the net's
                results[name] = left if len(left) > 1 else left[0]
            values.update({(name, index): t for index, t in enumerate(outputs) if uses[name, index]})
            del outputs, left
        self._keep_seeds(results)
        return results if output or len(results) > 1 else next(iter(results.values()))

    def _check_frozen_inputs(self, inputs: Mapping[str, Tensor]) -> None:
        """GraphError for an input on the tape that a frozen layer takes: no derivative would ever come back to it."""
        for name, tensor in inputs.items():
            if name in self._frozen and tensor.requires_grad:
                raise GraphError(
                    f"input of layer {name!r}: wanted a tensor that needs no derivative, as none passes through a "
                    "frozen layer, received one that does; give its detach(), or freeze less"
                )

    def _layer_forward(self, layer: Layer, inputs: list[Tensor]) -> list[Tensor]:
        with self.device.scope(layer=layer.name):
            if not self.training or layer.name in self._frozen:
                with no_grad():
                    result = layer.forward(False, *inputs)
            else:
                if layer.states:
                    self._moving()
                result = layer.forward(True, *self._through_ports(layer.name, inputs))
        outputs = list(result) if isinstance(result, list | tuple) else [result]
        if not outputs or not all(isinstance(output, Tensor) for output in outputs):
            given = ", ".join(type(output).__name__ for output in outputs) or "none"
            raise TypeError(f"layer {layer.name!r}: wanted forward() to return a Tensor, or a list, received {given}")
        _check_shapes(layer, outputs)
        return outputs

    def _through_ports(self, name: str, inputs: list[Tensor]) -> list[Tensor]:
        ports = [Identity() for _ in inputs]
        passed: list[Tensor] = []
        while inputs:
            tensor = inputs.pop(0)
            if not tensor.requires_grad:
                tensor = tensor.detach()
                tensor.requires_grad = True
            passed.append(ports[len(passed)](tensor))
        self._ports[name] = list(ports)
        return passed

    def _keep_seeds(self, results: Mapping[str, LayerOutput]) -> None:
        for name, value in results.items():
            tensors = value if isinstance(value, list) else [value]
            if all(t.creator is not None for t in tensors):
                self._seeds[name] = [_Seed(Edge(t.creator, t.output_index, None), t.shape, t.dtype) for t in tensors]

    def open_ends(self) -> list[weakref.ref[Op]]:
        """The operations that made the outputs, which live for as long as somebody holds these."""
        return [weakref.ref(seed.edge.node) for seeds in self._seeds.values() for seed in seeds if seed.edge.node]

    def backward(
        self, dys: Mapping[str, list[Tensor]], wanted: frozenset[str], freeze: str | None
    ) -> Iterator[LayerGradients]:
        """Check the derivatives and start the walk; each layer's turn comes when the next item is asked for."""
        if not dys:
            raise GraphError(f"backward: wanted derivatives by outputs, {list(self._seeds)}, received none")
        pairs = [pair for name, given in dys.items() for pair in self._seeded(name, given)]
        ports = [port for name in wanted for port in self._ports.get(name, [])]
        first = [port for node in self.nodes if not node.sources for port in self._ports.get(node.layer.name, [])]
        tape = BackwardPass(pairs, ports, first)
        self._check_reached(tape, wanted, freeze)
        self._seeds.clear()
        self._walk = LayerWalk(self.nodes, self._ports, tape)
        return self._walk.layers(wanted, freeze)

    def _check_reached(self, tape: BackwardPass, wanted: frozenset[str], freeze: str | None) -> None:
        """GraphError unless the walk will come to the inputs of all wanted layers."""
        names = [node.layer.name for node in self.nodes]
        walked = names[names.index(freeze) :] if freeze is not None else names
        for name in wanted:
            ports = self._ports.get(name, [])
            if name not in walked or not ports or not all(map(tape.reaches, ports)):
                tape.finish()
                raise GraphError(f"backward: no derivative reaches the input of layer {name!r}, is it frozen?")

    def _seeded(self, name: str, dys: list[Tensor]) -> list[tuple[Edge, Tensor]]:
        """The derivatives by a layer's outputs, each with the edge of the tape where the walk begins with it."""
        seeds = self._seeds.get(name)
        if seeds is None or len(seeds) != len(dys):
            wanted = {name: len(seeds) for name, seeds in self._seeds.items()}
            raise GraphError(
                f"backward: wanted derivatives by outputs of the forward run that train, {wanted}, "
                f"received {len(dys)} for {name!r}"
            )
        for seed, dy in zip(seeds, dys, strict=True):
            if dy.shape != seed.shape:
                raise ShapeError(f"backward: wanted dy of {name!r}'s shape {seed.shape}, received {dy.shape}")
            if dy.dtype != seed.dtype:
                raise TypeError(f"backward: wanted dy of {name!r}'s dtype {seed.dtype}, received {dy.dtype}")
        return [(seed.edge, dy) for seed, dy in zip(seeds, dys, strict=True)]


def _check_shapes(layer: Layer, outputs: list[Tensor]) -> None:
    """ShapeError unless the outputs are as setup() said: the layers behind were set up for these."""
    said = layer.output_sample_shape
    wanted = said if isinstance(said, list) else [said]
    found = [output.shape[1:] for output in outputs]
    if found != wanted:
        raise ShapeError(
            f"layer {layer.name!r}: wanted forward() to return samples of shapes {wanted}, as setup() said, received "
            f"{found}"
        )
