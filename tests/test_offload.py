"""Values that `compile(offload=)` moves to host memory come back with equal bits, and the budget holds.

Most tests pretend that a CPU has memory of a host beside it, whose copies a stand-in does.
"""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from budget_nets import BRANCHES, branches
from cuda_devices import new_device
from misuse import refused
from nets import bits, state_of
from random_graphs import compiled, random_batch, random_net
from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer
from singa_lite.compiler.recompute import offload, repeats
from singa_lite.graph.budget_error import BudgetError
from singa_lite.net import memory_planner as planned_net
from singa_lite.runtime.cuda import Cuda
from singa_lite.runtime.host import Host
from singa_lite.runtime.pinned import Copying

COUNT = BRANCHES.count
#: Rates of copies by which they are the cheaper means, or are waited for.
QUICK, SLOW = 1.0, 1e-3


class TwiceCopied:
    """Host memory whose copies are done when they begin, and once more when they end: what changes between shows."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._bytes = np.full(nbytes, 0xFF, np.uint8)

    def out(self, array: np.ndarray, offset: int) -> Copying:
        copied = partial(np.copyto, self._bytes[offset : offset + array.size], array)
        return Copying(copied, copied)

    def back(self, array: np.ndarray, offset: int) -> Copying:
        copied = partial(np.copyto, array, self._bytes[offset : offset + array.size])
        return Copying(copied, copied)

    def settle(self) -> None:
        """All is done."""


@pytest.fixture
def cpu_offloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "host_link", QUICK)
    monkeypatch.setattr(Host, "host_memory", lambda host, nbytes: TwiceCopied(nbytes))


def chain(**compiling: Any) -> FeedForwardNet:
    """Three convolutions with tanh between them, and a dense layer."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels="numpy"), seed=4)
    net.add(layers.Conv2D("conv0", 5, 3, input_sample_shape=(3, 20, 24)))
    for number in (1, 2):
        net.add(layers.Activation(f"act{number}", "tanh"))
        net.add(layers.Conv2D(f"conv{number}", 5, 3))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 5))
    net.compile(optimizer.SGD(lr=0.05, momentum=0.9), metric=metric.Accuracy(), **compiling)
    return net


def offloading(share: float = 0.7, kernels: str = "numpy", **compiling: Any) -> FeedForwardNet:
    """Within a budget of so much of what the free plan takes."""
    budget = int(branches(kernels).plan_batch(COUNT).total_bytes * share)
    return branches(kernels, memory_budget=budget, offload="host", **compiling)


@pytest.mark.usefixtures("cpu_offloads")
@pytest.mark.parametrize("kernels", ["numpy", "onednn"])
def test_values_are_offloaded_within_the_budget_and_bits_are_equal(kernels):
    net = offloading(0.8, kernels)
    free, plan = branches(kernels), net.plan_batch(COUNT)
    assert plan.offloaded > 0 == plan.recomputed
    for seed in range(3):
        assert BRANCHES.step(net, seed) == BRANCHES.step(free, seed)
    assert state_of(net) == state_of(free)
    assert net.device.pool.total <= int(free.plan_batch(COUNT).total_bytes * 0.8)
    net.memory_plan.check()
    assert "copy" in str(net.training_graph.profile(1))


@pytest.mark.usefixtures("cpu_offloads")
def test_a_plan_tells_what_is_offloaded(tmp_path):
    free, plan = branches().plan_batch(COUNT), offloading().plan_batch(COUNT)
    assert (free.offloaded, free.offloaded_bytes, free.host_bytes) == (0, 0, 0)
    assert plan.offloaded_bytes >= plan.host_bytes > 0
    assert plan.offloaded_bytes >= free.arena_bytes - plan.arena_bytes
    assert plan.estimated_slowdown == 0 == free.estimated_slowdown, "the copies are hidden"
    assert f"{plan.offloaded} values" in plan.summary()
    assert "offloaded" not in free.summary()
    assert plan.gains["offload"] > 0
    assert any(row.name == "offloaded, back" for row in plan.rows)
    plan.to_html(str(tmp_path / "plan.html"))


@pytest.mark.usefixtures("cpu_offloads")
def test_less_is_possible_than_by_repeats_alone_and_the_error_names_it():
    def least(**compiling: Any) -> int:
        with pytest.raises(BudgetError) as caught:
            chain(memory_budget=1, **compiling).plan_batch(COUNT)
        return caught.value.total_bytes

    budget = least(offload="host")
    assert budget < least()
    net, free = chain(memory_budget=budget, offload="host"), chain()
    assert BRANCHES.trained(net, budget) == BRANCHES.trained(free)


@pytest.mark.usefixtures("cpu_offloads")
def test_on_a_slow_link_values_are_made_again_instead(monkeypatch):
    monkeypatch.setattr(Host, "host_link", SLOW)
    plan = offloading(0.8).plan_batch(COUNT)
    assert plan.recomputed > 0 == plan.offloaded


