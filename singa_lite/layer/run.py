"""Run: one batch's forward through the layers; LayerWalk: the walk back, which yields each layer's gradients."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from singa_lite.autograd import no_grad
from singa_lite.autograd.backward_pass import BackwardPass
from singa_lite.autograd.ops.op import Edge, Op
from singa_lite.common.array_types import DType
from singa_lite.common.contexts import in_own_context
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.common.unique import Unique
from singa_lite.device import Device
from singa_lite.layer.calls import Cut, LayerCalls, Watcher, call, no_op
from singa_lite.layer.freezing import Freeze, freezing
from singa_lite.layer.layer import LayerOutput, Node, OneOrMore
from singa_lite.tensor import Shape, Tensor


class LayerGradients(NamedTuple):
    """The gradients that `backward` yields for a layer: its parameters' names, values and gradients, in equal order.

    layer_gradients: {layer name: derivative by its input, a list of them for several}, one dict for the whole walk.

    >>> net = Sequential([layers.Dense("hidden", 4, input_shape=(5,)), layers.Dense("out", 3)])
    >>> y = net.forward(True, np.ones((2, 5), "float32"))
    >>> [made.names for made in net.backward(tensor.ones((2, 3)))]
    [['out/weight', 'out/bias'], ['hidden/weight', 'hidden/bias']]
    """

    names: list[str]
    values: list[Tensor]
    gradients: list[Tensor]
    layer_gradients: dict[str, OneOrMore]


class LayerWalk:
    """A walk down the tape of one forward, a layer at a time, last layer first, those within a layer one by one.

    nodes: the layers in the order of the forward; calls: how that went, of which marks and cuts are emptied at the end;
    tape: where the walk begins. stopped_at: the path of the layer at which it stands, "" before its first gradients and
    after its end.
    """

    def __init__(self, nodes: list[Node], calls: LayerCalls, tape: BackwardPass) -> None:
        self.stopped_at = ""
        self._calls = calls
        self._tape = tape
        parameters = (p for node in nodes for p in node.layer.parameters.values())
        self._numbers = {id(p): number for number, p in enumerate(parameters)}

    def layers(self, wanted: frozenset[str], freeze: str | None) -> Iterator[LayerGradients]:
        """Each layer's gradients, given back when the next one is asked for. See `FeedForwardNet.backward`.

        wanted: layers whose inputs' derivatives are entered; freeze: the layer to stop after.
        """
        layer_gradients: dict[str, LayerOutput] = {}
        try:
            for cut in reversed(self._calls.cuts):
                item = self._gradients(cut, layer_gradients)
                if cut.is_first and cut.layer in wanted:
                    layer_gradients[cut.layer] = self._captured(cut.layer)
                if item.gradients:
                    self.stopped_at = cut.layer
                if item.gradients or cut.is_first:
                    yield item
                for gradient in item.gradients:
                    gradient.release()
                del item
                if cut.is_first and cut.layer == freeze:
                    self._tape.finish()
                    break
            self.stopped_at = ""
            self._calls.derived(self._tape.captured)
        finally:
            self._tape.close()
            self._calls.forget()

    def _gradients(self, cut: Cut, shared: dict[str, LayerOutput]) -> LayerGradients:
        """Walk back to the cut; what is final there."""
        finished: list[tuple[Tensor, Tensor]] = []
        while self._tape.next_sequence >= cut.position:
            finished += self._tape.step()
        finished.sort(key=lambda pair: self._numbers.get(id(pair[0]), -1))
        return LayerGradients([p.name for p, _ in finished], [p for p, _ in finished], [g for _, g in finished], shared)

    def _captured(self, path: str) -> LayerOutput:
        found = [self._tape.captured.pop(port) for port in self._calls.ports[path]]
        return found if len(found) > 1 else found[0]


class _Seed(NamedTuple):
    edge: Edge
    shape: Shape
    dtype: DType


class Run(Unique):
    """One batch's way through the layers.

    Each input of a layer passes a port, an Identity on the tape: there a layer's part of the tape begins, and the
    derivative by that layer's input can be read off. A walk ends at the ports of the net's inputs: what made these, as
    another net may have, keeps its tape. What it is given is checked by whoever makes it.

    training: layers train, those of `freeze` aside; else nothing is kept for a walk back. moving: called
    before a layer may move its state. calls: how layers are called, where it is not one batch by itself. watcher: who
    looks at what layers give.
    """

    def __init__(
        self,
        nodes: list[Node],
        device: Device,
        training: bool,
        freeze: Freeze,
        moving: Callable[[], object] = no_op,
        calls: LayerCalls | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self.nodes = nodes
        self.device = device
        self.training = training
        frozen = freezing((node.layer for node in nodes), freeze)
        self._calls = calls or LayerCalls(training, frozen.frozen, frozen.holding, frozen.passing, moving, watcher)
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
        self._calls.begin()
        self._calls.asked = {name for name in output if "/" in name}
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
            outputs = call(node.layer, self.device, self.training, given)
            del given
            left = [tensor for index, tensor in enumerate(outputs) if not uses[name, index]]
            if name in output:
                results[name] = outputs if len(outputs) > 1 else outputs[0]
            elif len(left) == len(outputs):  # of a layer that feeds others, an unused output is none of the net's
                results[name] = left if len(left) > 1 else left[0]
            values.update({(name, index): t for index, t in enumerate(outputs) if uses[name, index]})
            del outputs, left
        results |= self._asked_within()
        _unmask(results)
        self._keep_seeds(results)
        return results if output or len(results) > 1 else next(iter(results.values()))

    def _asked_within(self) -> dict[str, LayerOutput]:
        """The outputs of layers within others that are wanted too. GraphError for one that did not run."""
        given = self._calls.given
        for name in self._calls.asked:
            if name not in given:
                raise GraphError(f"forward output: wanted layers that run, received {name!r}, which did not")
        self._calls.given = {}
        return {name: found if len(found) > 1 else found[0] for name, found in given.items()}

    def _check_frozen_inputs(self, inputs: Mapping[str, Tensor]) -> None:
        """GraphError for an input on the tape that a frozen layer takes: no derivative would ever come back to it."""
        for name, tensor in inputs.items():
            if name in self._calls.frozen and tensor.requires_grad:
                raise GraphError(
                    f"input of layer {name!r}: wanted a tensor that needs no derivative, as none passes through a "
                    "frozen layer, received one that does; give its detach(), or freeze less"
                )

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
        ports = [port for name in wanted for port in self._calls.ports.get(name, [])]
        first = [port for node in self.nodes if not node.sources for port in self._calls.ports.get(node.layer.name, [])]
        watched = [mark for marks in self._calls.watched.values() for mark in marks]
        tape = BackwardPass(pairs, [*ports, *watched], first)
        self._check_reached(tape, wanted, freeze)
        self._seeds.clear()
        self._walk = LayerWalk(self.nodes, self._calls, tape)
        return self._walk.layers(wanted, freeze)

    def _check_reached(self, tape: BackwardPass, wanted: frozenset[str], freeze: str | None) -> None:
        """GraphError unless the walk will come to the inputs of all wanted layers."""
        walked = [cut.layer for cut in self._calls.cuts if cut.is_first]
        if freeze is not None and freeze not in walked:
            tape.finish()
            raise GraphError(f"backward: wanted to freeze before a layer that ran, received {freeze!r}, which did not")
        walked = walked[walked.index(freeze) :] if freeze is not None else walked
        for name in wanted:
            ports = self._calls.ports.get(name, [])
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


def _unmask(results: Mapping[str, LayerOutput]) -> None:
    """Masks end at the net's outputs, so that who holds these does not hold them."""
    for value in results.values():
        for tensor in value if isinstance(value, list) else [value]:
            tensor.mask = None
