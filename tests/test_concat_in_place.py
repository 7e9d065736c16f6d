"""Layers side by side, in every kernel set: no copy of what grows, and the bits of a net that copies."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_sets import kernel_sets
from nets import bits, state_of
from singa_lite import FeedForwardNet, Layer, device, layers, loss, optimizer
from singa_lite.compiler.ir.time_model import seconds

every_set = pytest.mark.parametrize("kernels", [kernels.name for kernels in kernel_sets()])
N, HEIGHT, WIDTH, CLASSES = 5, 16, 24, 3


def empty(kernels: str) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels=kernels), seed=3)
    net.add(layers.Conv2D("stem", 7, 3, input_sample_shape=(3, HEIGHT, WIDTH)))
    return net


def norm_relu(net: FeedForwardNet, name: str) -> Layer:
    net.add(layers.BatchNormalization(f"{name}_norm"))
    return net.add(layers.Activation(f"{name}_relu"))


def scored(net: FeedForwardNet) -> FeedForwardNet:
    net.add(layers.GlobalAvgPooling2D("pool"))
    net.add(layers.Dense("scores", CLASSES))
    return net


def dense_net(kernels: str) -> FeedForwardNet:
    """Each layer reads all before it, 4 channels more at a time."""
    net = empty(kernels)
    x = net.add(layers.MaxPooling2D("stem_pool", 2, 2, "valid"))
    for number in range(4):
        norm_relu(net, f"block{number}")
        y = net.add(layers.Conv2D(f"block{number}_conv", 4, 3))
        x = net.add(layers.Concat(f"block{number}_all", 1), [x, y])
    norm_relu(net, "last")
    return scored(net)


def skip_net(kernels: str) -> FeedForwardNet:
    """Down, up again, and across, as a U-Net; then two convolutions side by side, as an Inception net."""
    net = empty(kernels)
    skip = norm_relu(net, "down")
    net.add(layers.MaxPooling2D("halved", 2, 2, "valid"))
    net.add(layers.Conv2D("low", 10, 3))
    net.add(layers.Upsampling2D("doubled"))
    net.add(layers.Conv2D("raise", 6, 3))
    raised = norm_relu(net, "raised")
    joined = net.add(layers.Concat("join", 1), [skip, raised])
    sides = []
    for kernel in (1, 3):
        net.add(layers.Conv2D(f"side{kernel}", 5, kernel), joined)
        sides.append(net.add(layers.Activation(f"side{kernel}_relu")))
    net.add(layers.Concat("sides", 1), sides)
    return scored(net)


def compiled(net: FeedForwardNet, budget: int | None = None) -> FeedForwardNet:
    net.compile(optimizer.SGD(lr=0.05, momentum=0.9), memory_budget=budget)
    return net


def trained(net: FeedForwardNet) -> list[object]:
    """What three steps leave and give, to the bit."""
    compiled(net)
    random = np.random.default_rng(0)
    given = []
    for _ in range(3):
        x = random.standard_normal((N, 3, HEIGHT, WIDTH), dtype=np.float32)
        given.append(bits(net.train_one_batch(x, random.integers(0, CLASSES, N))[0]))
    return [given, state_of(net)]


@every_set
@pytest.mark.parametrize("make", [dense_net, skip_net])
def test_the_bits_are_those_of_a_net_that_copies(kernels, make, monkeypatch):
    lean = make(kernels)
    found = trained(lean)
    monkeypatch.setenv("SINGA_LITE_PASSES", "-concat")
    copying = make(kernels)
    assert trained(copying) == found
    assert lean.memory_plan.floor_bytes <= copying.memory_plan.floor_bytes
    if make is dense_net:  # in the other one the peak is elsewhere, or scratch is as large as what is saved
        assert lean.memory_plan.floor_bytes < copying.memory_plan.floor_bytes
        copies = [i for i in lean.memory_plan.placed.planned.instructions if i.kernel == "copy"]
        assert len(copies) <= 4, "at most the new channels of each layer"


def test_within_a_budget_the_form_with_copies_competes(monkeypatch):
    """What lies in one block can only be dropped together, so the least that it takes is more."""
    monkeypatch.setenv("SINGA_LITE_PASSES", "-concat")
    least = compiled(dense_net("numpy")).budget_curve(64)[-1][0]
    monkeypatch.delenv("SINGA_LITE_PASSES")
    free, within = compiled(dense_net("numpy")), compiled(dense_net("numpy"), least)
    random = np.random.default_rng(1)
    x = random.standard_normal((64, 3, HEIGHT, WIDTH), dtype=np.float32)
    y = random.integers(0, CLASSES, 64, np.int32)
    for _ in range(2):
        assert bits(free.train_one_batch(x, y)[0]) == bits(within.train_one_batch(x, y)[0])
    assert state_of(free) == state_of(within)
    assert "with copies" not in free.memory_plan.order
    assert "with copies" in within.memory_plan.order
    took = [sum(map(seconds, net.memory_plan.placed.planned.instructions)) for net in (free, within)]
    assert within.memory_plan.estimated_slowdown == pytest.approx(took[1] / took[0] - 1), "the copies count too"
    once = [one for one in within.memory_plan.placed.planned.instructions if one.repeats is None]
    assert sum(map(seconds, once)) > took[0], "or the test would show nothing"


@every_set
def test_what_is_pooled_into_a_part_of_a_concatenation(kernels):
    """The derivative of the part has gaps; of what the exchange of ReLU and pooling makes anew, nothing has."""
    found = []
    for graph in (True, False):
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels=kernels), seed=3)
        net.add(layers.BatchNormalization("norm", input_sample_shape=(3, 5, 8)))
        net.add(layers.Activation("relu", "relu"))
        net.add(layers.MaxPooling2D("pool", (1, 2), stride=(1, 1), pad=(0, 0, 0, 1)))
        net.add(layers.Flatten("pooled"))
        net.add(layers.Activation("soft", "softplus"), "norm")
        net.add(layers.Flatten("flat"))
        net.add(layers.Concat("both", 1), ["flat", "pooled"])
        net.add(layers.Dense("scores", CLASSES))
        net.compile(optimizer.SGD(lr=0.1), graph=graph)
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(N, 3, 5, 8)).astype(np.float32), rng.integers(0, CLASSES, N)
        found.append([float(net.train_one_batch(x, y)[0]) for _ in range(4)])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
