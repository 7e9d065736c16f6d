"""LSTM: a recurrent layer that keeps a cell beside its output."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer import initializer
from singa_lite.layer.layer import InputShape
from singa_lite.layers._checks import check_choice
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

    def __init__(
        self,
        name: str,
        hidden_size: int,
        dropout: float = 0.0,
        num_stacks: int = 1,
        input_mode: str = "linear",
        bidirectional: bool = False,
        *,
        merge: str = "concat",
        return_sequences: bool = False,
        stateful: bool = False,
        batch_size: int | None = None,
        recurrent_activation: str = "sigmoid",
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
        names = ("sigmoid", "hard_sigmoid")
        self.recurrent_activation = check_choice(self, "recurrent_activation", recurrent_activation, names)

    def cell(
        self, ending: str, gates: Tensor, states: list[Tensor], mask: Tensor | None, reverse: bool, last: bool
    ) -> tuple[Tensor, ...]:
        """y, hidden and cell."""
        hidden, cell = states or (None, None)
        weight, kind = self.parameters[f"weight_hh{ending}"], self.recurrent_activation
        return autograd.lstm(gates, weight, hidden, cell, mask, reverse=reverse, last=last, recurrent_activation=kind)
