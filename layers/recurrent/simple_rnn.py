"""SimpleRNN: a recurrent layer without gates."""

from __future__ import annotations

from typing import Any

from singa_lite import autograd
from singa_lite.layers._checks import check_choice
from singa_lite.layers.recurrent._recurrent import RecurrentLayer
from singa_lite.tensor import Tensor


class SimpleRNN(RecurrentLayer):
    """h' = activation(x @ weight_ih + bias_ih + h @ weight_hh + bias_hh) (Elman 1990; PyTorch's RNN).

    activation: "tanh" or "relu". All else, but for gates and cell, as in `LSTM`: parameters weight_ih_l0 (features,
    hidden_size), weight_hh_l0 (hidden_size, hidden_size), bias_ih_l0, bias_hh_l0 (hidden_size,), state hidden_l0
    (batch_size, hidden_size).
    """

    gates = 1

    def __init__(self, *args: Any, activation: str = "tanh", **options: Any) -> None:
        super().__init__(*args, **options)
        self.activation = check_choice(self, "activation", activation, ("tanh", "relu"))

    def cell(
        self, ending: str, gates: Tensor, states: list[Tensor], mask: Tensor | None, reverse: bool, last: bool
    ) -> tuple[Tensor, ...]:
        """y and hidden."""
        weight, hidden = self.parameters[f"weight_hh{ending}"], states[0] if states else None
        return autograd.simple_rnn(gates, weight, hidden, mask, reverse=reverse, last=last, activation=self.activation)
