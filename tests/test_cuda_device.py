"""CUDA devices: planned steps over one span of memory, replayed as one graph; values in and out; errors.

Each test runs on the stand-in, which is all but the GPU itself, and on a GPU where there is one.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from cuda_devices import KINDS, needs_a_gpu, new_device
from nets import bits, state_of
from programs import with_options
from singa_lite import FeedForwardNet, OutOfMemoryError, autograd, device, layers, loss, metric, optimizer, tensor
from singa_lite.compiler.ir.operation import Phase
from singa_lite.device import Device
from singa_lite.errors import DeviceError, GraphError
from singa_lite.graph import call_times
from singa_lite.layer import initializer
from singa_lite.tensor import Tensor

RNG = np.random.default_rng(5)
X = RNG.standard_normal((5, 3, 7, 9)).astype(np.float32)
Y = RNG.integers(0, 5, 5)


@pytest.fixture(params=KINDS)
def cuda(request: pytest.FixtureRequest) -> Device:
    return new_device(request.param)


def residual_net(on: Device, seed: int = 3, **compiled) -> FeedForwardNet:
    """A small residual net: convolutions, batch normalization, a branch that joins, pooling, dropout, dense layers."""
    on.set_random_seed(seed)
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device=on)
    net.add(layers.Conv2D("conv1", 5, 3, input_sample_shape=(3, 7, 9)))
    net.add(layers.BatchNormalization("bn1"))
    relu = net.add(layers.Activation("relu1"))
    net.add(layers.Conv2D("conv2", 5, 3, use_bias=False))
    bn = net.add(layers.BatchNormalization("bn2"))
    net.add(layers.Merge("add"), [bn, relu])
    net.add(layers.Activation("relu2"))
    net.add(layers.MaxPooling2D("pool", 3, 2))
    net.add(layers.Conv2D("depthwise", 10, 3, stride=2, groups=5))
    net.add(layers.GlobalAvgPooling2D("mean"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dropout("drop", 0.2))
    net.add(layers.Dense("dense1", 13))
    net.add(layers.Activation("gelu", "gelu"))
    net.add(layers.Dense("dense2", 5))
    net.compile(optimizer.SGD(lr=0.02, momentum=0.9), **compiled)
    return net


def losses(net: FeedForwardNet, steps: int, x=X, y=Y) -> list[float]:
    return [float(net.train_one_batch(x, y)[0]) for _ in range(steps)]


# --- a step


def test_images_in_c_order_train_alike():
    wanted = losses(residual_net(new_device("stand-in")), 4)
    found = losses(residual_net(new_device("stand-in", channels_last=False)), 4)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_without_nvidias_libraries_convolutions_and_products_are_done_on_the_host():
    wanted = losses(residual_net(new_device("stand-in")), 4)
    with pytest.warns(UserWarning, match="conv2d"):
        found = losses(residual_net(new_device("stand-in", libraries=False)), 4)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_planned_unplanned_and_eager_steps_give_equal_bits(cuda, monkeypatch):
    assert losses(residual_net(cuda, fuse=False), 3) == losses(residual_net(cuda, graph=False), 3)
    planned, unplanned = residual_net(cuda), residual_net(cuda)
    first = losses(planned, 3)
    monkeypatch.setenv("SINGA_LITE_PLAN", "off")
    assert losses(unplanned, 3) == first
    assert state_of(planned) == state_of(unplanned)
    assert planned.memory_plan.arena_bytes < unplanned.memory_plan.arena_bytes


@pytest.mark.parametrize("libraries", [False, True])
def test_a_normalisation_takes_the_sum_and_the_activation_behind_it_in(libraries):
    plan = residual_net(device.abstract("cuda", libraries=libraries)).plan_batch(5)
    calls = [i for i in plan.placed.planned.instructions if i.repeats is None and i.phase is Phase.FORWARD]
    assert {"batch_norm+relu", "batch_norm+other"} <= set(map(with_options, calls))
    assert not {"batch_norm", "add", "add+relu"} & set(map(with_options, calls))
    assert [i.layer for i in calls if i.kernel == "relu"] == ["relu2"], "behind the pooling, where there is less of it"


def test_dead_memory_is_never_read(monkeypatch):
    on = new_device("stand-in")
    wanted = losses(residual_net(on), 3)
    monkeypatch.setenv("SINGA_LITE_CHECKED", "1")
    assert losses(residual_net(new_device("stand-in", checked=True)), 3) == wanted


def test_every_tensor_of_the_step_lies_in_one_span_at_multiples_of_512(cuda):
    net = residual_net(cuda)
    net.train_one_batch(X, Y)
    placed = net.training_graph._executable("recorded").placed
    offsets = [*placed.offsets.values(), *placed.scratch.values()]
    assert len(offsets) > 40
    assert all(offset % 512 == 0 for offset in offsets)
    assert max(offsets) < net.memory_plan.arena_bytes == placed.arena_bytes
    assert net.trainer.steps.arena.nbytes == placed.arena_bytes


def test_from_the_third_step_on_a_step_is_one_launch():
    on = new_device("stand-in")
    net, stream = residual_net(on), on.runtime.stream
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses(net, 2)
        eager, graphs = stream.eager, stream.graph_launches
        losses(net, 5)
    assert graphs == 1, "the second step is captured and launched"
    assert stream.graph_launches - graphs == 5
    assert stream.eager - eager <= 5 * 4, "beside it: the batch and its targets in, loss and metric out"


def test_what_changes_between_steps_is_read_at_each(cuda):
    """The rate falls, momentum corrections count, dropout draws anew: the losses are those of a CPU."""

    def net_of(on: Device) -> FeedForwardNet:
        net = residual_net(on)
        net.compile(optimizer.Adam(lr=lambda step: 0.01 / (1 + step)))
        return net

    wanted = losses(net_of(device.new_cpu(kernels="numpy")), 6)
    np.testing.assert_allclose(losses(net_of(cuda), 6), wanted, rtol=2e-4)


def test_two_shapes_are_two_graphs_over_one_arena(cuda):
    reference, net = residual_net(device.new_cpu(kernels="numpy")), residual_net(cuda)
    for _ in range(3):
        for count in (3, 5):
            wanted = losses(reference, 1, X[:count], Y[:count])
            np.testing.assert_allclose(losses(net, 1, X[:count], Y[:count]), wanted, rtol=2e-4)
    assert len(net.trainer.steps._recorded) == 2
    assert net.trainer.steps.arena.nbytes == net.memory_plan.arena_bytes, "that of the larger batch, which came last"


def test_a_step_allocates_nothing(cuda):
    net = residual_net(cuda)
    losses(net, 4)
    used = cuda.pool.used
    cuda.pool.reset_high_water()
    losses(net, 100 if cuda.name.startswith("cuda:") else 5)
    assert cuda.pool.used == used
    assert cuda.pool.high_water - used <= 4 * 512 + 2 * X.nbytes, "copies of loss and metric, the batch on its way in"


def test_an_operation_that_waits_for_the_host_is_named_and_the_step_goes_on(cuda):
    """Seven axes that do not merge are more than a kernel walks along."""
    values = RNG.standard_normal((2, 3, 2, 2, 3, 2, 2))
    x = tensor.from_numpy(values, cuda)
    with cuda.recording() as graph:
        turned = cuda.empty(x.shape[::-1], x.dtype)
        cuda.run("scale", x.view(x.shape[::-1], x.strides[::-1]), turned, alpha=2.0, beta=0.0)
        y = turned + turned
    graph.run()
    first = tensor.to_numpy(y)
    with pytest.warns(UserWarning, match="'scale' of layer ''"):
        graph.run()
    graph.run()
    np.testing.assert_array_equal(tensor.to_numpy(y), first)
    np.testing.assert_array_equal(first, 4 * values.T)


def test_extremes_slices_positions_and_normal_numbers_are_part_of_one_launch(cuda):
    """Replays read the position anew and draw new numbers, which are those that are drawn without a record."""
    values = RNG.standard_normal((4, 6, 5)).astype(np.float32)
    position, begin = np.zeros(1, np.int64), np.array([1, 2, 3], np.uint64)
    x, at, state = (tensor.from_numpy(one, cuda) for one in (values, position, begin))

    def step() -> list[Tensor]:
        read, noise = cuda.empty((4, 2, 5)), autograd.normal((3, 7), state)
        cuda.run("read_at", x, at, read)
        kept = tensor.zeros((4, 6, 5), device=cuda)
        cuda.run("write_at", read, at, kept)
        return [read, kept, x[::-1, 4::-2], autograd.reduce_max(x, 1), autograd.reduce_min(x), noise]

    with cuda.recording() as graph:
        results = step()
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for place in range(5):
            at.copy_from_numpy(np.array([place]))
            graph.run()
            found.append([tensor.to_numpy(one) for one in results])
    state.copy_from_numpy(begin)
    for place, (read, kept, turned, largest, smallest, noise) in enumerate(found):
        np.testing.assert_array_equal(read, values[:, place : place + 2])
        np.testing.assert_array_equal(kept[:, place : place + 2], read)
        assert np.count_nonzero(kept) == read.size
        np.testing.assert_array_equal(turned, values[::-1, 4::-2])
        np.testing.assert_array_equal(largest, values.max(1))
        assert smallest == values.min()
        assert bits(noise) == bits(autograd.normal((3, 7), state))
    assert len({noise.tobytes() for *_, noise in found}) == 5


@pytest.mark.parametrize("spec", ["normal", "truncated_normal", "he_normal", "orthogonal"])
def test_weights_begin_with_the_bits_of_a_cpu(cuda, spec):
    drawn = []
    for on in (cuda, device.cpu()):
        weight = on.empty((7, 3, 5), np.float32, (2, 0, 1))
        initializer.fill(spec, weight, np.array([3, 1, 4], np.uint64), fan_in=15, fan_out=7)
        drawn.append(bits(weight))
    assert drawn[0] == drawn[1]


def test_the_profile_has_every_operation(cuda, monkeypatch):
    monkeypatch.setattr(call_times, "ORDERS", (16,))
    monkeypatch.setattr(call_times, "COPIES", (4096,))
    net = residual_net(cuda)
    net.train_one_batch(X, Y)
    profile = net.training_graph.profile(runs=1)
    assert profile.peaks is not None and profile.peaks.flops > 0 and profile.peaks.nbytes > 0
    assert {"conv2d_gradient", "batch_norm_derivative", "sgd"} <= {o.kernel.split("*")[0] for o in profile.operations}


def test_evaluate_predict_and_snapshots_are_those_of_the_cpu(cuda, tmp_path):
    reference, net = residual_net(device.new_cpu(kernels="numpy")), residual_net(cuda, seed=9)
    losses(reference, 2)
    reference.save(tmp_path / "net.h5")
    net.load(tmp_path / "net.h5")
    np.testing.assert_allclose(
        tensor.to_numpy(net.predict(X)), tensor.to_numpy(reference.predict(X)), rtol=1e-4, atol=1e-5
    )
    wanted, got = reference.evaluate(X, Y), net.evaluate(X, Y)
    np.testing.assert_allclose([float(v) for v in got], [float(v) for v in wanted], rtol=1e-5)


def test_a_net_moves_to_the_gpu_and_back(cuda):
    cpu = device.new_cpu(kernels="numpy")
    net = residual_net(cpu)
    before = state_of(net)
    net.to_device(cuda)
    assert {value.device for value in net.param_values()} == {cuda}
    net.to_device(cpu)
    assert state_of(net) == before


# --- values


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "uint64", "float16", "float32", "float64"])
def test_values_come_back_as_they_went_in(cuda, dtype):
    for shape in ((), (1,), (5,), (3, 4), (2, 3, 5, 7), (0, 3)):
        values = np.asarray(RNG.standard_normal(shape) * 3).astype(dtype)
        assert bits(tensor.from_numpy(values, cuda)) == bits(values), shape


def test_views_keep_their_values_and_what_lies_between(cuda):
    image = cuda.empty(X.shape, np.float32, "image")
    assert not image.is_contiguous()
    image.copy_from_numpy(X)
    assert bits(image) == bits(X)
    assert bits(image.view(X.shape[1:], image.strides[1:])) == bits(X[0])
    wanted = np.arange(35.0).reshape(5, 7)
    whole = tensor.from_numpy(wanted, cuda)
    whole.view((5, 3), whole.strides, 2 * 8).copy_from_numpy(np.full((5, 3), -1.0))
    wanted[:, 2:5] = -1
    np.testing.assert_array_equal(tensor.to_numpy(whole), wanted)


def test_batches_may_be_tensors_of_either_device(cuda):
    wanted = losses(residual_net(cuda), 3)
    here = tensor.from_numpy(X, cuda), tensor.from_numpy(Y, cuda)
    assert losses(residual_net(cuda), 3, *here) == wanted
    there = tensor.from_numpy(X, device.cpu()), tensor.from_numpy(Y, device.cpu())
    assert losses(residual_net(cuda), 3, *there) == wanted


@pytest.mark.gpu
def test_arrays_of_the_gpu_come_in_and_go_out_without_a_copy():
    needs_a_gpu("no arrays of other owners; test_cuda_streams.py has some")
    on = new_device("gpu")
    import cupy

    theirs = cupy.arange(35, dtype=np.float32).reshape(5, 7)
    ours = tensor.as_tensor(theirs, on)
    np.testing.assert_array_equal(tensor.to_numpy(ours), theirs.get())
    assert on.adopt(theirs).array.data.ptr == theirs.data.ptr
    back = cupy.from_dlpack(ours)
    assert back.data.ptr == ours.array.data.ptr
    np.testing.assert_array_equal(back.get(), theirs.get())


# --- copies that are done at each step are bound once: other forms, places and owners at the same addresses


def test_batches_of_other_forms_pass_through_one_place(cuda):
    target = cuda.empty((6, 35))
    rng = np.random.default_rng(7)
    for shape in [(6, 35), (2, 7), (6, 35), (35, 6), (2, 7)]:
        for _ in range(2):
            batch = rng.standard_normal(shape, dtype=np.float32)
            view = tensor.Tensor(target.block, shape)
            cuda.feed(view, batch)
            assert np.array_equal(tensor.to_numpy(view), batch)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int64"])
def test_a_batch_of_another_dtype_is_converted_each_time(cuda, dtype):
    target = cuda.empty((3, 5))
    for step in range(3):
        for given in (np.arange(15.0, dtype=np.float32) + step, np.arange(15).astype(dtype) - step):
            cuda.feed(target, given.reshape(3, 5))
            assert tensor.to_numpy(target).ravel().tolist() == given.tolist()


def test_copies_between_views_with_gaps_of_one_block(cuda):
    block = tensor.from_numpy(np.arange(24, dtype=np.float32), cuda).block
    even, odd = (tensor.Tensor(block, (3, 4), strides=(32, 8), offset=offset) for offset in (0, 4))
    for _ in range(2):
        cuda.copy(even, odd)
    assert tensor.to_numpy(odd).tolist() == tensor.to_numpy(even).tolist() == np.arange(0, 24, 2).reshape(3, 4).tolist()
    cuda.copy(tensor.Tensor(block, (4, 3), strides=(8, 32)), made := cuda.empty((4, 3)))
    assert tensor.to_numpy(made).tolist() == tensor.to_numpy(even).T.tolist()


def test_a_copy_keeps_no_memory_that_is_given_back(cuda):
    used = cuda.pool.used
    source, target = cuda.empty((1000,)), cuda.empty((1000,))
    cuda.copy(source, target)
    cuda.feed(target, np.zeros(1000, np.float32))
    del source, target
    assert cuda.pool.used == used


def test_copies_from_more_places_than_are_kept(cuda):
    given = [tensor.from_numpy(np.full(3, value, np.float32), cuda) for value in range(80)]
    for _ in range(2):
        for value, source in enumerate(given):
            cuda.copy(source, made := cuda.empty((3,)))
            assert tensor.to_numpy(made).tolist() == [value] * 3


def test_each_copy_is_seen_by_those_who_watch(cuda):
    source, target, seen = tensor.from_numpy(np.ones(3, np.float32), cuda), cuda.empty((3,)), []
    cuda.copy(source, target)
    with cuda.watch(lambda operation: seen.append(operation.kernel)):
        cuda.copy(source, target)
        cuda.feed(target, np.zeros(3, np.float32))
    cuda.copy(source, target)
    assert seen == ["copy", "copy"]


def test_a_copy_inside_a_recording_is_recorded(cuda):
    source, target = tensor.from_numpy(np.ones(3, np.float32), cuda), tensor.from_numpy(np.zeros(3, np.float32), cuda)
    cuda.copy(source, target)
    cuda.feed(target, np.zeros(3, np.float32))
    with cuda.recording() as graph:
        cuda.copy(source, target)
        with pytest.raises(GraphError, match="overwriting"):
            cuda.feed(target, np.full(3, 2, np.float32))
    assert tensor.to_numpy(target).tolist() == [0, 0, 0]
    graph.run()
    assert tensor.to_numpy(target).tolist() == [1, 1, 1]


def test_copies_of_an_empty_one_and_of_one_of_another_device(cuda):
    cuda.copy(cuda.empty((0, 3)), cuda.empty((0, 3)))
    with pytest.raises(DeviceError, match="tensors"):
        cuda.copy(new_device("stand-in").empty((3,)), cuda.empty((3,)))


RESULTS = [((), "float32"), ((), "float64"), ((3, 2), "float32"), ((5,), "int64")]


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


# --- errors


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_bounds_the_step_and_nothing_is_changed_by_the_error(kind):
    net = residual_net(new_device(kind, limit=120_000))
    before = state_of(net)
    with pytest.raises(OutOfMemoryError, match="120000"):
        net.train_one_batch(np.repeat(X, 60, 0), np.repeat(Y, 60))
    assert state_of(net) == before
    net.train_one_batch(X[:2], Y[:2])
