"""The CUDA runtime over streams that do their work late, in random legal order: nothing is read or written early."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import numpy as np
import pytest

import late_cupy
from late_cupy import Array, LateCupy, host
from late_gpu import late_device
from singa_lite import tensor
from singa_lite.device import Device
from singa_lite.tensor import Block

SEEDS = range(20)
N = 200


def gpu(seed: int) -> tuple[LateCupy, Device]:
    cupy = LateCupy(seed)
    return cupy, late_device(cupy)


def numbers(value: float) -> np.ndarray:
    return np.full(N, value, np.float32)


def copied(on: Device, given: tensor.Tensor) -> tensor.Tensor:
    """What the tensor holds when the stream comes there."""
    made = on.empty(given.shape, given.dtype)
    on.run("copy", given, made)
    return made


def theirs(cupy: LateCupy, pool: Any, value: float) -> Array:
    """An array of an owner that works on the current stream, whose values come late."""
    made = cupy.ndarray((N,), np.float32, pool.malloc(N * 4))
    made.fill(value)
    return made


def values(given: tensor.Tensor) -> set[float]:
    return set(tensor.to_numpy(given).ravel().tolist())


# --- batches of the host


def bytes_that_a_queued_operation_reads_are_not_staged_into(seed):
    """A slot gets bytes that were freed, but the main stream still has to read what they held."""
    cupy, on = gpu(seed)
    target, before = on.empty((N,)), tensor.from_numpy(numbers(1), on)
    result = copied(on, before)
    cupy.some()
    del before
    on.feed(target, numbers(2))
    assert values(result) == {1}
    assert values(target) == {2}


def each_step_reads_its_own_batch(seed):
    cupy, on = gpu(seed)
    x, y, results = on.empty((N,)), on.empty((N,)), []
    for step in range(6):
        batch = numbers(step)
        on.feed(x, batch)
        on.feed(y, batch + 100)
        batch.fill(-1)  # it is the caller's again
        results += [copied(on, x), copied(on, y)]
        cupy.some()
    assert [values(result) for result in results] == [{step + of} for step in range(6) for of in (0, 100)]


def a_tensor_that_dies_gives_its_slot_back_when_that_is_copied_from(seed):
    cupy, on = gpu(seed)
    results = []
    for step in range(5):
        target = on.empty((N,))
        on.feed(target, numbers(step))
        results.append(copied(on, target))
        cupy.some()
        del target
    assert on.pool.used == sum(result.nbytes for result in results) // 800 * 1024
    assert [values(result) for result in results] == [{step} for step in range(5)]


def test_a_larger_batch_takes_a_larger_slot_and_the_smaller_one_is_given_back():
    _, on = gpu(0)
    target = on.empty((4 * N,))
    small, large = (target.view((count,)) for count in (N, 4 * N))
    on.feed(small, numbers(1))
    used = on.pool.used
    on.feed(large, np.full(4 * N, 2, np.float32))
    assert on.pool.used == used - 1024 + 3584, "in the pool's granules of 512"
    on.feed(small, numbers(3))
    assert on.pool.used == used - 1024 + 3584
    assert tensor.to_numpy(target).tolist() == [3] * N + [2] * 3 * N


def arrays_of_one_batch_pass_in_one_copy(seed):
    """Also where each of the tensors was fed by itself before, and is again behind it."""
    _, on = gpu(seed)
    x, y = on.empty((N,)), on.empty((3, 5), np.int64)
    blocks, results = [x.block, y.block], []
    for step in range(6):
        batch = [numbers(step), np.full((3, 5), step, np.int64)]
        if step % 3 == 0:
            on.feed(x, batch[0])
            on.feed(y, batch[1])
        else:
            stage = on.runtime.stage(blocks, batch)
            stage.begin(batch)
            for memory, values_, target in zip(stage.memories, batch, (x, y), strict=True):
                on.run("copy", tensor.Tensor(Block(on, values_.nbytes, memory), values_.shape, values_.dtype), target)
            stage.end()
        for array in batch:
            array.fill(-1)  # it is the caller's again
        results.append([copied(on, x), copied(on, y)])
    assert [[values(each) for each in pair] for pair in results] == [[{step}, {step}] for step in range(6)]


def test_the_bytes_of_a_batch_are_given_back_once_with_the_last_of_its_tensors():
    _, on = gpu(0)
    x, y = on.empty((N,)), on.empty((N,))
    on.feed(x, numbers(0))
    on.feed(y, numbers(0))
    used = on.pool.used
    on.runtime.stage([x.block, y.block], [numbers(1), numbers(1)])
    assert on.pool.used == used, "the place of both takes that of each"
    del x
    assert on.pool.used == used - 1024
    del y
    gc.collect()
    assert on.pool.used == 0


def a_copy_that_fails_leaves_the_slot_in_order(seed):
    cupy, on = gpu(seed)
    target = on.empty((N,))
    for step in range(4):

        def fail(operation: Any) -> None:
            raise KeyError

        with pytest.raises(KeyError), on.watch(fail):
            on.feed(target, numbers(step))
        result = copied(on, target)
        cupy.some()
        on.feed(target, numbers(50 + step))
        assert (values(result), values(target)) == ({step}, {50 + step})


# --- arrays of other owners


def an_owner_that_frees_its_array_does_not_get_the_bytes_before_they_are_read(seed, way):
    """Their stream is none that we know of."""
    cupy, on = gpu(seed)
    stream, pool, target = cupy.cuda.Stream(non_blocking=True), cupy.cuda.MemoryPool(), on.empty((N,))
    with stream:
        given = theirs(cupy, pool, 1)
        ready = cupy.cuda.Event()
        ready.record(stream)
    cupy.current[0].wait_event(ready)
    if way == "feed":
        on.feed(target, given)
    else:
        target = tensor.as_tensor(given, on)
    del given
    cupy.some()
    with stream:
        other = theirs(cupy, pool, 2)
    assert values(target) == {1}
    assert other.nbytes == target.nbytes


def an_owner_on_the_current_stream_may_overwrite_its_array_at_once(seed, own_stream):
    cupy, on = gpu(seed)
    stream = cupy.cuda.Stream(non_blocking=True) if own_stream else cupy.current[0]
    results, target = [], on.empty((N,))
    with stream:
        given = theirs(cupy, cupy.cuda.MemoryPool(), 0)
        for step in range(4):
            given.fill(step)
            on.feed(target, given)
            results.append(copied(on, target))
            cupy.some()
    assert [values(result) for result in results] == [{0}, {1}, {2}, {3}]


def test_arrays_are_held_no_longer_than_they_are_read():
    cupy, on = gpu(0)
    pool, target = cupy.cuda.MemoryPool(), on.empty((N,))
    given = theirs(cupy, pool, 1)
    on.feed(target, given)
    del given
    gc.collect()
    assert not pool.free, "queued work reads them"
    on.synchronize()
    assert len(pool.free) == 1


def test_an_array_that_is_let_go_while_the_stream_is_captured_is_held_until_a_later_event():
    cupy, on = gpu(0)
    pool, target = cupy.cuda.MemoryPool(), on.empty((N,))
    given = theirs(cupy, pool, 1)
    adopted = on.adopt(given)
    on.run("copy", adopted, target)
    on.runtime.stream.capturing = True
    del given, adopted
    on.runtime.stream.capturing = False
    on.synchronize()
    assert not pool.free, "no event says that they are read"
    on.feed(target, theirs(cupy, pool, 2))
    on.synchronize()
    assert len(pool.free) == 2


# --- tensors of ours in the hands of others


def a_reader_on_another_stream_waits_for_the_tensor(seed):
    cupy, on = gpu(seed)
    result, stream = copied(on, tensor.from_numpy(numbers(1), on)), cupy.cuda.Stream(non_blocking=True)
    with stream:
        given, seen = host(cupy.from_dlpack(result)), numbers(0)
        stream.submit(lambda: np.copyto(seen, given))
    stream.synchronize()
    assert set(seen) == {1}


# --- what is missing shows


#: What holds of streams in the order of any seed.
SCENARIOS: list[late_cupy.Scenario] = [
    bytes_that_a_queued_operation_reads_are_not_staged_into,
    each_step_reads_its_own_batch,
    a_tensor_that_dies_gives_its_slot_back_when_that_is_copied_from,
    arrays_of_one_batch_pass_in_one_copy,
    a_copy_that_fails_leaves_the_slot_in_order,
    partial(an_owner_that_frees_its_array_does_not_get_the_bytes_before_they_are_read, way="feed"),
    partial(an_owner_that_frees_its_array_does_not_get_the_bytes_before_they_are_read, way="as_tensor"),
    partial(an_owner_on_the_current_stream_may_overwrite_its_array_at_once, own_stream=False),
    partial(an_owner_on_the_current_stream_may_overwrite_its_array_at_once, own_stream=True),
    a_reader_on_another_stream_waits_for_the_tensor,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: getattr(one, "func", one).__name__)
def test_it_holds_in_every_legal_order(scenario):
    for seed in SEEDS:
        scenario(seed)


@pytest.mark.parametrize("site", late_cupy.sites("staging.py", "cuda.py"))
def test_a_wait_or_a_record_that_is_left_out_shows(site):
    assert late_cupy.shows(site, SCENARIOS, SEEDS)
