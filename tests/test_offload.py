"""compile(offload=): values go to host memory and come back, to equal bits, within the budget; or one clear error."""

from __future__ import annotations

import copy
import errno
import os
from pathlib import Path
from typing import Any

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
from singa_lite.net import memory_questions as planned_net
from singa_lite.runtime.cuda import Cuda
from singa_lite.runtime.host import Host
from singa_lite.runtime.host_memory import Link
from singa_lite.runtime.offload_file import OffloadFile

COUNT = BRANCHES.count
#: Links that make copies the cheaper means, waited for or beside computing.
QUICK, BESIDE = Link(100.0, False), Link(1.0, True)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "link", QUICK)


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


def offloading(folder: Any, share: float = 0.7, kernels: str = "numpy", **compiling: Any) -> FeedForwardNet:
    """Within a budget of so much of what the free plan takes."""
    budget = int(branches(kernels).plan_batch(COUNT).total_bytes * share)
    return branches(kernels, memory_budget=budget, offload=folder, **compiling)


@pytest.mark.parametrize("kernels", ["numpy", "onednn"])
@pytest.mark.parametrize("link", [QUICK, BESIDE], ids=["waited", "beside"])
def test_values_are_offloaded_within_the_budget_and_bits_are_equal(kernels, link, tmp_path, monkeypatch):
    monkeypatch.setattr(Host, "link", link)
    net = offloading(tmp_path, 0.8, kernels)
    free, plan = branches(kernels), net.plan_batch(COUNT)
    assert plan.offloaded > 0 == plan.recomputed
    for seed in range(3):
        assert BRANCHES.step(net, seed) == BRANCHES.step(free, seed)
    assert state_of(net) == state_of(free)
    assert net.device.pool.total <= int(free.plan_batch(COUNT).total_bytes * 0.8)
    assert not list(tmp_path.iterdir()), "the file has no name"
    net.memory_plan.check()
    assert "copy" in str(net.training_graph.profile(1))


@pytest.mark.usefixtures("quick")
def test_a_plan_tells_what_is_offloaded(tmp_path):
    free, plan = branches().plan_batch(COUNT), offloading(tmp_path).plan_batch(COUNT)
    assert (free.offloaded, free.offloaded_bytes, free.host_bytes) == (0, 0, 0)
    assert plan.offloaded_bytes >= plan.host_bytes > 0
    assert plan.offloaded_bytes >= free.arena_bytes - plan.arena_bytes
    assert plan.estimated_slowdown > 0 == free.estimated_slowdown
    assert f"{plan.offloaded} values" in plan.summary()
    assert "offloaded" not in free.summary()
    assert plan.gains["offload"] > 0
    assert any(row.name == "offloaded, back" for row in plan.rows)
    plan.to_html(str(tmp_path / "plan.html"))


def test_less_is_possible_than_by_repeats_alone_and_the_error_names_it(tmp_path):
    def least(**compiling: Any) -> int:
        with pytest.raises(BudgetError) as caught:
            chain(memory_budget=1, **compiling).plan_batch(COUNT)
        return caught.value.total_bytes

    budget = least(offload=tmp_path)
    assert budget < least()
    net, free = chain(memory_budget=budget, offload=tmp_path), chain()
    assert BRANCHES.trained(net, budget) == BRANCHES.trained(free)


def test_on_a_slow_link_values_are_made_again_instead(tmp_path):
    plan = offloading(tmp_path, 0.8).plan_batch(COUNT)
    assert plan.recomputed > 0 == plan.offloaded


def equal_bits(folder: Path, seed: int, length: int, link: Link) -> None:
    def run(**compiling: Any) -> list[Any]:
        net = compiled(random_net(seed, length), seed, graph=True)
        net.compile(net.optimizer, freeze=net.freeze, **compiling)
        losses = [net.train_one_batch(*random_batch(net, number, 4))[0] for number in range(2)]
        return [*map(bits, losses), state_of(net)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeats, "LEAST_GAP", 2)
        patch.setattr(offload, "LEAST_BYTES", 1)
        patch.setattr(Host, "link", link)
        patch.setattr(planned_net, "remedies", lambda *_: [])  # a search of its own, which other tests judge
        wanted = run()
        free = compiled(random_net(seed, length), seed, graph=True).plan_batch(4).total_bytes
        try:
            assert run(memory_budget=int(free * 0.75), offload=folder) == wanted
        except BudgetError as error:
            assert run(memory_budget=error.total_bytes, offload=folder) == wanted


def test_random_nets_train_to_equal_bits(tmp_path):
    for number, link in enumerate((QUICK, BESIDE, Link(0.05, True))):
        equal_bits(tmp_path, 7907 * number + 11, 3 + number, link)


@pytest.mark.nightly
@settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(2, 7), st.sampled_from([QUICK, BESIDE, Link(0.05, True)]))
def test_many_random_nets_train_to_equal_bits(tmp_path_factory, seed, length, link):
    equal_bits(tmp_path_factory.getbasetemp(), seed, length, link)


