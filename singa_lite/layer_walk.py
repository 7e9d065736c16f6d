"""LayerWalk: the walk back over the layers of a run, which yields each layer's gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from singa_lite.backward_pass import BackwardPass
from singa_lite.layer import LayerOutput, Node, OneOrMore
from singa_lite.ops.op import Op
from singa_lite.tensor import Tensor


class LayerGradients(NamedTuple):
    """What `backward` yields for a layer: its parameters' names, values and gradients, in equal order.

    layer_gradients: {layer name: derivative by its input, a list of them for several}, one dict for the whole walk.
    """

    names: list[str]
    values: list[Tensor]
    gradients: list[Tensor]
    layer_gradients: dict[str, OneOrMore]


class LayerWalk:
    """A walk down the tape of one forward, a layer at a time, last layer first.

    nodes: the layers in the order of the forward; ports: {layer: the marks on the tape that its inputs have passed},
    emptied at the end; tape: where the walk begins. stopped_at: the layer at which it stands, "" before its first
    gradients and after its end.
    """

    def __init__(self, nodes: list[Node], ports: dict[str, list[Op]], tape: BackwardPass) -> None:
        self.stopped_at = ""
        self._nodes = nodes
        self._ports = ports
        self._tape = tape
        parameters = (p for node in nodes for p in node.layer.parameters.values())
        self._numbers = {id(p): number for number, p in enumerate(parameters)}

    def layers(self, wanted: frozenset[str], freeze: str | None) -> Iterator[LayerGradients]:
        """Each layer's gradients, given back when the next one is asked for. See `FeedForwardNet.backward`.

        wanted: layers whose inputs' derivatives are entered; freeze: the layer to stop after.
        """
        layer_gradients: dict[str, LayerOutput] = {}
        try:
            for node in reversed(self._nodes):
                name = node.layer.name
                item = self._gradients(name, layer_gradients)
                if name in wanted:
                    layer_gradients[name] = self._captured(name)
                if item.gradients:
                    self.stopped_at = name
                yield item
                for gradient in item.gradients:
                    gradient.release()
                del item
                if name == freeze:
                    self._tape.finish()
                    break
            self.stopped_at = ""
        finally:
            self._tape.close()
            self._ports.clear()

    def _gradients(self, name: str, shared: dict[str, LayerOutput]) -> LayerGradients:
        """Walk the layer's part of the tape, which ends at its first port."""
        finished: list[tuple[Tensor, Tensor]] = []
        ports = self._ports.get(name)
        while ports and self._tape.next_sequence >= ports[0].sequence:
            finished += self._tape.step()
        finished.sort(key=lambda pair: self._numbers.get(id(pair[0]), -1))
        return LayerGradients([p.name for p, _ in finished], [p for p, _ in finished], [g for _, g in finished], shared)

    def _captured(self, name: str) -> LayerOutput:
        found = [self._tape.captured.pop(port) for port in self._ports[name]]
        return found if len(found) > 1 else found[0]
