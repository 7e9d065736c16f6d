"""Recurrent layers: LSTM, GRU and the simple one, one direction of one stack, all steps in one kernel.

Time is the outermost axis here, so that the gradient of the weight is one product of all steps: the states before them,
which lie one behind the other, by the derivatives of their gates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from singa_lite.autograd.ops.linear import bias_gradient, product
from singa_lite.autograd.ops.op import KernelOp
from singa_lite.autograd.ops.shape import piece, side_by_side
from singa_lite.common.checks import check_choice, flag, is_bfloat16
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Tensor

GATE_ACTIVATIONS = ("sigmoid", "hard_sigmoid")
ACTIVATIONS = ("tanh", "relu")


class _Recurrent(KernelOp, ABC):
    """Base: gates (t, n, G * h) -> y (t, n, h), with `last` (n, h), a view of the states. `final`: the last states.

    A subclass gives `kernel`, `forward`, and the derivative by the gates. There is none by first states and mask.
    """

    gates: int

    def __init__(self, kernel: str, reverse: object, last: object, **settings: object) -> None:
        self.reverse, self.last = flag(f"{kernel} reverse", reverse), flag(f"{kernel} last", last)
        super().__init__(kernel, reverse=self.reverse, **settings)
        self.final: tuple[Tensor, ...] = ()
        self.dgates: Tensor | None = None

    def states(self, gates: Tensor, weight: Tensor) -> Tensor:
        """Room for the states before and behind all steps."""
        return self.device.empty((gates.shape[0] + 1, gates.shape[1], weight.shape[0]), gates.dtype)

    def run(self, *tensors: Tensor | None) -> None:
        """The kernel."""
        self.device.run(self.kernel, *tensors, **self.settings)

    def results(self, *states: Tensor) -> Tensor:
        """y of the hidden states, which come first; keeps the last ones of all."""
        t = states[0].shape[0] - 1
        at = 0 if self.reverse else t
        self.final = tuple(_step(state, at).detach() for state in states)
        hidden = states[0]
        return _step(hidden, at) if self.last else piece(hidden, 0, 1 - self.reverse, t + 1 - self.reverse)

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        """By the gates, and by the parameters behind them."""
        if self.dgates is None:
            self.dgates = self.derivative(dys[0])
        if index == 0:
            return self.dgates
        return self.gradient(index, self.dgates)

    @abstractmethod
    def derivative(self, dy: Tensor) -> Tensor:
        """By the gates."""

    def gradient(self, index: int, dgates: Tensor) -> Tensor:
        """By the weight, input 1."""
        if index != 1:
            return super().backward(index, dgates)
        return self.summed_product(self.states_before(self.kept(-1)), dgates)

    def run_derivative(self, *tensors: Tensor | None) -> None:
        """The kernel's derivative."""
        self.device.run(f"{self.kernel}_derivative", *tensors, last=self.last, **self.settings)

    def states_before(self, hidden: Tensor) -> Tensor:
        """(t, n, h): the states before all steps."""
        t = hidden.shape[0] - 1
        return piece(hidden, 0, int(self.reverse), t + self.reverse)

    def summed_product(self, states: Tensor, dgates: Tensor) -> Tensor:
        """The sum over all steps and samples of the products of a state and a derivative."""
        return product(self, _rows(states), _rows(dgates), transpose_a=True)

    def release(self) -> None:
        """Forget everything kept."""
        super().release()
        self.dgates = None


