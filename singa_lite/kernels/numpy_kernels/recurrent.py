"""Recurrent layers: NumPy's products and activations, step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.numpy_kernels.recurrence import (
    BufferSpecs,
    Call,
    GruBackward,
    GruForward,
    LstmBackward,
    LstmForward,
    Pass,
    SimpleRnnBackward,
    SimpleRnnForward,
)
from singa_lite.kernels.numpy_kernels.scratch import Bytes, Shaped, bytes_for, carve, scratch


def _buffers(kind: type[Pass], name: str, tensors: Sequence[Shaped | None]) -> BufferSpecs:
    named = {key: t for key, t in zip(SIGNATURES[name].tensors, tensors, strict=True) if t is not None}
    gates = named["gates_in" if "gates_in" in named else "dgates"]
    _, n, width = gates.shape
    specs = kind.buffers(named["weight"].shape, n, gates.dtype, "mask" in named)
    return {**specs, "spare": ((n * width,), np.result_type(gates.dtype, np.float32))}


def _rule(kind: type[Pass], name: str) -> Callable[..., int]:
    """The scratch rule of a kernel that this pass does."""

    def nbytes(*tensors: Shaped | None, **settings: object) -> int:
        return bytes_for(*_buffers(kind, name, tensors).values())

    return nbytes


def _run(kind: type[Pass], name: str, tensors: Sequence[Array | None], scratch: Bytes, **settings: object) -> None:
    specs = _buffers(kind, name, tensors)
    buffers = dict(zip(specs, carve(scratch, *specs.values()), strict=True))
    call = Call(dict(zip(SIGNATURES[name].tensors, tensors, strict=True)), settings, buffers)
    kind(call)()


@scratch(_rule(LstmForward, "lstm"))
def lstm(
    gates_in: Array,
    weight: Array,
    hidden0: Array | None,
    cell0: Array | None,
    mask: Array | None,
    gates: Array,
    hidden: Array,
    cell: Array,
    *,
    reverse: bool,
    recurrent_activation: str,
    scratch: Bytes,
) -> None:
    """gates, hidden and cell."""
    tensors = gates_in, weight, hidden0, cell0, mask, gates, hidden, cell
    _run(LstmForward, "lstm", tensors, scratch, reverse=reverse, recurrent_activation=recurrent_activation)


@scratch(_rule(LstmBackward, "lstm_derivative"))
def lstm_derivative(
    dy: Array,
    weight: Array,
    mask: Array | None,
    gates: Array,
    cell: Array,
    dgates: Array,
    *,
    reverse: bool,
    last: bool,
    recurrent_activation: str,
    scratch: Bytes,
) -> None:
    """dgates."""
    settings = {"reverse": reverse, "last": last, "recurrent_activation": recurrent_activation}
    _run(LstmBackward, "lstm_derivative", (dy, weight, mask, gates, cell, dgates), scratch, **settings)


@scratch(_rule(GruForward, "gru"))
def gru(
    gates_in: Array,
    weight: Array,
    bias: Array | None,
    hidden0: Array | None,
    mask: Array | None,
    gates: Array,
    products: Array,
    hidden: Array,
    *,
    reverse: bool,
    reset_after: bool,
    recurrent_activation: str,
    scratch: Bytes,
) -> None:
    """gates, products and hidden."""
    tensors = gates_in, weight, bias, hidden0, mask, gates, products, hidden
    settings = {"reverse": reverse, "reset_after": reset_after, "recurrent_activation": recurrent_activation}
    _run(GruForward, "gru", tensors, scratch, **settings)


@scratch(_rule(GruBackward, "gru_derivative"))
def gru_derivative(
    dy: Array,
    weight: Array,
    mask: Array | None,
    gates: Array,
    products: Array,
    hidden: Array,
    dgates: Array,
    dproducts: Array | None,
    *,
    reverse: bool,
    last: bool,
    reset_after: bool,
    recurrent_activation: str,
    scratch: Bytes,
) -> None:
    """dgates and dproducts."""
    tensors = dy, weight, mask, gates, products, hidden, dgates, dproducts
    settings = {"reset_after": reset_after, "recurrent_activation": recurrent_activation}
    _run(GruBackward, "gru_derivative", tensors, scratch, reverse=reverse, last=last, **settings)


@scratch(_rule(SimpleRnnForward, "simple_rnn"))
def simple_rnn(
    gates_in: Array,
    weight: Array,
    hidden0: Array | None,
    mask: Array | None,
    hidden: Array,
    *,
    reverse: bool,
    activation: str,
    scratch: Bytes,
) -> None:
    """hidden."""
    tensors = gates_in, weight, hidden0, mask, hidden
    _run(SimpleRnnForward, "simple_rnn", tensors, scratch, reverse=reverse, activation=activation)


@scratch(_rule(SimpleRnnBackward, "simple_rnn_derivative"))
def simple_rnn_derivative(
    dy: Array,
    weight: Array,
    mask: Array | None,
    hidden: Array,
    dgates: Array,
    *,
    reverse: bool,
    last: bool,
    activation: str,
    scratch: Bytes,
) -> None:
    """dgates."""
    tensors = dy, weight, mask, hidden, dgates
    _run(
        SimpleRnnBackward, "simple_rnn_derivative", tensors, scratch, reverse=reverse, last=last, activation=activation
    )
