"""Barriers of the CUDA sources: without one of them the stand-in gives other results, so a missing one shows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import build_cache
from host_kernels import OverNumPy, cuda_on_host
from host_loader import BLOCK_BARRIER, Build, HostLoader, missing, missing_to_run, without_barrier
from launches import ORDERS, spec
from sanitized_calls import Call, calls_of, cases
from singa_lite.kernels.cuda_kernels import routine, source
from singa_lite.kernels.cuda_kernels.routine import Arguments

#: Times that a call is done, each with other orders of warps.
TURNS = 4
#: Barriers whose absence no call can show, with the reason.
UNMISSED = {
    "moments.cuh:108": "what others read is written anew with the value that it holds, and no kernel merges twice",
}

Place = tuple[str, int]


def barriers() -> list[Place]:
    """(file, line) of each in the sources and their headers."""
    return [
        (path.name, number)
        for path in sorted(source.FOLDER.glob("*.cu*"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if BLOCK_BARRIER in line
    ]


@cache
def sources_with(place: Place) -> frozenset[str]:
    """The sources that a barrier is compiled into."""
    texts = {file: source.text(file) for file in source.files()}
    return frozenset(file for file, text in texts.items() if without_barrier(text, *place) != text)


def calls_with(place: Place) -> Iterator[Call]:
    """The contract's calls that launch a kernel of such a source, aligned ones."""
    for case in cases():
        for call in calls_of(case):
            made = call.routine
            if not call.shifted and made and any(step.file in sources_with(place) for step in made.launches):
                yield call


def results(kernels: OverNumPy, call: Call) -> list[bytes]:
    """The bits of all tensors after a call."""
    tensors, settings = call.build()
    name, arrays = call.case.split(":")[0], [_placed(tensor, ORDERS[call.order]) for tensor in tensors]
    scratch = np.full(kernels.scratch_bytes(name, arrays, settings), 0xFF, np.uint8)
    kernels.prepare(name, tuple(arrays), scratch, settings)()
    return [b"" if array is None else array.tobytes() for array in arrays]


def _placed(tensor: Any, order: tuple[int, ...]) -> Any:
    wanted = spec(tensor, order)
    if wanted is None:
        return None
    made = np.ndarray(wanted.shape, wanted.dtype, np.empty(max(tensor.nbytes, 1), np.uint8), 0, wanted.strides)
    made[...] = tensor
    return made


def missed_by(place: Place) -> Call | None:
    """The first call whose bits change without that barrier."""
    for most in (1, routine.MOST_BLOCKS):  # of one block each thread goes on to further elements
        with patch.object(routine, "MOST_BLOCKS", most):
            whole, broken = cuda_on_host(), cuda_on_host(Build(without=place))
            for call in calls_with(place):
                wanted = results(whole, call)
                if any(results(broken, call) != wanted for _ in range(TURNS)):
                    return call
    return None


@pytest.mark.nightly
@pytest.mark.skipif(bool(missing_to_run()), reason=f"CUDA kernels cannot run on the host without {missing_to_run()}")
@pytest.mark.parametrize("place", barriers(), ids=lambda place: f"{place[0]}:{place[1]}")
def test_without_a_barrier_some_call_gives_other_bits(place):
    why = UNMISSED.get(f"{place[0]}:{place[1]}", "")
    assert (missed_by(place) is None) == bool(why), why or "no call shows that it is wanted"


SOURCE = """
extern "C" __global__ void divergent(int* y) {
    if (threadIdx.x == 40) __syncwarp();
    else __syncthreads();
}
"""


@pytest.mark.skipif(bool(missing()), reason=f"CUDA kernels cannot run on the host without {missing()}")
def test_a_barrier_that_some_threads_never_reach_is_reported(capfd):
    file = build_cache.sources({"waits.cu": SOURCE}) / "waits.cu"
    arguments = Arguments([np.zeros(64, np.int32).ctypes.data])
    with pytest.raises(RuntimeError, match="divergent"):
        HostLoader().function(str(file), "divergent", ()).bind((1, 1, 1), (64, 1, 1), 0, arguments)()
    assert "wait at different barriers" in capfd.readouterr().err