class Lstm(_Recurrent):
    """Inputs: gates, weight, hidden, cell, mask."""

    gates, optional = 4, (2, 3, 4)

    def forward(
        self, gates: Tensor, weight: Tensor, hidden0: Tensor | None, cell0: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        _check(self, gates, weight, [hidden0, cell0], mask)
        made, hidden, cell = self.empty_like(gates), self.states(gates, weight), self.states(gates, weight)
        self.run(gates, weight, hidden0, cell0, mask, made, hidden, cell)
        self.save(weight, mask, made, cell, hidden)
        return self.results(hidden, cell)

    def derivative(self, dy: Tensor) -> Tensor:
        weight, mask, gates, cell, _ = self.saved
        dgates = self.empty_like(self.kept(2))
        self.run_derivative(dy, weight, mask, gates, cell, dgates)
        return dgates


class Gru(_Recurrent):
    """Inputs: gates, weight, bias, hidden, mask."""

    gates, optional = 3, (2, 3, 4)
    dproducts: Tensor | None = None

    def forward(
        self, gates: Tensor, weight: Tensor, bias: Tensor | None, hidden0: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        _check(self, gates, weight, [hidden0], mask)
        if bias is not None and bias.shape != gates.shape[2:]:
            raise ShapeError(f"gru: wanted a bias of shape {gates.shape[2:]}, received {bias.shape}")
        made, hidden = self.empty_like(gates), self.states(gates, weight)
        products = self.device.empty((*gates.shape[:2], weight.shape[0]), gates.dtype)
        self.run(gates, weight, bias, hidden0, mask, made, products, hidden)
        self.save(weight, mask, made, products, hidden)
        return self.results(hidden)

    def derivative(self, dy: Tensor) -> Tensor:
        weight, mask, gates, products, hidden = self.saved
        dgates = self.empty_like(self.kept(2))
        if self.settings["reset_after"]:
            self.dproducts = self.empty_like(self.kept(3))
        self.run_derivative(dy, weight, mask, gates, products, hidden, dgates, self.dproducts)
        return dgates

    def gradient(self, index: int, dgates: Tensor) -> Tensor:
        """By the weight or the bias: those of r and z, and beside them that of n."""
        h, shape = self.kept(0).shape[0], self.kept(0).shape
        both, of_n = piece(dgates, 2, 0, 2 * h), self.dproducts
        if of_n is None:
            of_n = piece(dgates, 2, 2 * h, 3 * h)
        if index == 2:
            sums = [bias_gradient(self, part, 2) for part in (both, of_n)]
            return side_by_side(self, sums, shape[1:], 0)
        if index != 1:
            return super().gradient(index, dgates)
        before = self.states_before(self.kept(4))
        given = self.kept(3) if self.dproducts is None else before
        return side_by_side(self, [self.summed_product(before, both), self.summed_product(given, of_n)], shape, 1)

    def release(self) -> None:
        super().release()
        self.dproducts = None


class SimpleRnn(_Recurrent):
    """Inputs: gates, weight, hidden, mask."""

    gates, optional = 1, (2, 3)

    def forward(self, gates: Tensor, weight: Tensor, hidden0: Tensor | None, mask: Tensor | None) -> Tensor:
        _check(self, gates, weight, [hidden0], mask)
        hidden = self.states(gates, weight)
        self.run(gates, weight, hidden0, mask, hidden)
        self.save(weight, mask, hidden)
        return self.results(hidden)

    def derivative(self, dy: Tensor) -> Tensor:
        weight, mask, hidden = self.saved
        t, n, h = self.kept(2).shape
        dgates = self.device.empty((t - 1, n, h), dy.dtype)
        self.run_derivative(dy, weight, mask, hidden, dgates)
        return dgates


def _rows(x: Tensor) -> Tensor:
    """(t, n, k) -> (t * n, k), a view; the columns may be some of wider rows."""
    t, n, k = x.shape
    return x.view((t * n, k), x.strides[1:])


def _step(states: Tensor, at: int) -> Tensor:
    return piece(states, 0, at, at + 1).view(states.shape[1:])


def _check(op: _Recurrent, gates: Tensor, weight: Tensor, states: Sequence[Tensor | None], mask: Tensor | None) -> None:
    where, h = op.kernel, weight.shape[0] if weight.ndim == 2 else 0
    if gates.ndim != 3 or 0 in gates.shape:
        raise ShapeError(f"{where}: wanted gates (time, n, {op.gates} * h), no extent 0, received {gates.shape}")
    if weight.shape != (h, op.gates * h) or gates.shape[2] != op.gates * h:
        raise ShapeError(
            f"{where}: wanted weight (h, {op.gates} * h) and gates (time, n, {op.gates} * h), received {weight.shape} "
            f"and {gates.shape}"
        )
    for state in states:
        if state is not None and state.shape != (gates.shape[1], h):
            raise ShapeError(f"{where}: wanted first states of shape {(gates.shape[1], h)}, received {state.shape}")
    if mask is not None and mask.shape != (gates.shape[1], gates.shape[0]):
        raise ShapeError(
            f"{where}: wanted a mask (n, time), {(gates.shape[1], gates.shape[0])}, 1 where a step counts, received "
            f"{mask.shape}"
        )
    if gates.dtype.kind != "f" and not is_bfloat16(gates.dtype):
        raise TypeError(f"{where}: wanted tensors of floats, received {gates.dtype}")
    if any(t is not None and t.dtype != gates.dtype for t in (weight, *states)):
        raise TypeError(f"{where}: wanted gates, weight and states of one dtype, received {gates.dtype} beside others")
    if mask is not None and mask.dtype.kind not in "fiub" and not is_bfloat16(mask.dtype):
        raise TypeError(f"{where}: wanted a mask of real numbers, received {mask.dtype}")


def lstm(
    gates: Tensor,
    weight: Tensor,
    hidden: Tensor | None = None,
    cell: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    reverse: bool = False,
    last: bool = False,
    recurrent_activation: str = "sigmoid",
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns (y, hidden, cell) of a long short-term memory over all time steps. i, f, g, o = gates + h @ weight; c' =
    s(f) * c + s(i) * tanh(g); h' = s(o) * tanh(c').

    gates: (time, n, 4 * h), x @ weight_ih and biases of all steps; weight: (h, 4 * h); hidden, cell: the first states,
    (n, h), 0 where None. y: (time, n, h), with `last` (n, h), that of the last step alone. The last states come
    without derivative, and none goes to the first ones or the mask. mask: (n, time), any real dtype: where it is 0, a
    step leaves the states as they are. reverse: from the last step to the first. recurrent_activation: s, "sigmoid" or
    "hard_sigmoid" (Keras 3). ShapeError, TypeError or ValueError for what does not fit.

    >>> gates, weight = tensor.zeros((6, 2, 4 * 3)), tensor.zeros((3, 4 * 3))  # 6 steps, 2 samples, 3 units
    >>> y, hidden, cell = autograd.lstm(gates, weight)
    >>> y.shape, hidden.shape, cell.shape
    ((6, 2, 3), (2, 3), (2, 3))
    """
    kind = check_choice("lstm recurrent_activation", recurrent_activation, GATE_ACTIVATIONS)
    op = Lstm("lstm", reverse, last, recurrent_activation=kind)
    y = op(gates, weight, hidden, cell, mask)
    return y, op.final[0], op.final[1]


def gru(
    gates: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    hidden: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    reverse: bool = False,
    last: bool = False,
    reset_after: bool = True,
    recurrent_activation: str = "sigmoid",
) -> tuple[Tensor, Tensor]:
    """Returns (y, hidden) of a gated recurrent unit over all time steps. r, z = s(gates + h @ weight + bias); h' = (1 -
    z) * n + z * h, where reset_after with n = tanh(gates_n + r * (h @ weight_n + bias_n)) (PyTorch), else n =
    tanh(gates_n + (r * h) @ weight_n + bias_n).

    gates: (time, n, 3 * h), of r, z and n; weight: (h, 3 * h); bias: (3 * h,). All else as for `lstm`.

    >>> y, hidden = autograd.gru(tensor.zeros((6, 2, 3 * 4)), tensor.zeros((4, 3 * 4)), last=True)
    >>> y.shape, hidden.shape
    ((2, 4), (2, 4))
    """
    kind = check_choice("gru recurrent_activation", recurrent_activation, GATE_ACTIVATIONS)
    reset_after = flag("gru reset_after", reset_after)
    op = Gru("gru", reverse, last, recurrent_activation=kind, reset_after=reset_after)
    y = op(gates, weight, bias, hidden, mask)
    return y, op.final[0]


def simple_rnn(
    gates: Tensor,
    weight: Tensor,
    hidden: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    reverse: bool = False,
    last: bool = False,
    activation: str = "tanh",
) -> tuple[Tensor, Tensor]:
    """Returns (y, hidden) of a simple recurrent layer over all time steps. h' = activation(gates + h @ weight), "tanh"
    or "relu".

    gates: (time, n, h); weight: (h, h). All else as for `lstm`.

    >>> y, hidden = autograd.simple_rnn(tensor.zeros((6, 2, 4)), tensor.zeros((4, 4)))
    >>> y.shape, hidden.shape
    ((6, 2, 4), (2, 4))
    """
    kind = check_choice("simple_rnn activation", activation, ACTIVATIONS)
    op = SimpleRnn("simple_rnn", reverse, last, activation=kind)
    y = op(gates, weight, hidden, mask)
    return y, op.final[0]
