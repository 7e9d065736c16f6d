"""GRU: a recurrent layer with two gates and no cell."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer import initializer
from singa_lite.layer.layer import InputShape
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

    >>> net = Sequential([layers.Input((6, 3)), layers.GRU("gru", 4)])  # 6 steps of 3 features
    >>> net.predict(np.ones((2, 6, 3), "float32")).shape
    (2, 4)
    """

    gates = 3

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
        reset_after: bool = True,
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
