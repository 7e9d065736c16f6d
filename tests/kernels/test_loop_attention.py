"""Attention by the loops: equal bits, however many threads there are, and no byte beyond the scratch is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kernel_case import run_twice
from singa_lite.common import threads
from singa_lite.kernels.loop_kernels import loops
from singa_lite.kernels.loop_kernels.library import load
from singa_lite.kernels.numpy_kernels import NUMPY

pytestmark = pytest.mark.skipif(load() is None, reason="this system has no compiled loops, or SINGA_LITE_LOOPS is off")

RNG = np.random.default_rng(5)
#: More scores than are done by one thread in any case, and more rows than a panel has.
N, T, S, H, SIZE = 3, 190, 201, 6, 8


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("f")


Q, K, V, DY = normal(N, T, H, SIZE), normal(N, S, 3, SIZE), normal(N, S, 3, SIZE), normal(N, T, H, SIZE)
MASK = (RNG.random((N, S)) > 0.3).astype("f")
KEY = np.array([3, 0, 7], np.uint64)
FIRST = np.maximum(np.arange(T) - RNG.integers(0, 90, (N, T)), 0)
CAUSAL = {"causal": True, "scale": 0.3}
LSE = np.abs(normal(N, H, T)) + 4
#: {kernel, case: what is given, the shapes of the results, settings}.
CASES: dict[str, tuple[Sequence[Any], Sequence[tuple[int, ...]], dict[str, object]]] = {
    "attention": ((Q, K, V, MASK, FIRST, None), (Q.shape, LSE.shape), CAUSAL),
    "attention, dropout": ((Q, K, V, None, None, KEY), (Q.shape, LSE.shape), {**CAUSAL, "p": 0.2}),
    "attention_derivative": (
        (DY, Q, K, V, MASK, None, None, normal(*Q.shape), LSE),
        (Q.shape, K.shape, V.shape),
        {**CAUSAL, "causal": False},
    ),
    "attention_derivative, dropout": (
        (DY, Q, K, V, None, FIRST, KEY, normal(*Q.shape), LSE),
        (Q.shape, K.shape, V.shape),
        {**CAUSAL, "p": 0.2},
    ),
}


def results(name: str) -> list[np.ndarray]:
    """Results of a case."""
    given, made, settings = CASES[name]
    name = name.partition(",")[0]
    arrays = (*given, *(np.full(shape, np.nan, np.float32) for shape in made))
    run_twice(loops(NUMPY), name, arrays, settings)
    return list(arrays[len(given) :])


@pytest.mark.parametrize("name", CASES)
def test_bits_are_equal_however_many_threads_there_are(name, monkeypatch):
    found = []
    for count in (1, 2, 3):
        monkeypatch.setattr(threads, "threads", lambda count=count: count)
        found.append(results(name))
    for several in found[1:]:
        for one, other in zip(found[0], several, strict=True):
            assert np.isfinite(one).all()
            np.testing.assert_array_equal(one, other)
