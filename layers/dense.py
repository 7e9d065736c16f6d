"""Dense, every output from every input, and SwiGLU; the base of layers that hold several Dense."""

from __future__ import annotations

from typing import Any, ClassVar

from singa_lite import autograd
from singa_lite.autograd.ops.low_rank import adapted_linear
from singa_lite.layer.lora import LoraForm, adapter_of
from singa_lite.layers._checks import features_of, positive_int
from singa_lite.layers._quantized import (
    FLOAT,
    WeightFormat,
    add_quantized,
    checked_format,
    checked_formats,
    forget_format,
    format_of,
)
from singa_lite.layers._weighted import Weighted, WithActivation
from singa_lite.tensor import Shape, Tensor


class Dense(WithActivation):
    """Computes y = activation(x @ weight + bias) over the last axis, whatever axes stand before it.

    Input samples (..., features), as (features,) or (time, features); output samples (..., num_output). Images want
    Flatten before, unless each row of pixels is meant.
    Parameters: weight (features, num_output), bias (num_output,).

    weight_format: "float", or how the weight is quantised: "q4_0", "q4_1", "q8_0", "q4_k", "q5_k", "q6_k", "f16" or
    "bf16", as the package `gguf` defines them. A quantised weight is no parameter and has no gradient: it is a frozen
    tensor, uint8 (num_output, bytes of a row), which `set_frozen("weight", array)` sets.
    use_bias: False leaves the bias out. activation: a mode of `Activation`, "softmax" (of the last axis), "linear",
    such an operation of `autograd`, or an Activation; None: none. weight_init, bias_init: an Initializer, its name,
    or a number.

    >>> net = Sequential([layers.Input((5,)), layers.Dense(3, activation="relu")])
    >>> net.predict(np.ones((2, 5), "float32")).shape
    (2, 3)
    """

    passes_mask = True
    positionwise = True
    features_last = True

    def __init__(
        self, name: str, num_output: int, use_bias: bool = True, *, weight_format: str = FLOAT, **options: Any
    ) -> None:
        super().__init__(name, use_bias=use_bias, **options)
        self.num_output = positive_int(self, "num_output", num_output)
        self.weight_format = checked_format(self, weight_format)

    def summary_note(self) -> str:
        """How the weight is quantised, and the name of the activation."""
        return ", ".join(filter(None, (self.weight_format.removeprefix(FLOAT), super().summary_note())))

    def setup(self, *shapes: Shape) -> Shape:
        """(..., features) -> (..., num_output)."""
        *beside, features = features_of(self, shapes)
        self.any_length = bool(beside)
        fans = features, self.num_output
        if self.weight_format == FLOAT:
            self.add_parameter("weight", fans, self.weight_init, fans)
        else:
            add_quantized(self, "weight", self.num_output, features, self.weight_format)
        if self.use_bias:
            self.add_parameter("bias", (self.num_output,), self.bias_init)
        return (*beside, self.num_output)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ..., features) -> (n, ..., num_output)."""
        bias, adapter = self.parameters["bias"] if self.use_bias else None, adapter_of(self, training)
        is_float = self.weight_format == FLOAT
        weight = self.parameters["weight"] if is_float else self.frozen["weight"]
        if adapter is not None:
            y = adapted_linear(x, weight, bias, adapter, None if is_float else self.weight_format)
        elif is_float:
            y = autograd.linear(x, weight, bias)
        else:
            y = autograd.quantized_linear(x, weight, bias, format=self.weight_format)
        return self.activated(y, -1)

    def lora_form(self, rank: int) -> LoraForm:
        """lora_a (features, rank), lora_b (rank, num_output)."""
        features = self._prepared_for[0][-1]
        return LoraForm((features, rank), (rank, self.num_output), features)

    def become_float(self) -> None:
        """Forgets the quantised weight and its format, in the options of layers that hold this one too."""
        self._frozen.pop("weight")
        forget_format(self)


class Products(Weighted):
    """Base of layers that hold several Dense, all with the same `use_bias`, `weight_init` and `bias_init`.

    weight_format: of all of them, or {layer within: its own}. parts: names of those that it may name.
    """

    parts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, *, weight_format: WeightFormat = FLOAT, **options: Any) -> None:
        super().__init__(name, **options)
        self.weight_format = checked_formats(self, weight_format, self.parts)

    def options_of(self, part: str) -> dict[str, Any]:
        """The options of weights of a layer that this one is to hold."""
        return {**self.weight_options, "weight_format": format_of(self.weight_format, part)}

    def product(self, name: str, num_output: int, use_bias: bool | None = None) -> Dense:
        """A layer that this one is to hold. use_bias: whether it has a bias; this layer's own option where None."""
        options = self.options_of(name)
        if use_bias is not None:
            options |= {"use_bias": use_bias, "bias_init": self.bias_init if use_bias else 0.0}
        return Dense(name, num_output, **options)


class SwiGLU(Products):
    """Computes y = silu(gate(x)) * value(x) over the last axis (Shazeer, arXiv 2002.05202), as in Llama.

    Input samples (..., features), output samples (..., num_output). Layers inside: gate and value, each a Dense of
    num_output. use_bias: of both. weight_init, bias_init: an Initializer, its name, or a number, of both.
    weight_format: as of Dense, of both, or {"gate": one, "value": another}.

    >>> net = Sequential([layers.Input((6, 8)), layers.SwiGLU("hidden", 12)])
    >>> net.predict(np.ones((2, 6, 8), "float32")).shape
    (2, 6, 12)
    """

    passes_mask = True
    positionwise = True
    features_last = True
    parts = ("gate", "value")

    def __init__(self, name: str, num_output: int, use_bias: bool = True, **options: Any) -> None:
        super().__init__(name, use_bias=use_bias, **options)
        self.num_output = positive_int(self, "num_output", num_output)
        self._gate, self._value = (self.add_layer(self.product(part, self.num_output)) for part in ("gate", "value"))

    def setup(self, *shapes: Shape) -> Shape:
        """(..., features) -> (..., num_output)."""
        shape = features_of(self, shapes)
        self.any_length = len(shape) > 1
        self.set_up(self._gate, shape)
        return self.set_up(self._value, shape)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ..., features) -> (n, ..., num_output)."""
        gate = autograd.silu(self.run(self._gate, training, x))
        return autograd.multiply(gate, self.run(self._value, training, x))
