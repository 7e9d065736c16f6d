"""TextLayer: what a layer does with texts position by position, see `net.generate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from singa_lite.layer.past import LayerPast
from singa_lite.layer.traits import LayerTraits
from singa_lite.tensor import Shape, Tensor


class TextLayer(LayerTraits):
    """A layer that goes through texts position by position, and what it keeps of earlier ones. Base of `LayerBase`."""

    forward: Callable[..., Tensor | list[Tensor] | tuple[Tensor, ...]]

    def refuses_past(self) -> str:
        """Why `continued` cannot serve, in words; "" if it can, as where the layer is `positionwise`."""
        if self.positionwise or type(self).continued is not TextLayer.continued:
            return ""
        return "it may look at several positions"

    def kept_of_past(self, batch: int, length: int) -> Mapping[str, Shape]:
        """What it keeps of so many texts, of up to `length` positions: shapes by name, in the net's dtype."""
        return {}

    def most_positions(self) -> int | None:
        """The most positions of a text that it can tell apart; None: any number."""
        return None

    def continued(self, past: LayerPast, *inputs: Tensor) -> Tensor | list[Tensor] | tuple[Tensor, ...]:
        """As forward(False, *inputs), for the next m positions, at least one, of texts: x (n, m, ...).

        past: what the layer keeps of those before, zeros at first, which it moves on; `past.position` of them came
        before. A layer that looks at several positions, or has another m for each, writes one of its own.
        """
        return self.forward(False, *inputs)
