"""MultiHeadAttention: every position looks at others, by several heads at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_lite import autograd
from singa_lite.autograd.ops.attention import cached_attention, rows_at, write_rows
from singa_lite.autograd.ops.shape import first_rows
from singa_lite.common.errors import ShapeError
from singa_lite.layer.past import LayerPast
from singa_lite.layers._checks import dropout_share, flag, label, positive, positive_int
from singa_lite.layers._masks import finite_padding, without_padding
from singa_lite.layers.dense import Products
from singa_lite.layers.normalization.layer_normalization import RMSNormalization
from singa_lite.layers.positions import rotary_table
from singa_lite.layers.rotary_scaling import Scaling, checked_scaling
from singa_lite.tensor import Shape, Tensor


class MultiHeadAttention(Products):
    """Computes y = output(attention(query(x), key(m), value(m))) (Vaswani and others, arXiv 1706.03762, 3.2.2).

    Neither scores nor probabilities exist whole, forward or backward (`autograd.attention`): memory is linear in the
    lengths. Inputs: x (time, features) alone, which attends to itself (m = x); x and memory m (length, width); either
    of these and behind it a mask (length,) of 1 for the positions of m that are seen and 0 for padding, which gets no
    derivative; with packed last of all the ints of `TextStarts` (time,). Output samples (time, features); positions
    that see none give output's bias.

    Layers inside: query, key, value and output, each a Dense: weights (features, heads * head_size), (width, kv_heads *
    head_size) twice, and (heads * head_size, features); with query_key_norm also query_norm and key_norm, each an
    RMSNormalization of head_size. State, with dropout: random uint64 (3,), as in Dropout.

    heads: they divide the features where head_size is None. causal: position i sees positions 0 to i of m alone.
    dropout: the share of probabilities that training drops. kv_heads: fewer keys and values than queries, which share
    them (grouped queries, arXiv 2305.13245); it divides heads, and is heads where None. use_bias: of all four;
    qkv_bias: of query, key and value, use_bias where None (Qwen2 has these alone). rotary: turn queries and keys by
    their positions (arXiv 2104.09864); of self-attention, with an even head_size. rotary_base: above 0, larger for
    longer texts; rotary_scaling: None, {"rope_type": "linear", "factor": 4.0}, or "llama3" or "factors" with their
    numbers, as Hugging Face writes them (`rotary_scaling.NUMBERS`). window: how many positions each sees at most, its
    own included (Mistral), None for all before it; packed: rows hold several texts, and positions see their own alone;
    both with causal and of self-attention. query_key_norm: normalise each head's queries and keys before they are
    turned (Qwen3); epsilon: of these norms. weight_init, bias_init: an Initializer, its name, or a number, of all four.
    weight_format: as of Dense, of all four, or by name.

    >>> net = Sequential([layers.Input((6, 8)), layers.MultiHeadAttention("attention", heads=2, causal=True)])
    >>> net.predict(np.ones((3, 6, 8), "float32")).shape
    (3, 6, 8)
    """

    passes_mask = True
    any_length = True
    time_of_first = True
    reads_again = True
    parts = ("query", "key", "value", "output")

    def __init__(
        self,
        name: str,
        heads: int,
        head_size: int | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        *,
        kv_heads: int | None = None,
        rotary: bool = False,
        rotary_base: float = 10000.0,
        rotary_scaling: Scaling = None,
        qkv_bias: bool | None = None,
        query_key_norm: bool = False,
        window: int | None = None,
        packed: bool = False,
        epsilon: float = 1e-6,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self.heads = positive_int(self, "heads", heads)
        self.head_size = None if head_size is None else positive_int(self, "head_size", head_size)
        self.causal = flag(self, "causal", causal)
        self.dropout = dropout_share(self, "dropout", dropout)
        self.kv_heads = self.heads if kv_heads is None else positive_int(self, "kv_heads", kv_heads)
        if self.heads % self.kv_heads:
            raise ValueError(f"{label(self)}: wanted kv_heads to divide the {self.heads} heads, received {kv_heads}")
        self.rotary = flag(self, "rotary", rotary)
        self.rotary_base = positive(self, "rotary_base", rotary_base)
        self.rotary_scaling = checked_scaling(f"{label(self)}: rotary_scaling", rotary_scaling)
        self.qkv_bias = None if qkv_bias is None else flag(self, "qkv_bias", qkv_bias)
        self.query_key_norm = flag(self, "query_key_norm", query_key_norm)
        self.window = None if window is None else positive_int(self, "window", window)
        self.packed = flag(self, "packed", packed)
        if not self.causal and (self.packed or self.window is not None):
            raise ValueError(f"{label(self)}: wanted window and packed with causal=True only, received causal=False")
        self.epsilon = positive(self, "epsilon", epsilon)
        self._head_size, self._is_cross = 0, False
        #: Whether what holds this layer has put zeros in the place of padding already.
        self.without_padding = False

    def setup(self, *shapes: Shape) -> Shape:
        """(time, features), perhaps (length, width), perhaps (length,) -> (time, features)."""
        shape, memory = self._checked(shapes)
        (time, features), size = shape, self._size(shape[1])
        self._head_size, self._is_cross = size, [len(s) for s in shapes].count(2) > 1
        self._set_up_heads("query", self.heads, shape)
        self._set_up_heads("key", self.kv_heads, memory)
        self._set_up_heads("value", self.kv_heads, memory)
        self.set_up(self.add_layer(self.product("output", features)), (time, self.heads * size))
        if self.dropout:
            self.add_state("random", (3,), dtype=np.uint64).copy_from_numpy(self.random_key("random"))
        self._add_constants(time)
        return shape

    def _set_up_heads(self, name: str, heads: int, shape: Shape) -> None:
        """A product, and its norm where it has one."""
        self.set_up(self.add_layer(self.product(name, heads * self._head_size, self.qkv_bias)), shape)
        if self.query_key_norm and name != "value":
            norm = self.add_layer(RMSNormalization(f"{name}_norm", self.epsilon))
            self.set_up(norm, (shape[0], heads, self._head_size))

    def _add_constants(self, time: int) -> None:
        """The table that turns, and the first position that each one sees within the window."""
        if self.rotary:
            table = rotary_table(time, self._head_size, self.rotary_base, self.rotary_scaling)
            self.add_constant("table", table)
        if self.window is not None:
            self.add_constant("window", np.maximum(np.arange(time)[None] - (self.window - 1), 0))

    def options_changed(self) -> None:
        """The constants are those of the options."""
        most = self.most_positions()
        if most is not None:
            self._add_constants(most)

    def _checked(self, shapes: Sequence[Shape]) -> tuple[Shape, Shape]:
        """The sample shapes of x and of what it attends to. ShapeError for inputs that are no such, or fit no mask."""
        if self.packed:
            *shapes, starts = shapes
            if not shapes or starts != shapes[0][:1]:
                raise ShapeError(
                    f"{label(self)}: wanted with packed=True a last input (time,), the texts' starts, received "
                    f"{len(shapes) + 1} inputs of shapes {[*shapes, starts]}"
                )
        axes = [len(shape) for shape in shapes]
        if axes not in ([2], [2, 2], [2, 1], [2, 2, 1]):
            raise ShapeError(
                f"{label(self)}: wanted inputs (time, features), perhaps a memory (length, width), perhaps a mask "
                f"(length,), received {len(shapes)} of shapes {list(shapes)}"
            )
        shape, memory = shapes[0], shapes[axes.count(2) - 1]
        if axes[-1] == 1 and shapes[-1] != memory[:1]:
            raise ShapeError(
                f"{label(self)}: wanted a mask of shape {memory[:1]}, one number a position, received {shapes[-1]}"
            )
        options = {"rotary": self.rotary, "packed": self.packed, "window": self.window is not None}
        given = [name for name, is_given in options.items() if is_given]
        if given and axes.count(2) > 1:
            raise ShapeError(f"{label(self)}: wanted self-attention with {given[0]}, received a memory {memory}")
        return shape, memory

    def _size(self, features: int) -> int:
        """Of a head."""
        if self.head_size is None and features % self.heads:
            raise ShapeError(
                f"{label(self)}: wanted heads that divide the features, or a head_size, received {self.heads} heads "
                f"for {features} features"
            )
        size = features // self.heads if self.head_size is None else self.head_size
        if self.rotary and size % 2:
            raise ShapeError(f"{label(self)}: wanted an even head_size with rotary=True, received {size}")
        return size

    def forward(self, training: bool, *inputs: Tensor) -> Tensor:
        """x (n, time, features), perhaps m (n, length, width), perhaps mask (n, length) -> (n, time, features).

        With packed starts (n, time) last.
        """
        given, starts = self._without_starts(inputs)
        x = given[0]
        memory = given[1] if len(given) > 1 and given[1].ndim == 3 else x
        mask = given[-1].detach() if given[-1].ndim == 2 else memory.mask
        if not self.without_padding:
            is_self = memory is x
            x = finite_padding(x, mask if is_self else x.mask)
            memory = x if is_self else without_padding(memory, mask)
        table = first_rows(self.constants["table"], 1, x.shape[1]) if self.rotary else None
        window = None if self.window is None else first_rows(self.constants["window"], 1, x.shape[1])
        first = window if starts is None else starts if window is None else autograd.maximum(starts, window)
        q, k, v = self._heads(training, x, memory, table)
        p = self.dropout if training else 0.0
        state = self.states["random"] if p else None
        y = autograd.attention(q, k, v, mask, first, causal=self.causal, dropout=p, state=state)
        return self._output(training, y)

    def _without_starts(self, inputs: Sequence[Tensor]) -> tuple[Sequence[Tensor], Tensor | None]:
        """The other inputs, and where texts start in rows of several."""
        return (inputs[:-1], inputs[-1]) if self.packed else (inputs, None)

    def _heads(self, training: bool, x: Tensor, memory: Tensor, table: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, turned by a table of positions where there is one."""
        q = self._projected("query", training, x, self.heads)
        k, v = (self._projected(name, training, memory, self.kv_heads) for name in ("key", "value"))
        if table is not None:
            q, k = (autograd.rotary(t, table, axis=1) for t in (q, k))
        return q, k, v

    def _output(self, training: bool, y: Tensor) -> Tensor:
        """(n, time, heads, size) -> (n, time, features)."""
        flat = autograd.reshape(y, (*y.shape[:2], y.shape[2] * y.shape[3]))
        return self.run(self.layers["output"], training, flat)

    # ---- position by position

    def refuses_past(self) -> str:
        """Where later positions or another text are seen, which are not there yet."""
        if not self.causal:
            return "each position sees later ones, as it is not causal"
        return "it attends to another text" if self._is_cross else ""

    def kept_of_past(self, batch: int, length: int) -> dict[str, Shape]:
        """Keys and values, turned where they are, and which positions are seen, used where a mask comes."""
        heads = batch, length, self.kv_heads, self._head_size
        return {"keys": heads, "values": heads, "mask": (batch, length)}

    def most_positions(self) -> int | None:
        """Of the table that turns them, or says what each sees."""
        return next((constant.shape[1] for constant in self.constants.values()), None)

    def continued(self, past: LayerPast, *inputs: Tensor) -> Tensor:
        """x (n, m, features), perhaps mask (n, m) -> (n, m, features). A text by itself starts at 0."""
        x, *masks = self._without_starts(inputs)[0]
        mask = masks[0] if masks else x.mask
        x = finite_padding(x, mask)
        table = rows_at(self.constants["table"], past.position, x.shape[1]) if self.rotary else None
        q, k, v = self._heads(False, x, x, table)
        write_rows(k, past.position, past["keys"])
        write_rows(v, past.position, past["values"])
        if mask is not None:
            write_rows(mask, past.position, past["mask"])
        seen = None if mask is None else past["mask"]
        first = None if self.window is None else rows_at(self.constants["window"], past.position, x.shape[1])
        y = cached_attention(q, past["keys"], past["values"], seen, first, past.position)
        return self._output(False, y)

    def _projected(self, name: str, training: bool, x: Tensor, heads: int) -> Tensor:
        """(n, time, heads, size)."""
        y = self.run(self.layers[name], training, x)
        y = autograd.reshape(y, (*y.shape[:2], heads, y.shape[2] // heads))
        norm = self._layers.get(f"{name}_norm")
        return y if norm is None else self.run(norm, training, y)
