"""Recurrent layers, each kernel a pass over time (`recurrent_passes.py`) by the library's arithmetic."""

from __future__ import annotations

from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.recurrent_passes import routine_of
from singa_lite.kernels.onednn_kernels.routine import Routine
from singa_lite.kernels.recurrence import (
    GruBackward,
    GruForward,
    LstmBackward,
    LstmForward,
    SimpleRnnBackward,
    SimpleRnnForward,
)


def lstm(
    gates_in: TensorSpec,
    weight: TensorSpec,
    hidden0: TensorSpec | None,
    cell0: TensorSpec | None,
    mask: TensorSpec | None,
    gates: TensorSpec,
    hidden: TensorSpec,
    cell: TensorSpec,
    *,
    reverse: bool,
    recurrent_activation: str,
) -> Routine | None:
    """gates, hidden and cell."""
    specs = gates_in, weight, hidden0, cell0, mask, gates, hidden, cell
    return routine_of(LstmForward, "lstm", specs, reverse=reverse, recurrent_activation=recurrent_activation)


def lstm_derivative(
    dy: TensorSpec,
    weight: TensorSpec,
    mask: TensorSpec | None,
    gates: TensorSpec,
    cell: TensorSpec,
    dgates: TensorSpec,
    *,
    reverse: bool,
    last: bool,
    recurrent_activation: str,
) -> Routine | None:
    """dgates."""
    settings = {"reverse": reverse, "last": last, "recurrent_activation": recurrent_activation}
    return routine_of(LstmBackward, "lstm_derivative", (dy, weight, mask, gates, cell, dgates), **settings)


def gru(
    gates_in: TensorSpec,
    weight: TensorSpec,
    bias: TensorSpec | None,
    hidden0: TensorSpec | None,
    mask: TensorSpec | None,
    gates: TensorSpec,
    products: TensorSpec,
    hidden: TensorSpec,
    *,
    reverse: bool,
    reset_after: bool,
    recurrent_activation: str,
) -> Routine | None:
    """gates, products and hidden."""
    specs = gates_in, weight, bias, hidden0, mask, gates, products, hidden
    settings = {"reverse": reverse, "reset_after": reset_after, "recurrent_activation": recurrent_activation}
    return routine_of(GruForward, "gru", specs, **settings)


def gru_derivative(
    dy: TensorSpec,
    weight: TensorSpec,
    mask: TensorSpec | None,
    gates: TensorSpec,
    products: TensorSpec,
    hidden: TensorSpec,
    dgates: TensorSpec,
    dproducts: TensorSpec | None,
    *,
    reverse: bool,
    last: bool,
    reset_after: bool,
    recurrent_activation: str,
) -> Routine | None:
    """dgates and dproducts."""
    specs = dy, weight, mask, gates, products, hidden, dgates, dproducts
    settings = {"reset_after": reset_after, "recurrent_activation": recurrent_activation}
    return routine_of(GruBackward, "gru_derivative", specs, reverse=reverse, last=last, **settings)


def simple_rnn(
    gates_in: TensorSpec,
    weight: TensorSpec,
    hidden0: TensorSpec | None,
    mask: TensorSpec | None,
    hidden: TensorSpec,
    *,
    reverse: bool,
    activation: str,
) -> Routine | None:
    """hidden."""
    specs = gates_in, weight, hidden0, mask, hidden
    return routine_of(SimpleRnnForward, "simple_rnn", specs, reverse=reverse, activation=activation)


def simple_rnn_derivative(
    dy: TensorSpec,
    weight: TensorSpec,
    mask: TensorSpec | None,
    hidden: TensorSpec,
    dgates: TensorSpec,
    *,
    reverse: bool,
    last: bool,
    activation: str,
) -> Routine | None:
    """dgates."""
    specs = dy, weight, mask, hidden, dgates
    settings = {"reverse": reverse, "last": last, "activation": activation}
    return routine_of(SimpleRnnBackward, "simple_rnn_derivative", specs, **settings)
