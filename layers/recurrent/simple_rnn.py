"""SimpleRNN: a recurrent layer without gates."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer import initializer
from singa_lite.layer.layer import InputShape
from singa_lite.layers._checks import check_choice
from singa_lite.layers.recurrent._recurrent import RecurrentLayer
from singa_lite.tensor import Tensor


class SimpleRNN(RecurrentLayer):
    """A simple recurrent layer, h' = activation(x @ weight_ih + bias_ih + h @ weight_hh + bias_hh) (Elman 1990;
    PyTorch's RNN).

    activation: "tanh" or "relu". All else, but for gates and cell, as in `LSTM`: parameters weight_ih_l0 (features,
    hidden_size), weight_hh_l0 (hidden_size, hidden_size), bias_ih_l0, bias_hh_l0 (hidden_size,), state hidden_l0
    (batch_size, hidden_size).

    >>> net = Sequential([layers.Input((6, 3)), layers.SimpleRNN("rnn", 4, activation="relu")])
    >>> net.predict(np.ones((2, 6, 3), "float32")).shape
    (2, 4)
    """

    gates = 1

    def __init__(
        self,
        name: str,
        hidden_size: int,
        dropout: float = 0.0,
        num_stacks: int = 1,
        input_mode: str = "linear",
        bidirectional: bool = False,
        *,
        activation: str = "tanh",
        merge: str = "concat",
        return_sequences: bool = False,
        stateful: bool = False,
        batch_size: int | None = None,
        use_bias: bool = True,
        weight_init: initializer.Spec | None = None,
        recurrent_init: initializer.Spec | None = None,
        bias_init: initializer.Spec | None = None,
        input_sample_shape: InputShape | None = None,
    ) -> None:
        super().__init__(
            name,
            hidden_size,
            dropout,
            num_stacks,
            input_mode,
            bidirectional,
            merge=merge,
            return_sequences=return_sequences,
            stateful=stateful,
            batch_size=batch_size,
            use_bias=use_bias,
            weight_init=weight_init,
            recurrent_init=recurrent_init,
            bias_init=bias_init,
            input_sample_shape=input_sample_shape,
        )
        self.activation = check_choice(self, "activation", activation, ("tanh", "relu"))

    def cell(
        self, ending: str, gates: Tensor, states: list[Tensor], mask: Tensor | None, reverse: bool, last: bool
    ) -> tuple[Tensor, ...]:
        """y and hidden."""
        weight, hidden = self.parameters[f"weight_hh{ending}"], states[0] if states else None
        return autograd.simple_rnn(gates, weight, hidden, mask, reverse=reverse, last=last, activation=self.activation)
