"""LayerTraits: what a class of layers says of itself, and what it does with texts position by position."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from singa_lite.common.described import Described
from singa_lite.layer.lora import Lora, LoraForm, set_lora
from singa_lite.layer.past import LayerPast
from singa_lite.tensor import Shape, Tensor


class LayerTraits(Described):
    """The traits of a layer, which a subclass of `Layer` states where it differs. Base of `LayerBase`."""

    forward: Callable[..., Tensor | list[Tensor] | tuple[Tensor, ...]]

    #: "softmax" or "sigmoid" if the output is that of something, for losses that would take it a second time.
    gives: str = ""
    #: Whether the output has the input's elements, no others, under whatever shape.
    keeps_values: bool = False
    #: How many ids there are for a layer that takes ids: its input is of integers from 0 to below. None: of numbers.
    input_ids: int | None = None
    #: Whether its input says where texts begin in rows of several: 0 for texts that are alone in theirs.
    begins_texts: bool = False
    #: Whether a mask of its input is one of its output too: it does something at each position, perhaps by others.
    passes_mask: bool = False
    #: Whether it takes a mask of its input into account, though its output has none.
    takes_mask: bool = False
    #: Whether its own operations do the same at each position (axis 1) by itself, so that forward serves any number of
    #: them; layers within it are asked for themselves.
    positionwise: bool = False
    #: Whether samples (time, ...) may have fewer steps than `setup` was told: `forward` does the same to fewer.
    any_length: bool = False
    #: Whether its output has the time steps of its input; False where it has no axis of time any more.
    keeps_time: bool = True
    #: Whether these are its first input's steps, and the others may have more or fewer, as what attention looks at.
    time_of_first: bool = False
    #: Whether positions of a text may be read again: what it keeps of one goes by those before it, as keys do, and not
    #: by what was kept, as a state does. Of layers that keep something (`kept_of_past`).
    reads_again: bool = False
    #: Whether its output has the features, or classes, along the last axis; None: as its input has them.
    features_last: bool | None = None
    #: Whether training mixes the samples of a batch, as their mean does: such a layer cannot train on micro-batches.
    batch_statistics: ClassVar[bool] = False
    #: The kind of tensor as which a batch that feeds the layer is held: "image" is as convolutions read it, "" C order.
    feed_layout: ClassVar[str] = ""
    #: The adapter beside its weight, see `net.add_lora`; beside one its own parameters do not train.
    _lora: Lora | None = None

    @property
    def lora(self) -> Lora | None:
        """The adapter's options; None: it has none. `net.add_lora` and `merge_lora` set it."""
        return self._lora

    @lora.setter
    def lora(self, given: Lora | tuple[int, float, float] | None) -> None:
        set_lora(self, given)

    def lora_form(self, rank: int) -> LoraForm | None:
        """The shapes of an adapter of this rank, once `setup` has run; None: it takes none."""
        return None

    # ---- texts position by position, see `net.generate`

    def refuses_past(self) -> str:
        """Why `continued` cannot serve, in words; "" if it can, as where the layer is `positionwise`."""
        if self.positionwise or type(self).continued is not LayerTraits.continued:
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
