"""What the launches of a step hold of the library: objects that they share, and nothing of how they were made."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

from layouts import piece_of_channels_last
from singa_lite.kernels.kernel_set import KernelSet, Launch
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels import memories, memory_descs, one_thread
from singa_lite.kernels.onednn_kernels.handles import Handle
from singa_lite.kernels.onednn_kernels.loop import Run
from singa_lite.kernels.onednn_kernels.primitive import Primitive
from test_normalization_values import empty, normal, vectors

Array = np.ndarray
SHAPE, C = (3, 16, 90, 70), 16
NAME, SETTINGS = "batch_norm_activation_derivative", {"activation": "relu"}


def call(seed: int, mean: float = 0.0) -> list[Array]:
    """dy, x and dx are some channels of larger tensors, and pieces of several lengths; mean: of x."""
    dy, x = (piece_of_channels_last(normal(*SHAPE, seed=seed + n)) for n in (0, 1))
    x += mean
    gamma, beta, inv_std = vectors(C, 3)
    means = np.full(C, mean, np.float32)
    return [dy, x, gamma, beta, means, inv_std, piece_of_channels_last(empty(*SHAPE)), empty(C), empty(C)]


def bound(kernels: KernelSet, arrays: list[Array]) -> Launch:
    scratch = np.empty(kernels.scratch_bytes(NAME, arrays, SETTINGS), np.uint8)
    return kernels.prepare(NAME, tuple(arrays), scratch, SETTINGS)


def held(kind: type) -> int:
    return sum(issubclass(type(each), kind) for each in gc.get_objects())  # `isinstance` asks the objects themselves


@pytest.fixture
def sharing(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """So many arguments have objects of their own."""
    return lambda own: monkeypatch.setattr(memories, "OWN", own)


@pytest.mark.parametrize("own", [0, 40])
@pytest.mark.parametrize("mean", [0.0, 1000.0])  # of which steps on a condition that few nets meet are bound in the run
def test_launches_that_share_objects_give_the_bits_of_launches_by_themselves(onednn, sharing, own, mean):
    sharing(own)
    alone, together = ([call(seed, mean) for seed in (1, 5, 9)] for _ in range(2))
    for arrays in alone:
        bound(onednn, arrays)()
    with onednn.turns()():
        launches = [bound(onednn, arrays) for arrays in together]
    for _ in range(2):
        for launch, arrays, wanted in [*zip(launches, together, alone, strict=True)][::-1]:
            for result in arrays[-3:]:
                result.fill(np.nan)
            launch()
            for result, right in zip(arrays[-3:], wanted[-3:], strict=True):
                assert result.tobytes() == right.tobytes()


def test_further_launches_of_a_call_take_no_further_objects(onednn, sharing):
    sharing(0)
    turns, launches, counts = onednn.turns(), [], []
    for seed in range(4):
        with turns():
            launches.append(bound(onednn, call(10 * seed)))
        counts.append(held(Handle))
    assert counts[1:] == counts[:1] * 3


def test_launches_hold_nothing_of_how_they_were_made(onednn):
    onednn.forget()
    gc.collect()
    gc.disable()  # what only the collector of garbage would find stays until it comes, and keeps its pages
    try:
        before = held(Run)
        launch = bound(onednn, call(3))
        assert held(Run) > before
        onednn.forget()
        assert held(Run) == before
    finally:
        gc.enable()
    launch()


def test_what_is_forgotten_is_answered_as_before(onednn, monkeypatch):
    arrays = call(4)
    wanted = onednn.scratch_bytes(NAME, arrays, SETTINGS)
    onednn.forget()
    monkeypatch.setattr(onednn.kernels[NAME], "attempt", None)  # asked again, a builder would be called
    assert onednn.scratch_bytes(NAME, arrays, SETTINGS) == wanted


def product(rows: int) -> Primitive:
    """One whose scratch grows with the number of threads that it is made for."""
    shapes = (rows, 130), (130, 260), (rows, 260)
    left, right, result = map(memory_descs.dense, shapes)
    return Primitive("matmul", left, right, None, result)


@pytest.mark.parametrize("first", [1, 3])
def test_code_takes_the_scratch_of_its_own_number_of_threads(onednn, first):
    """Of equal primitives for one thread and for three; all code is made later, while another number is set."""
    made = []
    for threads in (first, 4 - first):
        with one_thread.making(threads):
            made.append(product(40 + first))
    assert len({each.scratch_bytes for each in made}) == 2
    for each in made:
        with one_thread.making(2):
            assert each.shared.primitive
        assert each.memory_desc(f.SCRATCHPAD).nbytes == each.scratch_bytes


def test_a_descriptor_that_is_made_again_is_for_the_threads_of_the_first(onednn):
    with one_thread.making(3):
        made = product(53)
    wanted = made.scratch_bytes
    made.shared.let_go()
    with one_thread.making(1):
        assert made.memory_desc(f.SCRATCHPAD).nbytes == wanted
