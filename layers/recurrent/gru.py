"""GRU: a recurrent layer with two gates and no cell."""

from __future__ import annotations

from typing import Any

from singa_lite import autograd
from singa_lite.layers._checks import check_choice, flag
from singa_lite.layers.recurrent._recurrent import RecurrentLayer
from singa_lite.tensor import Tensor


class GRU(RecurrentLayer):
    """A gated recurrent unit. r, z = s(x @ weight_ih + bias_ih + h @ weight_hh + bias_hh); h' = (1 - z) * n + z * h,
    with reset_after n = tanh(x @ weight_ih_n + bias_ih_n + r * (h @ weight_hh_n + bias_hh_n)) (PyTorch's formula, gates
    r, z, n), else n = tanh(x @ weight_ih_n + bias_ih_n + (r * h) @ weight_hh_n + bias_hh_n) (Cho and others, arXiv
    1406.1078).

    reset_after: as above; Keras has both. All else, but for the cell, as in `LSTM`: parameters weight_ih_l0 (features,
    3 * hidden_size), weight_hh_l0 (hidden_size, 3 * hidden_size), bias_ih_l0, bias_hh_l0 (3 * hidden_size,), state
    hidden_l0 (batch_size, hidden_size).
    """

    gates = 3

    def __init__(
        self, *args: Any, reset_after: bool = True, recurrent_activation: str = "sigmoid", **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.reset_after = flag(self, "reset_after", reset_after)
        names = ("sigmoid", "hard_sigmoid")
        self.recurrent_activation = check_choice(self, "recurrent_activation", recurrent_activation, names)

    def bias_of(self, ending: str) -> Tensor:
        """The inputs' own, as that of the states may stand within the reset."""
        return self.parameters[f"bias_ih{ending}"]

    def cell(
        self, ending: str, gates: Tensor, states: list[Tensor], mask: Tensor | None, reverse: bool, last: bool
    ) -> tuple[Tensor, ...]:
        """y and hidden."""
        return autograd.gru(
            gates,
            self.parameters[f"weight_hh{ending}"],
            self.parameters[f"bias_hh{ending}"] if self.use_bias else None,
            states[0] if states else None,
            mask,
            reverse=reverse,
            last=last,
            reset_after=self.reset_after,
            recurrent_activation=self.recurrent_activation,
        )
