"""Calls that oneDNN's set shares out to workers: equal bits, however many there are, and no byte beyond their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pytest

from singa_lite.kernels import workers
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels import attention, one_thread, recurrent

pytestmark = pytest.mark.usefixtures("onednn")

RNG = np.random.default_rng(5)
#: More scores than are done by one thread in any case.
N, T, S, H, SIZE = 3, 90, 101, 6, 8
STEPS, ROWS, UNITS = 3, 29, 160


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("f")


class Case(NamedTuple):
    """given: before the outputs, whose shapes are `made`."""

    builder: Callable[..., object]
    given: Sequence[np.ndarray | None]
    made: Sequence[tuple[int, ...]]
    settings: dict[str, object]


Q, K, V, DY = normal(N, T, H, SIZE), normal(N, S, 3, SIZE), normal(N, S, 3, SIZE), normal(N, T, H, SIZE)
MASK = (RNG.random((N, S)) > 0.3).astype("f")
KEY = np.array([3, 0, 7], np.uint64)
ATTENTION = {"causal": True, "scale": 0.3}
LSE = np.abs(normal(N, H, T)) + 4
GATES = {4: normal(STEPS, ROWS, 4 * UNITS), 3: normal(STEPS, ROWS, 3 * UNITS), 1: normal(STEPS, ROWS, 1200)}
SEEN = (RNG.random((ROWS, STEPS)) > 0.3).astype("f")
WIDE = 1200
RNN = {"reverse": True, "activation": "tanh"}
LSTM = {"reverse": False, "recurrent_activation": "sigmoid"}


def weight(gates: int) -> np.ndarray:
    return normal(UNITS, gates * UNITS) / 20


STATES = (STEPS + 1, ROWS, UNITS)
CASES = {
    "attention": Case(attention.attention, (Q, K, V, MASK, None), (Q.shape, LSE.shape), ATTENTION),
    "attention, dropout": Case(
        attention.attention, (Q, K, V, None, KEY), (Q.shape, LSE.shape), {**ATTENTION, "p": 0.2}
    ),
    "attention_derivative": Case(
        attention.attention_derivative,
        (DY, Q, K, V, MASK, None, normal(*Q.shape), LSE),
        (Q.shape, K.shape, V.shape),
        {**ATTENTION, "causal": False},
    ),
    "lstm": Case(
        recurrent.lstm,
        (GATES[4], weight(4), normal(ROWS, UNITS), normal(ROWS, UNITS), SEEN),
        (GATES[4].shape, STATES, STATES),
        LSTM,
    ),
    "lstm_derivative": Case(
        recurrent.lstm_derivative,
        (normal(ROWS, UNITS), weight(4), SEEN, GATES[4], normal(*STATES)),
        (GATES[4].shape,),
        {**LSTM, "last": True},
    ),
    "gru": Case(
        recurrent.gru,
        (GATES[3], weight(3), normal(3 * UNITS), None, None),
        (GATES[3].shape, (STEPS, ROWS, UNITS), STATES),
        {**LSTM, "reset_after": True},
    ),
    "gru_derivative": Case(
        recurrent.gru_derivative,
        (normal(STEPS, ROWS, UNITS), weight(3), SEEN, GATES[3], normal(STEPS, ROWS, UNITS), normal(*STATES)),
        (GATES[3].shape, (STEPS, ROWS, UNITS)),
        {**LSTM, "last": False, "reset_after": True},
    ),
    "simple_rnn": Case(
        recurrent.simple_rnn,
        (GATES[1], normal(WIDE, WIDE) / 40, normal(ROWS, WIDE), SEEN),
        ((STEPS + 1, ROWS, WIDE),),
        RNN,
    ),
}


def results(case: Case) -> list[np.ndarray]:
    """Of the call, whose scratch is full of NaN before it and has 64 bytes more, which must stay as they are."""
    arrays = [*case.given, *(np.full(shape, np.nan, np.float32) for shape in case.made)]
    specs = tuple(None if a is None else TensorSpec(a.shape, a.dtype, a.strides) for a in arrays)
    routine = case.builder(*specs, **case.settings)
    assert routine is not None
    scratch = np.full(routine.scratch_bytes + 128, 255, np.uint8)
    start = -scratch.__array_interface__["data"][0] % 64
    own = scratch[start : start + routine.scratch_bytes]
    launch = routine.bind(specs, tuple(arrays), own)
    launch()
    launch()
    assert (scratch[start + routine.scratch_bytes :] == 255).all()
    return arrays[len(case.given) :]


@pytest.mark.parametrize("name", CASES)
def test_bits_are_equal_however_many_workers_there_are(name, monkeypatch):
    shared: list[int] = []
    share = workers.share
    monkeypatch.setattr(workers, "share", lambda pieces, slots: shared.append(len(slots)) or share(pieces, slots))
    found = []
    for count in (1, 2, 3):
        monkeypatch.setattr(one_thread, "slots", lambda count=count: count)
        found.append(results(CASES[name]))
    assert shared == [2, 2, 3, 3]
    for several in found[1:]:
        for one, other in zip(found[0], several, strict=True):
            assert np.isfinite(one).all()
            np.testing.assert_array_equal(one, other)


def test_an_error_of_a_library_call_in_a_worker_arrives(monkeypatch):
    monkeypatch.setattr(one_thread, "slots", lambda: 2)

    def fail(self: object, sample: int, group: slice) -> None:
        raise MemoryError(f"sample {sample}")

    monkeypatch.setattr(attention.Forward, "group", fail)
    with pytest.raises(MemoryError, match="sample"):
        results(CASES["attention"])
