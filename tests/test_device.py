"""Device: how it is chosen, its errors, scopes and watchers, seeds, and stale memory made visible."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_sets import kernel_sets
from nets import forward_and_loss
from singa_lite import FeedForwardNet, OutOfMemoryError, ShapeError, autograd, device, layers, loss, optimizer, tensor
from singa_lite.errors import DeviceError


def gpus() -> int:
    """How many GPUs there are for CuPy."""
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount()
    except Exception:  # no CuPy, or whatever it says where there is no driver
        return 0


def test_the_cpu_is_one_device_and_the_default(monkeypatch):
    for name in ("SINGA_LITE_DEVICE", "SINGA_LITE_KERNELS"):
        monkeypatch.delenv(name, raising=False)
    fastest = kernel_sets()[-1].name
    assert device.cpu() is device.cpu(fastest) is device.default()
    assert tensor.zeros((2,)).device is device.cpu()
    assert fastest in repr(device.cpu())
    for kernels in kernel_sets():
        assert device.cpu(kernels.name) is device.cpu(kernels.name)
        assert device.cpu(kernels.name).kernels is device.new_cpu(kernels=kernels.name).kernels is kernels


@pytest.mark.parametrize("name", ["cpu", "CPU", "cpu:0", "cuda", "cuda:1", "cuda:x", "tpu", ""])
def test_the_environment_names_the_default_device(monkeypatch, name):
    monkeypatch.setenv("SINGA_LITE_DEVICE", name)
    if name == "cpu":
        assert device.default() is device.cpu()
        return
    if name.startswith("cuda") and not name.endswith("x") and gpus():
        pytest.skip("this machine has a GPU, which this names")
    with pytest.raises(DeviceError, match=r"cuda\(1\)" if name == "cuda:1" else r"cuda\(0\)|'cpu' or 'cuda"):
        device.default()
    for make in (lambda: tensor.zeros((2,)), FeedForwardNet):
        with pytest.raises(DeviceError):
            make()


def test_the_environment_names_the_kernels(monkeypatch):
    monkeypatch.setenv("SINGA_LITE_KERNELS", "numpy")
    assert device.cpu() is device.cpu("numpy")
    monkeypatch.setenv("SINGA_LITE_KERNELS", "abacus")
    with pytest.raises(DeviceError, match="'abacus'"):
        device.cpu()
    assert device.cpu("numpy").name == "cpu"


def test_devices_and_kernels_that_are_not_there():
    for index in (gpus(), -1):
        with pytest.raises(DeviceError, match=rf"cuda\({index}\)"):
            device.cuda(index)
    with pytest.raises(DeviceError, match=r"'numpy'.*'abacus'"):
        device.cpu("abacus")
    with pytest.raises(KeyError, match=r"'numpy'.*'teleport'"):
        device.cpu().run("teleport")


def test_tensors_of_two_devices_in_one_operation():
    here, there = tensor.ones((3,)), tensor.ones((3,), device=device.new_cpu())
    for use in (
        lambda: here + there,
        lambda: autograd.concat([here, there], 0),
        lambda: here.device.run("add", here, there, here),
    ):
        with pytest.raises(DeviceError, match="cpu"):
            use()


def test_the_limit_bounds_tensors_and_scratch_and_the_error_names_the_bytes():
    on = device.new_cpu(100_000, "numpy")
    with pytest.raises(OutOfMemoryError, match="400000") as caught:
        on.empty((100_000,))
    assert isinstance(caught.value, MemoryError)
    assert on.pool.used == 0
    value, gradient = on.empty((8000,)), on.empty((8000,))
    value.copy_from_numpy(np.ones(8000))
    gradient.copy_from_numpy(np.ones(8000))
    used = on.pool.used
    with pytest.raises(OutOfMemoryError):  # 64,000 bytes of scratch do not fit beside 64,000 of tensors
        optimizer.SGD(lr=0.1).update("w", value, gradient)
    np.testing.assert_array_equal(tensor.to_numpy(value), np.ones(8000))
    assert on.pool.used - used <= 128  # rate and count


def test_watchers_and_scopes_nest_and_end_after_errors():
    on = device.new_cpu()
    outer, inner = [], []
    with on.watch(lambda operation: outer.append((operation.kernel, str(operation.phase), operation.layer))):
        with on.scope("gradient", "outer"):
            with pytest.raises(ShapeError), on.watch(inner.append), on.scope(layer="inner"):
                x = tensor.zeros((2,), device=on)
                autograd.reduce_sum(x, 5)
            tensor.ones((1,), device=on)
        tensor.ones((1,), device=on)
    tensor.ones((2,), device=on)
    assert outer == [("fill", "gradient", "inner"), ("fill", "gradient", "outer"), ("fill", "forward", "")]
    assert [dict(o.settings) for o in inner] == [{"value": 0}]


def test_a_kernel_that_fails_gives_its_scratch_back():
    on = device.new_cpu(kernels="numpy")
    gradient, value = tensor.ones((6,), device=on), tensor.ones((6,), device=on)
    used = on.pool.used
    with pytest.raises(TypeError):
        on.run("add_scaled", gradient, value, alpha=None)
    assert on.pool.used == used


def test_seeds_follow_from_the_devices_seed():
    first, second, third = device.new_cpu(), device.new_cpu(), device.new_cpu()
    third.set_random_seed(1)
    sequences = [[on.next_seed() for _ in range(5)] for on in (first, second, third)]
    assert sequences[0] == sequences[1] != sequences[2]
    assert len({*sequences[0], *sequences[2]}) == 10
    first.set_random_seed(1)
    assert [first.next_seed() for _ in range(5)] == sequences[2]
    for seed in (-1, 2**64):
        with pytest.raises(ValueError, match=str(seed)):
            first.set_random_seed(seed)


# --- checked mode; that training reads no stale memory is a mode of `test_modes.py`


@pytest.mark.parametrize(("value", "checked"), [("1", True), ("0", False), ("", False)])
def test_stale_memory_is_nan_where_asked(monkeypatch, value, checked):
    monkeypatch.setenv("SINGA_LITE_CHECKED", value)
    on = device.new_cpu()
    t = tensor.ones((3, 2), device=on)
    stale = t.array
    assert (stale == 1).all()
    del t
    assert np.isnan(stale).all() == checked


X, Y = np.random.default_rng(0).standard_normal((6, 2, 5, 4)).astype("f"), np.array([0, 1, 2, 3, 0, 1])


def are_guards(array: np.ndarray) -> bool:
    """Whether these are guards (0xA5) of a region that lay here later: given back, it leaves them as they are."""
    return bool((array.reshape(-1).view(np.uint8) == 0xA5).all())


def test_stale_gradients_are_nan(monkeypatch):
    monkeypatch.setenv("SINGA_LITE_CHECKED", "1")
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu())
    net.add(layers.Conv2D("conv", 3, input_sample_shape=(2, 5, 4)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("act"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 4))
    net.compile(optimizer.Adam())
    stale = []
    for _, _, gradients, _ in net.backward(forward_and_loss(net, X, Y)):
        assert all(np.isfinite(tensor.to_numpy(g)).all() for g in gradients)
        stale += [g.array for g in gradients]
    assert len(stale) == 6
    assert all(np.isnan(array).all() or are_guards(array) for array in stale)