def equal_bits(seed: int, length: int, link: float) -> None:
    def run(**compiling: Any) -> list[Any]:
        net = compiled(random_net(seed, length), seed, graph=True)
        net.compile(net.optimizer, freeze=net.freeze, **compiling)
        losses = [net.train_one_batch(*random_batch(net, number, 4))[0] for number in range(2)]
        return [*map(bits, losses), state_of(net)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "LEAST_GAP", 2)
        patch.setattr(offload, "LEAST_BYTES", 1)
        patch.setattr(Host, "host_link", link)
        patch.setattr(planned_net, "remedies", lambda *_: [])  # a search of its own, which other tests judge
        wanted = run()
        free = compiled(random_net(seed, length), seed, graph=True).plan_batch(4).total_bytes
        try:
            assert run(memory_budget=int(free * 0.75), offload="host") == wanted
        except BudgetError as error:
            assert run(memory_budget=error.total_bytes, offload="host") == wanted


@pytest.mark.usefixtures("cpu_offloads")
def test_random_nets_train_to_equal_bits():
    for number, link in enumerate((QUICK, 0.05, SLOW)):
        equal_bits(7907 * number + 11, 3 + number, link)


@pytest.mark.nightly
@pytest.mark.usefixtures("cpu_offloads")
@settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(2, 7), st.sampled_from([QUICK, 0.05, SLOW]))
def test_many_random_nets_train_to_equal_bits(seed, length, link):
    equal_bits(seed, length, link)


@pytest.mark.usefixtures("cpu_offloads")
def test_fit_copies_another_device_and_checked_mode(monkeypatch):
    wanted = BRANCHES.trained(branches())
    first = offloading()
    second = copy.deepcopy(first)
    second.to_device(device.new_cpu(kernels="numpy"))
    monkeypatch.setenv("SINGA_LITE_CHECKED", "1")
    for net in (first, second):
        assert BRANCHES.trained(net) == wanted
        assert net.plan_batch(COUNT).offloaded


# --- a GPU's, on the stand-in


@pytest.mark.parametrize("kind", ["stand-in"])
def test_a_gpu_offloads_to_the_host_and_bits_are_equal(kind, monkeypatch):
    monkeypatch.setattr(Cuda, "host_link", QUICK)
    monkeypatch.setattr(offload, "LEAST_BYTES", 1)

    def net_on(budget: int | None) -> FeedForwardNet:
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=new_device(kind), seed=4)
        end = net.add(layers.Conv2D("conv0", 4, 3, input_sample_shape=(3, 10, 12)))
        for number in range(1, 5):
            end = net.add(layers.Activation(f"act{number}", "tanh"), end)
            end = net.add(layers.Conv2D(f"conv{number}", 4, 3), end)
        net.add(layers.Flatten("flat"), end)
        net.add(layers.Dense("scores", 5))
        where = None if budget is None else "host"
        net.compile(optimizer.SGD(lr=0.05, momentum=0.9), memory_budget=budget, offload=where)
        return net

    def results(net: FeedForwardNet) -> list[Any]:
        seen = []
        for step in range(4):
            x, y = BRANCHES.data(6, step)
            seen.append(bits(net.train_one_batch(x[:, :, :10, :12].copy(), y)[0]))
        return [*seen, state_of(net)]

    free = net_on(None)
    net = net_on(int(free.plan_batch(6).total_bytes * 0.8))
    assert results(net) == results(free)
    assert net.memory_plan.offloaded


# --- what is refused


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (3, TypeError, ("compile offload", "3")),
        (b"host", TypeError, ("compile offload", "b'host'")),
        (True, TypeError, ("compile offload", "True")),
        ("", ValueError, ("compile offload", "memory_budget alone", "deleted")),
        ("/tmp", ValueError, ("compile offload", "'/tmp'", "memory_budget alone", "deleted")),
        (Path("/tmp"), ValueError, ("compile offload", "/tmp", "memory_budget alone", "deleted")),
        ("host", ValueError, ("compile offload", "GPU", "cpu")),
    ],
    ids=["number", "bytes", "flag", "no text", "folder", "path", "on a CPU"],
)
def test_where_nothing_can_be_offloaded_to(given, error, words):
    net = branches()
    before = net.trainer.steps
    refused(lambda: net.compile(net.optimizer, memory_budget="1 GiB", offload=given), error, *words)
    assert net.trainer.steps is before


def test_offloading_without_a_budget_and_without_a_record():
    refused(lambda: branches(offload="host"), ValueError, "compile offload", "memory_budget")
    refused(lambda: branches(memory_budget=1, graph=False, offload="host"), ValueError, "graph=True")


def test_a_net_that_offloads_does_not_move_to_a_cpu():
    net = branches()
    net.to_device(new_device("stand-in"))
    net.compile(net.optimizer, memory_budget="1 GiB", offload="host")
    on = net.device
    refused(lambda: net.to_device(device.new_cpu(kernels="numpy")), ValueError, "to_device offload", "GPU")
    assert net.device is on


class Full:
    """A host that does not pin any bytes."""

    def __init__(self, host: Host, nbytes: int) -> None:
        raise MemoryError(f"offload: wanted {nbytes:,} bytes")


@pytest.mark.usefixtures("cpu_offloads")
def test_a_host_without_room_is_told_before_the_first_step(monkeypatch):
    net, free = offloading(), branches()
    before = state_of(net)
    with monkeypatch.context() as patch:
        patch.setattr(Host, "host_memory", lambda host, nbytes: Full(host, nbytes))
        for _ in range(2):
            with pytest.raises(MemoryError, match="offload"):
                BRANCHES.step(net)
            assert (state_of(net), net.optimizer.step) == (before, 0)
    assert [BRANCHES.step(net), state_of(net)] == [BRANCHES.step(free), state_of(free)]