@pytest.mark.usefixtures("quick")
def test_fit_copies_another_device_and_checked_mode(tmp_path, monkeypatch):
    """In a relative folder, which stays the same one."""
    wanted = BRANCHES.trained(branches())
    monkeypatch.chdir(tmp_path)
    first = offloading(".")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").rmdir()
    second = copy.deepcopy(first)
    second.to_device(device.new_cpu(kernels="numpy"))
    monkeypatch.setenv("SINGA_LITE_CHECKED", "1")
    for net in (first, second):
        assert BRANCHES.trained(net) == wanted
        assert net.plan_batch(COUNT).offloaded


@pytest.mark.usefixtures("quick")
def test_an_interrupt_leaves_no_file_and_training_goes_on(tmp_path):
    (tmp_path / "values").mkdir()
    net, before = offloading(tmp_path / "values"), branches()
    for one in (net, before):
        BRANCHES.step(one)
    before.save(tmp_path / "net.h5")
    replay = net.training_graph._executables["recorded"]._replay
    launches = replay._launches

    def interrupted() -> None:
        raise KeyboardInterrupt

    middle = len(launches) // 2
    replay._launches = (*launches[:middle], interrupted, *launches[middle:])
    with pytest.raises(KeyboardInterrupt):
        BRANCHES.step(net, 1)
    assert not list((tmp_path / "values").iterdir())
    replay._launches = launches
    net.discard_step()
    net.load(tmp_path / "net.h5")
    assert [BRANCHES.step(net, 2), state_of(net)] == [BRANCHES.step(before, 2), state_of(before)]


# --- a GPU's, on the stand-in


@pytest.mark.parametrize("kind", ["stand-in"])
def test_a_gpu_offloads_to_the_host_and_bits_are_equal(kind, monkeypatch):
    monkeypatch.setattr(Cuda, "link", BESIDE)
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
    with pytest.raises(ValueError, match="'/tmp'"):
        net.compile(net.optimizer, memory_budget="1 GiB", offload="/tmp")


# --- what is refused


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (3, TypeError, ("compile offload", "3")),
        (b"/tmp", TypeError, ("compile offload", "b'/tmp'")),
        (True, TypeError, ("compile offload", "True")),
        ("", ValueError, ("compile offload", "folder")),
        ("host", ValueError, ("offload", "folder", "'host'")),
        ("/no/such/folder", FileNotFoundError, ("offload", "/no/such/folder")),
        (__file__, NotADirectoryError, ("offload", __file__)),
        ("/proc", OSError, ("offload", "'/proc'")),  # a folder in which nobody may write
    ],
    ids=["number", "bytes", "flag", "no text", "host", "missing", "file", "read-only"],
)
def test_where_nothing_can_be_offloaded_to(given, error, words):
    net = branches()
    before = net._steps
    refused(lambda: net.compile(net.optimizer, memory_budget="1 GiB", offload=given), error, *words)
    assert net._steps is before


def test_offloading_without_a_budget_and_without_a_record(tmp_path):
    refused(lambda: branches(offload=tmp_path), ValueError, "compile offload", "memory_budget")
    refused(lambda: branches(memory_budget=1, graph=False, offload=tmp_path), ValueError, "graph=True")


def test_a_file_larger_than_the_disk_is_refused_when_it_is_made(tmp_path):
    with pytest.raises(OSError, match="offload") as caught:
        OffloadFile(str(tmp_path), 1 << 60)
    assert caught.value.errno in (errno.ENOSPC, errno.EFBIG)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("quick")
def test_a_full_disk_is_told_before_the_first_step(tmp_path, monkeypatch):
    net, free = offloading(tmp_path), branches()
    before = state_of(net)

    def full(file: int, start: int, nbytes: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        for _ in range(2):
            with pytest.raises(OSError, match=f"offload.*{tmp_path}.*No space left"):
                BRANCHES.step(net)
            assert (state_of(net), net.optimizer.step) == (before, 0)
    assert [BRANCHES.step(net), state_of(net)] == [BRANCHES.step(free), state_of(free)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_child_offloads_to_a_file_of_its_own(quick, tmp_path):
    """Both train on at the same time, on different data."""
    batches = [BRANCHES.data(seed=seed) for seed in (1, 2)]

    def train_on(net: FeedForwardNet, number: int) -> bytes:
        losses = [float(net.train_one_batch(*batches[number])[0]) for _ in range(8)]
        return repr(losses).encode()

    nets = [chain(), chain(), chain(memory_budget=int(chain().plan_batch(COUNT).total_bytes * 0.9), offload=tmp_path)]
    for net in nets:
        net.train_one_batch(*batches[0])
    assert nets[2].memory_plan.offloaded
    wanted = [train_on(net, number) for number, net in enumerate(nets[:2])]
    answer, told = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(told, train_on(nets[2], 1))
        finally:
            os._exit(0)
    own = train_on(nets[2], 0)
    os.waitpid(child, 0)
    os.close(told)
    with open(answer, "rb") as file:
        assert [own, file.read()] == wanted
