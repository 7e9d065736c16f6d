"""Recurrent layers: all steps of one direction of one stack in one call, behind the product of all steps' inputs.

    gates_in  = x @ weight_ih + biases, for all steps in one product before the call
    step s    = gates_in[s] + h[s - 1] @ weight, then the gates' activations, then the states
    dweight   = h[s - 1]^T @ dgates[s], for all steps in one product behind the derivative

The steps are the outermost axis, so that each is a matrix without gaps. `hidden` and `cell` have one entry more than
there are steps: the first state, at index 0, or at index t where reverse, so that entries 0 to t - 1 and 1 to t are the
states before and behind each step. reverse: from the last step to the first.
"""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Write, kernel

# t steps, n samples, h units. gates_in, gates, dgates: (t, n, G * h), G = 4 in lstm, 3 in gru and 1 in simple_rnn.
# weight: (h, G * h); hidden, cell: (t + 1, n, h); hidden0, cell0: (n, h), 0 where None. mask: (n, t), any real dtype:
# where it is 0, a step leaves the states as they are, and its derivative passes through them alone.
# dy: (t, n, h), of all steps; with last (n, h), of the last one in the direction.
# recurrent_activation: "sigmoid", or "hard_sigmoid", which is x / 6 + 1/2 between 0 and 1 (Keras 3).
# NaN and infinities reach the gates of their sample at that step, and its states from there on, unless it is masked.
PRODUCTS = Facts(strides_matter=True, multiplies="steps")


@kernel(PRODUCTS, gates="gates_in")
def lstm(
    gates_in: Read,
    weight: Read,
    hidden0: Read | None,
    cell0: Read | None,
    mask: Read | None,
    gates: Write,
    hidden: Write,
    cell: Write,
    *,
    reverse: bool,
    recurrent_activation: str,
) -> None:
    """A long short-term memory over all time steps. i, f, g, o = the gates, s(..), s(..), tanh(..), s(..) of gates_in +
    h @ weight; c' = f * c + i * g; h' = o * tanh(c') (Hochreiter and Schmidhuber 1997, with Gers' forget gate;
    PyTorch's order).
    """


@kernel(PRODUCTS, dgates="gates")
def lstm_derivative(
    dy: Read,
    weight: Read,
    mask: Read | None,
    gates: Read,
    cell: Read,
    dgates: Write,
    *,
    reverse: bool,
    last: bool,
    recurrent_activation: str,
) -> None:
    """The derivative by gates_in, from the last step to the first."""


@kernel(PRODUCTS, gates="gates_in")
def gru(
    gates_in: Read,
    weight: Read,
    bias: Read | None,
    hidden0: Read | None,
    mask: Read | None,
    gates: Write,
    products: Write,
    hidden: Write,
    *,
    reverse: bool,
    reset_after: bool,
    recurrent_activation: str,
) -> None:
    """A gated recurrent unit over all time steps. r, z = s(..) of gates_in + h @ weight + bias; h' = n + z * (h - n),
    and of the last third of each, where reset_after, products = h @ weight_n + bias_n and n = tanh(gates_in_n + r *
    products) (PyTorch, cuDNN), else products = r * h and n = tanh(gates_in_n + products @ weight_n + bias_n) (Cho and
    others, arXiv 1406.1078).

    gates: r, z, n. products: (t, n, h). bias: (3 * h,).
    """


@kernel(PRODUCTS, dgates="gates", dproducts="products")
def gru_derivative(
    dy: Read,
    weight: Read,
    mask: Read | None,
    gates: Read,
    products: Read,
    hidden: Read,
    dgates: Write,
    dproducts: Write | None,
    *,
    reverse: bool,
    last: bool,
    reset_after: bool,
    recurrent_activation: str,
) -> None:
    """The derivative by gates_in and, where reset_after, by products, which is None else."""


@kernel(PRODUCTS)
def simple_rnn(
    gates_in: Read,
    weight: Read,
    hidden0: Read | None,
    mask: Read | None,
    hidden: Write,
    *,
    reverse: bool,
    activation: str,
) -> None:
    """h' = activation(gates_in + h @ weight) (Elman 1990). activation: "tanh" or "relu"."""


@kernel(PRODUCTS, dgates="dy")
def simple_rnn_derivative(
    dy: Read,
    weight: Read,
    mask: Read | None,
    hidden: Read,
    dgates: Write,
    *,
    reverse: bool,
    last: bool,
    activation: str,
) -> None:
    """The derivative by gates_in, from the last step to the first."""
