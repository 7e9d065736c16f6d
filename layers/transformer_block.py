"""TransformerBlock: attention, then a layer of its own for each position, each beside a residual connection."""

from __future__ import annotations

from typing import Any

from singa_lite import autograd
from singa_lite.common.errors import ShapeError
from singa_lite.layer.layer import Layer
from singa_lite.layers._checks import check_choice, flag, label, number, positive_int
from singa_lite.layers._masks import finite_padding
from singa_lite.layers.activation import MODES, Activation
from singa_lite.layers.dense import Products, SwiGLU
from singa_lite.layers.dropout import Dropout
from singa_lite.layers.multi_head_attention import MultiHeadAttention
from singa_lite.layers.normalization.layer_normalization import LayerNormalization, RMSNormalization
from singa_lite.layers.rotary_scaling import Scaling
from singa_lite.tensor import Shape, Tensor


class TransformerBlock(Products):
    """One block of a transformer: x' = x + attention(norm(x)); y = x' + output(activation(hidden(norm(x')))).

    With normalize_first=False norms stand behind the sums, as in Vaswani and others (arXiv 1706.03762, figure 1):
    x' = norm(x + attention(x)), y = norm(x' + output(activation(hidden(x')))). Before them, as here by default, Xiong
    and others (arXiv 2002.04745). Dropout, where there is some, is on the probabilities of the attention and on what
    attention and output add to x, as in GPT-2.

    Input samples (time, features), perhaps beside a mask (time,) of 1 for what is seen and 0 for padding, with packed
    last of all the ints of `TextStarts` (time,); output samples (time, features). Layers in it, in this order:
    attention_norm, attention (MultiHeadAttention), attention_dropout, hidden_norm, hidden, activation, hidden_dropout,
    output, output_dropout; each norm behind its part with normalize_first=False; dropouts only where there is some;
    with "swiglu" hidden is a SwiGLU, whose activation is within it.

    heads, head_size, kv_heads, causal, rotary, rotary_base, rotary_scaling, qkv_bias, query_key_norm, window, packed:
    as for MultiHeadAttention. hidden_size: outputs of `hidden`, default 4 times the features. dropout: from 0 to below
    1; hidden_dropout: of what the activation gives, as PyTorch's TransformerEncoderLayer has beside the others.
    activation: a mode of Activation, or "swiglu". norm: "layer" for LayerNormalization, "rms" for RMSNormalization.
    epsilon: of the norms. use_bias: of all products. weight_init, bias_init: of all products, an Initializer, its name,
    or a number. weight_format: as of Dense, of all products, or such as {"attention": {"query": "q4_1"}, "hidden":
    "q4_1", "output": "q6_k"}, where what is not named is "float".

    GPT-2's: causal, "gelu_tanh". BERT's: normalize_first=False. Llama's: causal, norm="rms", activation="swiglu",
    rotary=True, use_bias=False, kv_heads; Qwen2's: the same and qkv_bias=True; Qwen3's: and query_key_norm=True.

    >>> net = Sequential([layers.Input((6, 8)), layers.TransformerBlock("block", heads=2, causal=True)])
    >>> net.predict(np.ones((3, 6, 8), "float32")).shape
    (3, 6, 8)
    """

    passes_mask = True
    positionwise = True
    any_length = True
    features_last = True
    parts = ("attention", "hidden", "output")

    def __init__(
        self,
        name: str,
        heads: int,
        causal: bool = False,
        *,
        hidden_size: int | None = None,
        dropout: float = 0.0,
        activation: str = "gelu",
        normalize_first: bool = True,
        norm: str = "layer",
        hidden_dropout: float = 0.0,
        head_size: int | None = None,
        kv_heads: int | None = None,
        rotary: bool = False,
        rotary_base: float = 10000.0,
        rotary_scaling: Scaling = None,
        qkv_bias: bool | None = None,
        query_key_norm: bool = False,
        window: int | None = None,
        packed: bool = False,
        epsilon: float = 1e-5,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self.heads = positive_int(self, "heads", heads)
        self.hidden_size = None if hidden_size is None else positive_int(self, "hidden_size", hidden_size)
        self.normalize_first = flag(self, "normalize_first", normalize_first)
        self.activation = check_choice(self, "activation", activation, (*MODES, "swiglu"))
        self.norm = check_choice(self, "norm", norm, ("layer", "rms"))
        self._attention = MultiHeadAttention(
            *("attention", heads, head_size, causal, dropout),
            kv_heads=kv_heads,
            rotary=rotary,
            rotary_base=rotary_base,
            rotary_scaling=rotary_scaling,
            qkv_bias=qkv_bias,
            query_key_norm=query_key_norm,
            window=window,
            packed=packed,
            epsilon=epsilon,
            **self.options_of("attention"),
        )
        self._attention.without_padding = True
        kind = RMSNormalization if self.norm == "rms" else LayerNormalization
        self._norms: list[Layer] = [kind(f"{part}_norm", epsilon=epsilon) for part in ("attention", "hidden")]
        self._dropouts = [Dropout(f"{part}_dropout", dropout) for part in ("attention", "output")] if dropout else []
        self.hidden_dropout = number(self, "hidden_dropout", hidden_dropout, 0, 1)
        self._hidden_dropout = [Dropout("hidden_dropout", self.hidden_dropout)] if self.hidden_dropout else []
        self._parts: list[list[Layer]] = []

    def setup(self, *shapes: Shape) -> Shape:
        """(time, features), perhaps (time,) of a mask, with packed (time,) of starts -> (time, features)."""
        starts = [1] if self._attention.packed else []
        if [len(shape) for shape in shapes] not in ([2, *starts], [2, 1, *starts]):
            raise ShapeError(
                f"{label(self)}: wanted an input (time, features), perhaps a mask (time,) beside it, with packed=True "
                f"starts (time,) last, received {list(shapes)}"
            )
        shape, *others = shapes
        self._parts = [[self._attention, *self._dropouts[:1]], [*self._mapping(shape[1]), *self._dropouts[1:]]]
        for norm, part in zip(self._norms, self._parts, strict=True):
            flow = shape
            for layer in [norm, *part] if self.normalize_first else [*part, norm]:
                self.add_layer(layer)
                flow = self.set_up(layer, flow, *(others if layer is self._attention else ()))
        return shape

    def _mapping(self, features: int) -> list[Layer]:
        """What each position goes through by itself."""
        size, output = self.hidden_size or 4 * features, self.product("output", features)
        if self.activation == "swiglu":
            return [SwiGLU("hidden", size, **self.options_of("hidden")), *self._hidden_dropout, output]
        activation = Activation("activation", self.activation)
        return [self.product("hidden", size), activation, *self._hidden_dropout, output]

    def forward(self, training: bool, *inputs: Tensor) -> Tensor:
        """x (n, time, features), perhaps mask (n, time), with packed starts (n, time) -> (n, time, features)."""
        x, *others = inputs
        has_mask = len(others) > self._attention.packed
        x = finite_padding(x, others[0] if has_mask else x.mask)
        for norm, part in zip(self._norms, self._parts, strict=True):
            y = self.run(norm, training, x) if self.normalize_first else x
            for layer in part:
                y = self.run(layer, training, y, *(others if layer is self._attention else ()))
            x = autograd.add(x, y)
            x = x if self.normalize_first else self.run(norm, training, x)
        return x
