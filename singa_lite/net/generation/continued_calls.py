"""ContinuedCalls: one forward over the next positions of texts, by what layers keep of those before."""

from __future__ import annotations

from singa_lite.common.errors import GraphError
from singa_lite.layer.base import LayerBase
from singa_lite.layer.calls import LayerCalls
from singa_lite.layer.past import LayerPast, Past
from singa_lite.tensor import Shape, Tensor


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
