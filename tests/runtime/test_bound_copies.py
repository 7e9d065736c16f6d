"""Copies that a GPU does at each step are bound once: other forms, places and owners at the same addresses."""

from __future__ import annotations

import numpy as np
import pytest

from cuda_devices import KINDS, new_device
from singa_lite import device, tensor
from singa_lite.device import Device
from singa_lite.errors import DeviceError, GraphError

RESULTS = [((), "float32"), ((), "float64"), ((3, 2), "float32"), ((5,), "int64")]


@pytest.fixture(params=KINDS)
def on(request: pytest.FixtureRequest) -> Device:
    return new_device(request.param)


def test_batches_of_other_forms_pass_through_one_place(on):
    target = on.empty((6, 35))
    rng = np.random.default_rng(7)
    for shape in [(6, 35), (2, 7), (6, 35), (35, 6), (2, 7)]:
        for _ in range(2):
            batch = rng.standard_normal(shape, dtype=np.float32)
            view = tensor.Tensor(target.block, shape)
            on.feed(view, batch)
            assert np.array_equal(tensor.to_numpy(view), batch)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int64"])
def test_a_batch_of_another_dtype_is_converted_each_time(on, dtype):
    target = on.empty((3, 5))
    for step in range(3):
        for given in (np.arange(15.0, dtype=np.float32) + step, np.arange(15).astype(dtype) - step):
            on.feed(target, given.reshape(3, 5))
            assert tensor.to_numpy(target).ravel().tolist() == given.tolist()


def test_copies_between_views_with_gaps_of_one_block(on):
    block = tensor.from_numpy(np.arange(24, dtype=np.float32), on).block
    even, odd = (tensor.Tensor(block, (3, 4), strides=(32, 8), offset=offset) for offset in (0, 4))
    for _ in range(2):
        on.copy(even, odd)
    assert tensor.to_numpy(odd).tolist() == tensor.to_numpy(even).tolist() == np.arange(0, 24, 2).reshape(3, 4).tolist()
    on.copy(tensor.Tensor(block, (4, 3), strides=(8, 32)), made := on.empty((4, 3)))
    assert tensor.to_numpy(made).tolist() == tensor.to_numpy(even).T.tolist()


def test_memory_that_is_given_back_is_not_kept(on):
    used = on.pool.used
    source, target = on.empty((1000,)), on.empty((1000,))
    on.copy(source, target)
    on.feed(target, np.zeros(1000, np.float32))
    del source, target
    assert on.pool.used == used


def test_more_places_than_are_kept(on):
    given = [tensor.from_numpy(np.full(3, value, np.float32), on) for value in range(80)]
    for _ in range(2):
        for value, source in enumerate(given):
            on.copy(source, made := on.empty((3,)))
            assert tensor.to_numpy(made).tolist() == [value] * 3


def test_each_copy_is_seen_by_those_who_watch(on):
    source, target, seen = tensor.from_numpy(np.ones(3, np.float32), on), on.empty((3,)), []
    on.copy(source, target)
    with on.watch(lambda operation: seen.append(operation.kernel)):
        on.copy(source, target)
        on.feed(target, np.zeros(3, np.float32))
    on.copy(source, target)
    assert seen == ["copy", "copy"]


def test_a_copy_inside_a_recording_is_recorded(on):
    source, target = tensor.from_numpy(np.ones(3, np.float32), on), tensor.from_numpy(np.zeros(3, np.float32), on)
    on.copy(source, target)
    on.feed(target, np.zeros(3, np.float32))
    with on.recording() as graph:
        on.copy(source, target)
        with pytest.raises(GraphError, match="overwriting"):
            on.feed(target, np.full(3, 2, np.float32))
    assert tensor.to_numpy(target).tolist() == [0, 0, 0]
    graph.run()
    assert tensor.to_numpy(target).tolist() == [1, 1, 1]


def test_an_empty_one_and_one_of_another_device(on):
    on.copy(on.empty((0, 3)), on.empty((0, 3)))
    with pytest.raises(DeviceError, match="tensors"):
        on.copy(new_device("stand-in").empty((3,)), on.empty((3,)))


@pytest.mark.parametrize("kind", [*KINDS, "cpu"])
def test_results_lie_in_places_of_their_own(kind):
    """More of them than places are kept, and once more in those that were given back."""
    on = device.new_cpu() if kind == "cpu" else new_device(kind)
    sources = [tensor.from_numpy(np.zeros(shape, dtype), on) for shape, dtype in RESULTS]
    copies, used = on.bound_results(sources), on.pool.used
    for _ in range(2):
        kept = []
        for step in range(70):
            for source in sources:
                source.copy_from_numpy(np.full(source.shape, step, source.dtype))
            with on.runtime.here():
                kept.append(copies())
        for step, results in enumerate(kept):
            assert [(result.shape, result.dtype.name) for result in results] == RESULTS
            assert all((tensor.to_numpy(result) == step).all() for result in results)
        del kept, results
        assert on.pool.used == used


def test_results_of_many_bytes_are_left_to_a_kernel_on_a_cpu():
    on = device.new_cpu()
    assert on.bound_results([on.empty((2000,))]) is None
    assert on.bound_results([on.empty((20,))]) is not None
