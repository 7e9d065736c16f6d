"""Base of layers with weights: how these begin, and the activation that is applied to what the layer computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from singa_lite import autograd
from singa_lite.common.described import Arguments
from singa_lite.layer import initializer
from singa_lite.layer.layer import Layer, check_new
from singa_lite.layers._checks import bias_init as checked_bias_init
from singa_lite.layers._checks import check_choice, flag, init, label
from singa_lite.layers.activation import MODES, Activation
from singa_lite.tensor import Tensor

#: What a layer takes as `activation=`: a mode, "softmax", "linear", such an operation of `autograd`, or an Activation.
Activated = str | Callable[..., Tensor] | Activation | None

#: {name of Keras's: the mode}.
_ALIASES = {"swish": "silu", "linear": None}


class Weighted(Layer):
    """A layer with a weight and perhaps a bias, or that holds such layers."""

    def __init__(
        self,
        name: str,
        *,
        use_bias: bool = True,
        weight_init: initializer.Spec = "glorot_uniform",
        bias_init: initializer.Spec = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self.use_bias = flag(self, "use_bias", use_bias)
        self.weight_init = init(self, "weight_init", weight_init)
        self.bias_init = checked_bias_init(self, bias_init, self.use_bias)

    @property
    def weight_options(self) -> dict[str, Any]:
        """The three options of weights, for layers within this one."""
        return {"use_bias": self.use_bias, "weight_init": self.weight_init, "bias_init": self.bias_init}


class WithActivation(Weighted):
    """A layer with a weight, and perhaps an activation behind it."""

    def __init__(self, name: str, *, activation: Activated = None, **options: Any) -> None:
        super().__init__(name, **options)
        self.activation = self._checked_activation(activation)
        self.gives = self.activation_mode if self.activation_mode in ("softmax", "sigmoid") else ""

    @property
    def activation_mode(self) -> str:
        """The name of the activation; "" for none."""
        return self.activation.mode if isinstance(self.activation, Activation) else self.activation or ""

    def summary_note(self) -> str:
        """The name of the activation."""
        return self.activation_mode

    def activated(self, y: Tensor, axis: int) -> Tensor:
        """The activation of y. axis: of the features, for "softmax"."""
        if self.activation is None:
            return y
        if self.activation == "softmax":
            return autograd.softmax(y, axis)
        if isinstance(self.activation, Activation):
            return MODES[self.activation.mode](y, **self.activation.options)
        return MODES[self.activation](y)

    def _checked_activation(self, given: Activated) -> str | Activation | None:
        """The mode, "softmax" or Activation; None for none. An operation of `autograd` is its mode, in arguments too.

        ValueError for an unknown name, TypeError for what is no activation, GraphError for a layer that is in a net.
        """
        names = (*MODES, "softmax", *_ALIASES)
        if given is None:
            return None
        if isinstance(given, Activation):
            check_new(f"{label(self)}: activation", given)
            return given
        if not isinstance(given, str):
            known = {**MODES, "softmax": autograd.softmax}
            mode = next((name for name, operation in known.items() if operation is given), None)
            if mode is None:
                raise TypeError(
                    f"{label(self)}: wanted activation to be a name of {', '.join(names)}, an Activation, or such an "
                    f"operation of autograd, received {given!r:.100}; a Lambda behind the layer applies any function"
                )
            self._given = Arguments({**self.given_arguments, "activation": mode}, self._given.is_complete)
            return mode
        check_choice(self, "activation", given, names)
        if given == "leaky_relu":
            raise ValueError(
                f"{label(self)}: wanted activation=layers.Activation(mode='leaky_relu', slope=...), as the slope is "
                "0.01 here and 0.2 in Keras, received 'leaky_relu'"
            )
        return _ALIASES.get(given, given)
