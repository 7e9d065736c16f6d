"""Tensors that the kernels lay out otherwise: values, shapes and names are as ever, only strides differ."""

from __future__ import annotations

import numpy as np

from kernel_sets import kernel_sets
from singa_lite import FeedForwardNet, autograd, device, layers, loss, optimizer, tensor

IMAGE = (0, 2, 3, 1)


def net_of_images(kernels: str) -> FeedForwardNet:
    """Convolutions, pooling, a concatenation and scores."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels=kernels), seed=3)
    net.add(layers.Conv2D("conv1", 5, 3, input_sample_shape=(3, 8, 6)))
    net.add(layers.BatchNormalization("norm"))
    left = net.add(layers.Activation("relu"))
    right = net.add(layers.Conv2D("conv2", 7, 3), left)
    net.add(layers.Concat("both", 1), [left, right])
    net.add(layers.MaxPooling2D("pool", 2, 2, "valid"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 4))
    return net


def test_a_layout_orders_the_axes_in_memory():
    cpu = device.new_cpu(kernels="numpy")
    made = cpu.empty((2, 3, 5, 7), np.float32, IMAGE)
    assert (made.shape, made.strides) == ((2, 3, 5, 7), (420, 4, 84, 12))
    assert made.memory_order() == IMAGE
    assert not made.is_contiguous()
    values = np.arange(210, dtype=np.float32).reshape(2, 3, 5, 7)
    made.copy_from_numpy(values)
    np.testing.assert_array_equal(tensor.to_numpy(made), values)
    np.testing.assert_array_equal(np.from_dlpack(made), values)
    assert device.new_cpu().empty((4, 7, 1, 1), np.float32, IMAGE).is_contiguous()


def test_a_move_to_another_device_keeps_the_kind_and_the_values():
    for kernels in (s.name for s in kernel_sets()):
        there = device.new_cpu(kernels=kernels)
        weight = device.new_cpu(kernels="numpy").empty((5, 3, 2, 4), np.float32, "filters")
        values = np.random.default_rng(0).standard_normal(weight.shape, dtype=np.float32)
        weight.copy_from_numpy(values)
        moved = weight.to_device(there)
        assert moved.strides == there.empty(weight.shape, np.float32, "filters").strides
        np.testing.assert_array_equal(tensor.to_numpy(moved), values)


def test_flatten_gives_and_takes_c_order():
    cpu = device.new_cpu()
    x = cpu.empty((2, 3, 5, 7), np.float32, IMAGE)
    values = np.random.default_rng(1).standard_normal(x.shape, dtype=np.float32)
    x.copy_from_numpy(values)
    x.stores_grad = True
    flat = autograd.flatten(x)
    np.testing.assert_array_equal(tensor.to_numpy(flat), values.reshape(2, 105))
    dy = np.random.default_rng(2).standard_normal((2, 105), dtype=np.float32)
    for _, dx in autograd.backward(flat, tensor.from_numpy(dy, cpu)):
        np.testing.assert_array_equal(tensor.to_numpy(dx), dy.reshape(2, 3, 5, 7))
        assert dx.strides == x.strides


def test_kernel_sets_train_alike_and_read_each_others_snapshots(tmp_path):
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((6, 3, 8, 6), dtype=np.float32), rng.integers(0, 4, 6)) for _ in range(4)]
    losses, files = {}, {}
    for kernels in (s.name for s in kernel_sets()):
        net = net_of_images(kernels)
        net.compile(optimizer.Adam(lr=0.01))
        losses[kernels] = [float(net.train_one_batch(*batch)[0]) for batch in batches]
        for name, value in net.parameters().items():
            moments = [slot for slot in net.optimizer.state[name].values() if slot.shape == value.shape]
            assert moments and all(slot.strides == value.strides for slot in moments), name
        files[kernels] = tmp_path / f"{kernels}.h5"
        net.save(files[kernels])
    for kernels, values in losses.items():
        np.testing.assert_allclose(values, losses["numpy"], rtol=2e-5, err_msg=kernels)
    x = batches[0][0]
    for written_by, file in files.items():
        outputs = []
        for kernels in files:
            net = net_of_images(kernels)
            net.compile(optimizer.Adam(lr=0.01))
            net.load(file)
            outputs.append(tensor.to_numpy(net.predict(x)))
        for output in outputs[1:]:
            np.testing.assert_allclose(output, outputs[0], rtol=1e-4, atol=1e-5, err_msg=written_by)
