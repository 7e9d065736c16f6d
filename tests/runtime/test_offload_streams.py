"""Values that are offloaded to pinned memory, over streams that do their work late: each copy is waited for in time."""

from __future__ import annotations

import warnings
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import late_cupy
from late_cupy import LateCupy
from late_gpu import late_device
from nets import bits, state_of
from singa_lite import FeedForwardNet, device, layers, loss, optimizer
from singa_lite.compiler.ir.operation import Transfer
from singa_lite.compiler.recompute import offload, repeats
from singa_lite.device import Device
from singa_lite.runtime.cuda import Cuda

SEEDS = range(8)
STEPS = 5


def net_on(on: Device, **compiling: Any) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on, seed=4)
    net.add(layers.Dense("dense0", 24, input_sample_shape=(20,)))
    for number in range(1, 7):
        net.add(layers.Activation(f"tanh{number}", "tanh"))
        net.add(layers.Dense(f"dense{number}", 24))
    net.compile(optimizer.SGD(lr=0.05, momentum=0.9), **compiling)
    return net


def trained(net: FeedForwardNet, steps: int = STEPS) -> list[Any]:
    seen = []
    for step in range(steps):
        rng = np.random.default_rng(step)
        seen.append(net.train_one_batch(rng.standard_normal((40, 20), dtype="f"), rng.integers(0, 24, 40))[0])
    return [*map(bits, seen), state_of(net)]


@cache
def wanted() -> list[Any]:
    return trained(net_on(device.new_cpu(kernels="numpy")))


@cache
def budget() -> int:
    """So many bytes that some values must go to the host."""
    return int(net_on(late_device(LateCupy(0))).plan_batch(40).total_bytes * 0.85)


@pytest.fixture(autouse=True)
def _small_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "LEAST_BYTES", 1)
    monkeypatch.setattr(repeats, "LEAST_GAP", 10**6)  # else a value is made again for nothing here


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("share", [1.0, 1e-4], ids=["hidden", "waited"])
def test_a_net_that_offloads_trains_to_equal_bits_also_as_one_graph(seed, share, monkeypatch):
    monkeypatch.setattr(Cuda, "host_link", share)
    on = late_device(LateCupy(seed))
    net = net_on(on, memory_budget=budget(), offload="host")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none says that the step cannot be captured
        assert trained(net) == wanted()
    assert net.memory_plan.offloaded
    assert (net.memory_plan.estimated_slowdown == 0) == (share == 1.0)
    assert net.training_graph._executables["recorded"]._replay.is_captured


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("which", [0, -1], ids=["out", "back"])
def test_copies_of_a_step_that_was_interrupted_end_before_anything_else(seed, which, monkeypatch):
    monkeypatch.setattr(Cuda, "host_link", 1.0)
    interrupted_copies_end(seed, which)


def interrupted_copies_end(seed: int, which: int) -> None:
    """Neither side stream has work left when the interrupt comes out of the step. which: copy, of those of the step."""
    cupy = LateCupy(seed)
    on = late_device(cupy)
    net = net_on(on, memory_budget=budget(), offload="host")
    trained(net, 1)
    executable = net.training_graph._executables["recorded"]
    begun = [at for at, i in enumerate(executable.placed.planned.instructions) if i.transfer is Transfer.BEGIN]
    replay = executable.prepare()
    launches = replay._launches

    def interrupted() -> None:
        raise KeyboardInterrupt

    replay._warm = False  # a graph is launched as one
    replay._launches = (*launches[: begun[which] + 1], interrupted, *launches[begun[which] + 1 :])
    with pytest.raises(KeyboardInterrupt):
        trained(net, 1)
    host_memory = net.training_graph.arena.host
    assert not host_memory._out.stream.work
    assert not host_memory._back.stream.work


def offloads(seed: int) -> None:
    """Values come back as they went, whether the copies are hidden behind other work or waited for."""
    on = late_device(LateCupy(seed))
    net = net_on(on, memory_budget=budget(), offload="host")
    assert trained(net) == wanted()
    assert net.memory_plan.offloaded


@pytest.mark.parametrize("site", late_cupy.sites("side_stream.py", "pinned.py"))
def test_a_wait_or_a_record_that_is_left_out_shows(site, monkeypatch):
    monkeypatch.setattr(Cuda, "host_link", 1.0)
    interrupts = [partial(interrupted_copies_end, which=which) for which in (0, -1)]
    assert late_cupy.shows(site, [offloads, *interrupts], SEEDS)
