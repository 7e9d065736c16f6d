"""Recurrent layers: NumPy's products and activations, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
from singa_lite.kernels.numpy_kernels.scratch import RULES, Bytes, Shaped, bytes_for, carve


def _buffers(kind: type[Pass], named: Mapping[str, Any]) -> BufferSpecs:
    """What a call of these tensors, by their names, works in."""
    gates = named["gates_in" if "gates_in" in named else "dgates"]
    _, n, width = gates.shape
    specs = kind.buffers(named["weight"].shape, n, gates.dtype, named["mask"] is not None)
    return {**specs, "spare": ((n * width,), np.result_type(gates.dtype, np.float32))}


def _kernel(name: str, kind: type[Pass]) -> Callable[..., None]:
    """The kernel whose calls this pass does."""
    names = SIGNATURES[name].tensors

    def run(*tensors: Array | None, scratch: Bytes, **settings: object) -> None:
        named = dict(zip(names, tensors, strict=True))
        specs = _buffers(kind, named)
        kind(Call(named, settings, dict(zip(specs, carve(scratch, *specs.values()), strict=True))))()

    def nbytes(*tensors: Shaped | None, **settings: object) -> int:
        return bytes_for(*_buffers(kind, dict(zip(names, tensors, strict=True))).values())

    RULES[run] = nbytes
    return run


_PASSES: dict[str, type[Pass]] = {
    "lstm": LstmForward,
    "lstm_derivative": LstmBackward,
    "gru": GruForward,
    "gru_derivative": GruBackward,
    "simple_rnn": SimpleRnnForward,
    "simple_rnn_derivative": SimpleRnnBackward,
}
KERNELS = {name: _kernel(name, kind) for name, kind in _PASSES.items()}
