"""Small parameters are updated by one call on a GPU: equal bits, no larger plan, and plan and profile tell it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cuda_devices import new_device
from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer, tensor
from singa_lite.device import Device
from singa_lite.operation import Phase
from singa_lite.optimizer import Optimizer

RNG = np.random.default_rng(5)
X = RNG.standard_normal((7, 3, 9, 11)).astype(np.float32)
Y = RNG.integers(0, 5, 7)

OPTIMIZERS: dict[str, Callable[[], Optimizer]] = {
    "sgd": lambda: optimizer.SGD(lr=0.02),
    "momentum": lambda: optimizer.SGD(lr=lambda step: 0.02 / (1 + step), momentum=0.9, weight_decay=0.01),
    "rms_prop": lambda: optimizer.RMSProp(lr=0.002),
    "ada_grad": lambda: optimizer.AdaGrad(lr=0.01),
    "adam": lambda: optimizer.Adam(lr=0.002),
    "adam_w": lambda: optimizer.AdamW(lr=0.002, weight_decay=0.1),
}


def small_net(on: Device, made: Optimizer, **compiled: object) -> FeedForwardNet:
    on.set_random_seed(3)
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device=on)
    net.add(layers.Conv2D("conv1", 5, 3, input_sample_shape=(3, 9, 11)))
    net.add(layers.BatchNormalization("bn1"))
    net.add(layers.Activation("relu1"))
    net.add(layers.Conv2D("conv2", 6, 3))
    net.add(layers.BatchNormalization("bn2"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense1", 13))
    net.add(layers.Dense("dense2", 5))
    net.compile(made, **compiled)
    return net


def updates(net: FeedForwardNet) -> list[str]:
    """Kernels of the updates of a planned step."""
    return [i.kernel for i in net.plan_batch(7).placed.planned.instructions if i.phase is Phase.UPDATE]


def trained(net: FeedForwardNet, steps: int = 2) -> list[bytes]:
    """Losses of some steps, and the parameters behind them."""
    found = [float(net.train_one_batch(X, Y)[0]) for _ in range(steps)]
    return [np.array(found).tobytes(), *(tensor.to_numpy(value).tobytes() for value in net.param_values())]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_bits_are_those_of_single_updates(monkeypatch, name):
    together = small_net(new_device("stand-in"), OPTIMIZERS[name]())
    found = trained(together)
    assert any("*" in kernel for kernel in updates(together)), "nothing was joined"
    monkeypatch.setenv("SINGA_LITE_PASSES", "-updates")
    apart = small_net(new_device("stand-in"), OPTIMIZERS[name]())
    assert trained(apart) == found
    assert len(updates(apart)) == 12


#: Options of a net that change what updates are given, or when they come.
OPTIONS: dict[str, dict[str, object]] = {
    "clipped": {"clip_global_norm": 0.5},
    "accumulated": {"accumulate": 2},
    "halves": {"precision": "float16"},
    "any order": {"order": "dependencies"},
    "frozen": {"freeze": "bn1"},
}


@pytest.mark.parametrize("case", OPTIONS)
def test_no_plan_is_larger(monkeypatch, case):
    """And its proof holds, which each plan is given once more here."""
    plans = []
    for passes in ("", "-updates"):
        monkeypatch.setenv("SINGA_LITE_PASSES", passes)
        net = small_net(device.abstract("cuda", libraries=False), optimizer.Adam(lr=0.002), **OPTIONS[case])
        plans.append(net.plan_batch(64))
    plans[0].check()
    assert plans[0].floor_bytes <= plans[1].floor_bytes
    assert plans[0].arena_bytes <= plans[1].arena_bytes


def test_the_plan_and_the_profile_tell_them(tmp_path):
    net = small_net(new_device("stand-in"), optimizer.SGD(lr=0.1, momentum=0.9))
    net.train_one_batch(X, Y)
    before = trained(net, 0)
    profile = net.training_graph.profile(2, peaks=False)
    assert trained(net, 0) == before
    joined = [operation for operation in profile.operations if "*" in operation.kernel]
    assert joined and all(one.layer.count(" to ") == 1 for one in joined)
    assert joined[-1].layer.endswith(" to conv1")
    net.memory_plan.to_html(tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text()
    assert all(one.kernel in str(profile) and one.kernel in page for one in joined)
