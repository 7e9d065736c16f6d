"""The recurrent layers: LSTM, GRU and SimpleRNN."""

from __future__ import annotations

from typing import Any

from singa_lite import autograd
from singa_lite.layers._checks import check_choice, flag
from singa_lite.layers.recurrent._recurrent import RecurrentLayer
from singa_lite.tensor import Tensor


class LSTM(RecurrentLayer):
    """A long short-term memory. i, f, o = s(..), g = tanh(..) of x @ weight_ih + bias_ih + h @ weight_hh + bias_hh; c'
    = f * c + i * g; h' = o * tanh(c') (Hochreiter and Schmidhuber 1997, with a forget gate; PyTorch's formula, gates i,
    f, g, o).

    Input samples (time, features), perhaps a mask (time,) as second input; else the mask that comes with the tensor. A
    masked step leaves h and c as they are, and its output is h. Output samples (hidden_size,), of the last step, with
    return_sequences (time, hidden_size); with merge "concat" twice as wide. h and c begin as 0.

    Parameters, by PyTorch's names: weight_ih_l0 (features, 4 * hidden_size), weight_hh_l0 (hidden_size, 4 *
    hidden_size), bias_ih_l0, bias_hh_l0 (4 * hidden_size,), whose sum counts; further stacks _l1 and so on, the other
    direction _l0_reverse. State: with dropout, random uint64 (3,), as in Dropout; with stateful, hidden_l0 and cell_l0
    (batch_size, hidden_size).

    dropout: the share of outputs between stacks that training drops. num_stacks: layers one behind the other.
    input_mode: "linear", SINGA's other one is not offered. bidirectional: each stack also from the last step to the
    first; merge: "concat", "sum", "mul" or "ave" of both. stateful: a training batch begins with the states that the
    one before ended with, without derivative; batch_size says of how many samples; evaluation begins at 0 and leaves
    them alone. recurrent_activation: s, "sigmoid" or "hard_sigmoid" (Keras 3). weight_init, recurrent_init, bias_init:
    an Initializer, its name, or a number; None: uniform within 1 / sqrt(hidden_size), as PyTorch.

    >>> net = Sequential([layers.Input((6, 3)), layers.LSTM("lstm", 4, return_sequences=True)])
    >>> net.predict(np.ones((2, 6, 3), "float32")).shape
    (2, 6, 4)
    """

    gates = 4
    kept_states = ("hidden", "cell")

    def __init__(self, *args: Any, recurrent_activation: str = "sigmoid", **options: Any) -> None:
        super().__init__(*args, **options)
        names = ("sigmoid", "hard_sigmoid")
        self.recurrent_activation = check_choice(self, "recurrent_activation", recurrent_activation, names)

    def cell(
        self, ending: str, gates: Tensor, states: list[Tensor], mask: Tensor | None, reverse: bool, last: bool
    ) -> tuple[Tensor, ...]:
        """y, hidden and cell."""
        hidden, cell = states or (None, None)
        weight, kind = self.parameters[f"weight_hh{ending}"], self.recurrent_activation
        return autograd.lstm(gates, weight, hidden, cell, mask, reverse=reverse, last=last, recurrent_activation=kind)


class GRU(RecurrentLayer):
    """A gated recurrent unit. r, z = s(x @ weight_ih + bias_ih + h @ weight_hh + bias_hh); h' = (1 - z) * n + z * h,
    with reset_after n = tanh(x @ weight_ih_n + bias_ih_n + r * (h @ weight_hh_n + bias_hh_n)) (PyTorch's formula, gates
    r, z, n), else n = tanh(x @ weight_ih_n + bias_ih_n + (r * h) @ weight_hh_n + bias_hh_n) (Cho and others, arXiv
    1406.1078).

    reset_after: as above; Keras has both. All else, but for the cell, as in `LSTM`: parameters weight_ih_l0 (features,
    3 * hidden_size), weight_hh_l0 (hidden_size, 3 * hidden_size), bias_ih_l0, bias_hh_l0 (3 * hidden_size,), state
    hidden_l0 (batch_size, hidden_size).

    >>> net = Sequential([layers.Input((6, 3)), layers.GRU("gru", 4)])  # 6 steps of 3 features
    >>> net.predict(np.ones((2, 6, 3), "float32")).shape
    (2, 4)
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

    def __init__(self, *args: Any, activation: str = "tanh", **options: Any) -> None:
        super().__init__(*args, **options)
        self.activation = check_choice(self, "activation", activation, ("tanh", "relu"))

    def cell(
        self, ending: str, gates: Tensor, states: list[Tensor], mask: Tensor | None, reverse: bool, last: bool
    ) -> tuple[Tensor, ...]:
        """y and hidden."""
        weight, hidden = self.parameters[f"weight_hh{ending}"], states[0] if states else None
        return autograd.simple_rnn(gates, weight, hidden, mask, reverse=reverse, last=last, activation=self.activation)
