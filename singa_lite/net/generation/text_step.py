"""The next few positions of texts, as steps that are recorded once and replayed at every position."""

from __future__ import annotations

from collections.abc import Hashable

from singa_lite.autograd import log
from singa_lite.common.errors import GraphError
from singa_lite.layer.base import LayerBase
from singa_lite.layer.calls import LayerCalls
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.past import LayerPast, Past
from singa_lite.layer.run import Run
from singa_lite.tensor import Shape, Tensor
from singa_lite.training.steps.micro_batches import Fed
from singa_lite.training.steps.step_functions import Results, StepFunction


class ContinuedCalls(LayerCalls):
    """The calls of layers in one forward over the next positions. position: int64 (1,), how many came before."""

    def __init__(self, past: Past, position: Tensor) -> None:
        super().__init__(False)
        self._past, self._position = past, position
        self._ran: set[str] = set()

    def forward(self, layer: LayerBase, training: bool, inputs: list[Tensor]) -> object:
        """What the layer's `continued` gives. GraphError for one that keeps something and runs twice."""
        past = LayerPast(self._past, layer.path, self._position)
        if past and layer.path in self._ran:
            raise GraphError(
                f"layer {layer.path!r}: wanted one run for each position of a text, as it keeps what came before, "
                "received two"
            )
        self._ran.add(layer.path)
        return layer.continued(past, *inputs)

    def fits(self, found: Shape, wanted: Shape) -> bool:
        """Whether it is the sample shape that `setup` said, but for how many positions there are."""
        return found == wanted or (len(found) == len(wanted) > 0 and found[1:] == wanted[1:])


class TextStep(StepFunction[Results]):
    """What layers make of the next positions. past: what they keep of those before, which they move on.

    Fed with {"input": {layer: ids (n, m)}, "past": {"position": int64 (1,)}}.
    """

    kind = "generate"
    recorded_before_compile = True  # each of many words is a step

    def __init__(self, layers: LayerGraph, past: Past) -> None:
        super().__init__(layers)
        self.past = past

    @property
    def key(self) -> tuple[Hashable, ...]:
        return self.kind, type(self), id(self.past)

    @property
    def kept(self) -> tuple[object, ...]:
        return (self.past,)

    def _output(self, fed: Fed) -> Tensor:
        calls = ContinuedCalls(self.past, fed["past"]["position"])
        run = Run(self.layers.ordered(), self.layers.device, False, None, calls=calls)
        y: Tensor = run.forward(dict(fed["input"]), ())
        return y


class ReadStep(TextStep[None]):
    """Ids whose next ones are known. What the net gives is not wanted, so that the plan leaves out what makes it."""

    def operations(self, fed: Fed) -> None:
        self._output(fed)


class ScoreStep(TextStep[Tensor]):
    """One id, and the scores of the one behind it, (n, classes). gives: of what the net's output is, as for layers."""

    def __init__(self, layers: LayerGraph, past: Past, gives: str) -> None:
        super().__init__(layers, past)
        self.gives = gives

    def operations(self, fed: Fed) -> Tensor:
        y = self._output(fed)
        last = y if y.ndim == 2 else y.view((y.shape[0], y.shape[2]))
        return log(last) if self.gives == "softmax" else last
