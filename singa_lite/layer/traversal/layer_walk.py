"""LayerWalk: the walk back over the layers of a run, which yields each layer's gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from singa_lite.autograd.backward_pass import BackwardPass
from singa_lite.layer.layer import LayerOutput, Node, OneOrMore
from singa_lite.layer.layer_base.layer_calls import Cut, LayerCalls
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
