"""A net of all everyday layers: equal bits recorded, at once, and in the least memory; bfloat16; snapshots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_lite import FeedForwardNet, autograd, device, layers, loss, optimizer, tensor

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 3, 8, 6)).astype("f"), RNG.integers(0, 5, 6)


def built() -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=1, device=device.new_cpu())
    net.add(layers.Rescaling("half", 0.5, 0.1, input_sample_shape=X.shape[1:]))
    known = layers.Normalization("known")
    known.adapt(X)
    for layer in (
        known,
        layers.Conv2D("down", 8, 3, 2),
        layers.GroupNormalization("groups", 4),
        layers.PReLU("slopes"),
        layers.SpatialDropout2D("drop", 0.2),
        layers.GaussianNoise("noise", 0.1),
        layers.Conv2DTranspose("up", 6, 3, 2),
        layers.ZeroPadding2D("zeros", (1, 0, 2, 1)),
        layers.SeparableConv2D("separable", 7, 3, 2),
        layers.Lambda("swish", lambda x: x * autograd.sigmoid(x)),
        layers.Cropping2D("crop", (0, 1, 1, 0)),
        layers.DepthwiseConv2D("depthwise", depth_multiplier=2),
        layers.GlobalMaxPooling2D("max"),
        layers.Dense("scores", 5),
    ):
        net.add(layer)
    return net


def trained(**options: Any) -> FeedForwardNet:
    net = built()
    net.compile(optimizer.SGD(lr=0.05, momentum=0.9), **options)
    for _ in range(3):
        net.train_one_batch(X, Y)
    return net


def values(net: FeedForwardNet) -> list[np.ndarray]:
    return [tensor.to_numpy(value) for value in net.param_values()]


@pytest.fixture(scope="module")
def recorded() -> FeedForwardNet:
    return trained()


def test_bits_are_equal_however_a_step_is_done(recorded, monkeypatch):
    least = recorded.budget_curve(len(X))[-1][0]
    nets = [trained(graph=False), trained(memory_budget=int(least))]
    monkeypatch.setenv("SINGA_LITE_PLAN", "off")
    for net in (*nets, trained()):
        for found, wanted in zip(values(net), values(recorded), strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.filterwarnings("ignore:compile precision='bfloat16'")
def test_in_bfloat16_it_learns_nearly_the_same(recorded):
    net = trained(precision="bfloat16")
    for found, wanted in zip(values(net), values(recorded), strict=True):
        np.testing.assert_allclose(found, wanted, atol=0.02)


def test_a_snapshot_brings_all_back(recorded, tmp_path):
    recorded.save(tmp_path / "net.h5")
    other = built()
    other.load(tmp_path / "net.h5")
    np.testing.assert_array_equal(*(tensor.to_numpy(net.forward(False, X)) for net in (recorded, other)))
