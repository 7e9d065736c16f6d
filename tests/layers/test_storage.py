"""Layers whose tensors are stored in 16 bits: what is computed, what is kept, and that nets train with them."""

from __future__ import annotations

import numpy as np
import pytest

import skips
from cuda_devices import KINDS, new_device
from singa_lite import FeedForwardNet, autograd, device, layers, loss, optimizer, tensor
from singa_lite.device import Device
from singa_lite.layers import _storage
from singa_lite.memory_plan import MemoryPlan

RNG = np.random.default_rng(21)
X = RNG.standard_normal((6, 3, 9, 7)).astype(np.float32)
Y = RNG.integers(0, 4, 6)
HALVES = ("float16", "bfloat16")


def dtype_of(storage: str) -> np.dtype:
    if storage == "bfloat16":
        return np.dtype(skips.library("ml_dtypes").bfloat16)
    return np.dtype(storage)


def net_of(on: Device, storage: str | None) -> FeedForwardNet:
    on.set_random_seed(4)
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on)
    net.add(layers.Conv2D("conv1", 8, 3, storage=storage, input_sample_shape=(3, 9, 7)))
    net.add(layers.Activation("relu1", storage=storage))
    net.add(layers.Conv2D("conv2", 8, 3, storage=storage))
    net.add(layers.BatchNormalization("bn"))
    net.add(layers.Activation("gelu", "gelu", storage=storage))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 4, storage=storage))
    net.compile(optimizer.SGD(lr=0.02, momentum=0.9))
    return net


@pytest.fixture(params=KINDS)
def cuda(request: pytest.FixtureRequest) -> Device:
    return new_device(request.param)


def test_cast_rounds_there_and_back():
    x = tensor.from_numpy(np.array([1.0, 1 + 2**-12, 60001.0, -3e-9], np.float32))
    x.stores_grad = True
    y = autograd.cast(x, "float16")
    assert tensor.to_numpy(y).tolist() == np.array([1, 1, 60000, 0], np.float16).tolist()
    dy = np.array([1, 2, 3, 0.1], np.float16)
    for _, dx in autograd.backward(y, tensor.from_numpy(dy)):
        assert dx.dtype == np.float32
        assert tensor.to_numpy(dx).tolist() == dy.astype(np.float32).tolist()
    assert autograd.cast(x, "float32") is x


@pytest.mark.parametrize("storage", HALVES)
def test_a_dense_layer_rounds_its_operands_and_its_result_and_nothing_between(cuda, storage):
    half = dtype_of(storage)
    net = FeedForwardNet(device=cuda)
    net.add(layers.Dense("dense", 5, storage=storage, bias_init="normal", input_sample_shape=(301,)))
    x = RNG.standard_normal((7, 301)).astype(np.float32)
    weight, bias = (tensor.to_numpy(value) for value in net.param_values())
    exact = x.astype(half).astype(float) @ weight.astype(half).astype(float) + bias.astype(half).astype(float)
    got = tensor.to_numpy(net.predict(x))
    assert got.dtype == np.float32
    # The sum in float32 may fall on the other side of a rounding boundary: one unit in the last place of the half.
    unit = float(2.0 ** -(10 if storage == "float16" else 7))
    np.testing.assert_allclose(got, exact, rtol=unit, atol=1e-4)
    assert (got == got.astype(half).astype(np.float32)).all(), "stored in 16 bits"


@pytest.mark.parametrize("storage", HALVES)
def test_a_net_trains_as_in_float32_but_for_rounding(cuda, storage):
    dtype_of(storage)
    exact, net = net_of(device.new_cpu(kernels="numpy"), None), net_of(cuda, storage)
    losses = [[float(one.train_one_batch(X, Y)[0]) for _ in range(8)] for one in (exact, net)]
    assert losses[1][-1] < losses[1][0] / 2
    np.testing.assert_allclose(*losses, rtol=0.02 if storage == "float16" else 0.12, atol=0.02)
    assert {value.dtype for value in net.param_values()} == {np.dtype(np.float32)}


def test_what_is_kept_for_backward_takes_half_the_bytes(cuda):
    def planned(storage: str | None) -> MemoryPlan:
        net = FeedForwardNet(loss.SquaredError(), device=cuda)
        net.add(layers.Dense("first", 512, storage=storage, input_sample_shape=(64,)))
        for place in range(9):
            net.add(layers.Activation(f"gelu{place}", "gelu", storage=storage))
            net.add(layers.Dense(f"dense{place}", 512, storage=storage))
        net.compile(optimizer.SGD(lr=0.1))
        return net.plan_batch(4096)

    assert planned("float16").arena_bytes < 0.6 * planned(None).arena_bytes


def test_it_works_on_the_cpu_too():
    losses = [float(net_of(device.new_cpu(), "float16").train_one_batch(X, Y)[0]) for _ in range(2)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("make", [layers.Dense, layers.Conv2D, layers.Conv1D])
def test_an_unknown_storage_is_refused(make):
    with pytest.raises(ValueError, match=r"layer 'l': wanted storage to be one of .*, received 'int8'"):
        make("l", 3, storage="int8")


def test_bfloat16_without_its_package(monkeypatch):
    monkeypatch.setattr(_storage, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"layer 'l': storage='bfloat16' wants .*pip install ml_dtypes"):
        layers.Activation("l", storage="bfloat16")
