"""Updates: state in bfloat16 or 8 bits (compile(state_dtype=)), and small parameters by one call on a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest

from budget_nets import on_cpu
from cuda_devices import new_device
from nets import bits, state_of
from singa_lite import FeedForwardNet, autograd, device, layers, loss, metric, optimizer, tensor
from singa_lite.compiler.ir.operation import Phase
from singa_lite.errors import SnapshotError
from singa_lite.kernels.interface.state_format import Blocks, blocked_shape

SETS = ("numpy", "onednn")
KINDS = ("bfloat16", "int8")
OPTIMIZERS: dict[str, Callable[[], optimizer.Optimizer]] = {
    "sgd": lambda: optimizer.SGD(lr=0.02),
    "momentum": lambda: optimizer.SGD(lr=0.05, momentum=0.9),
    "scheduled": lambda: optimizer.SGD(lr=lambda step: 0.02 / (1 + step), momentum=0.9, weight_decay=0.01),
    "rms_prop": lambda: optimizer.RMSProp(lr=0.001, rho=0.99),
    "ada_grad": lambda: optimizer.AdaGrad(lr=0.01),
    "adam": lambda: optimizer.Adam(lr=0.001),
    "adam_w": lambda: optimizer.AdamW(lr=0.001),
    "lion": lambda: optimizer.Lion(lr=0.0005),
    "ams_grad": lambda: optimizer.Adam(lr=0.001, amsgrad=True),
}


def classifier(on: Any = "numpy", opt: str = "adam", **compiling: Any) -> FeedForwardNet:
    """Convolutions, whose weights a kernel set may lay out its own way, and dense layers."""
    net = FeedForwardNet(
        loss.SoftmaxCrossEntropy(), metric.Accuracy(), device=on_cpu(on) if isinstance(on, str) else on, seed=4
    )
    net.add(layers.Conv2D("first", 12, 3, input_sample_shape=(3, 6, 7)))
    net.add(layers.Activation("relu1"))
    net.add(layers.Conv2D("second", 45, 3))
    net.add(layers.Activation("relu2"))
    net.add(layers.GlobalAvgPooling2D("mean"))
    net.add(layers.Dense("wide", 131))
    net.add(layers.Activation("relu3"))
    net.add(layers.Dense("scores", 5))
    net.compile(OPTIMIZERS[opt](), **compiling)
    return net


def batch(step: int, count: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of a class have a patch of their own brighter."""
    rng = np.random.default_rng(step)
    y = rng.integers(0, 5, count)
    x = rng.standard_normal((count, 3, 6, 7), dtype=np.float32)
    for picture, label in zip(x, y, strict=True):
        picture[label % 3] += 0.5 * label
    return x, y


def trained(net: FeedForwardNet, start: int = 0, stop: int = 3) -> list[float]:
    return [float(net.train_one_batch(*batch(step))[0]) for step in range(start, stop)]


def state_bytes(net: FeedForwardNet) -> int:
    return sum(t.nbytes for slots in net.optimizer.state.values() for name, t in slots.items() if name != "count")


@pytest.mark.parametrize(
    "opt",
    [
        "ada_grad",
        *(pytest.param(name, marks=pytest.mark.nightly) for name in OPTIMIZERS if name not in ("sgd", "scheduled")),
    ],
)
def test_training_goes_as_with_float32_state(opt):
    wanted = np.array(trained(classifier(opt=opt), stop=90))
    assert wanted[-20:].mean() < 0.7 * wanted[:5].mean()
    for kind in KINDS:
        got = np.array(trained(classifier(opt=opt, state_dtype=kind), stop=90))
        assert (got != wanted).any()
        assert abs(got[-30:].mean() - wanted[-30:].mean()) < 0.08 * wanted[:5].mean()


@pytest.mark.parametrize("opt", ["momentum", "ams_grad"])
def test_a_plan_counts_the_bytes_that_state_really_has(opt):
    plans, nets = {}, {}
    for kind in (None, *KINDS):
        net = nets[kind] = classifier(opt=opt, state_dtype=kind)
        plans[kind] = net.plan_batch(16)
        trained(net, stop=1)
        assert net.memory_plan.by_role["state"] == plans[kind].by_role["state"] >= state_bytes(net)
    parameters = sum(v.nbytes for v in nets[None].param_values())
    slots = state_bytes(nets[None]) // parameters
    assert state_bytes(nets["bfloat16"]) == slots * parameters // 2
    large = [v for v in nets[None].param_values() if v.size() >= 4096]
    assert {v.name for v in large} == {"second/weight", "wide/weight"}
    left = sum(v.nbytes for v in nets[None].param_values()) - sum(v.nbytes for v in large)
    assert state_bytes(nets["int8"]) == slots * (left + sum(prod(blocked_shape(v.shape)) for v in large))
    for kind in KINDS:
        saved = state_bytes(nets[None]) - state_bytes(nets[kind])
        assert plans[None].by_role["state"] - plans[kind].by_role["state"] == saved


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("opt", "width"), [("momentum", 37), ("adam", 600), ("adam", 2500)])
def test_a_large_gradient_by_tiles_gives_equal_bits(kind, opt, width):
    """Of whole numbers, whose product has no rounding: what differs could only be the update."""

    def run(tile_bytes: int) -> Any:
        on = device.new_cpu(kernels="numpy")
        on.kernels.tile_bytes = tile_bytes
        rng = np.random.default_rng(0)
        x = tensor.from_numpy(rng.integers(-3, 4, (9, 331)).astype(np.float32), on)
        dy = tensor.from_numpy(rng.integers(-3, 4, (9, width)).astype(np.float32), on)
        value = tensor.from_numpy(rng.standard_normal((331, width), dtype=np.float32), on)
        opti = OPTIMIZERS[opt]()
        opti.keep_state_as(kind)
        opti.state_for("w", value)
        with on.recording() as graph:
            gradient = on.empty((331, width))
            on.run("matmul", x, dy, gradient, transpose_a=True, transpose_b=False)
            opti.update("w", value, gradient)
            del gradient
        for _ in range(3):
            graph.run()
        used = [i.kernel for i in graph.memory_plan.placed.planned.instructions]
        return used.count(opti.kernel), [bits(value), {name: bits(t) for name, t in opti.state["w"].items()}]

    try:
        kernels = device.new_cpu(kernels="numpy").kernels
        before = kernels.tile_bytes
        (one, whole), (many, tiled) = run(1 << 30), run(331 * width * 4 // 5)
    finally:
        kernels.tile_bytes = before
    assert one == 1
    assert many > 3
    assert tiled == whole
    assert Blocks.of((331, width)).rows == {37: 55, 600: 3, 2500: 1}[width]


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_of_one_kernel_set_means_the_same_to_another(tmp_path, kind):
    """Though they lay out weights otherwise: what goes on from it goes on alike."""
    nets = [classifier(kernels, state_dtype=kind) for kernels in SETS]
    trained(nets[0])
    nets[0].save(tmp_path / "net.h5")
    nets[1].load(tmp_path / "net.h5")
    np.testing.assert_allclose(trained(nets[1], 3, 6), trained(nets[0], 3, 6), rtol=1e-4)


@pytest.mark.parametrize("file, wanted", [(None, "int8"), ("int8", None), ("bfloat16", "int8")])
def test_state_of_another_kind_is_refused_and_changes_nothing(tmp_path, file, wanted):
    net = classifier(state_dtype=file)
    trained(net)
    net.save(tmp_path / "net.h5")
    other = classifier(state_dtype=wanted)
    trained(other, stop=1)
    before = state_of(other)
    with pytest.raises(SnapshotError, match=f"state_dtype={wanted!r}.*state_dtype={file!r}"):
        other.load(tmp_path / "net.h5")
    assert state_of(other) == before
    other.load(tmp_path / "net.h5", optimizer=False)
    assert bits(other.parameters()["wide/weight"]) == bits(net.parameters()["wide/weight"])


def test_a_net_compiled_anew_with_a_new_optimizer_begins_with_no_state():
    net = classifier(state_dtype="int8")
    trained(net, stop=1)
    net.compile(optimizer.Adam(), state_dtype="bfloat16")
    trained(net, stop=1)
    assert tensor.to_numpy(net.optimizer.state["wide/weight"]["first_moment"]).dtype == np.uint16


def test_expressions_without_a_net_keep_state_so_too():
    opt = optimizer.SGD(lr=0.1, momentum=0.9)
    opt.keep_state_as("bfloat16")
    w = tensor.from_numpy(np.ones((3, 2), np.float32))
    w.stores_grad = True
    for parameter, gradient in autograd.backward(autograd.reduce_mean(autograd.multiply(w, w))):
        opt.update(None, parameter, gradient)
    assert tensor.to_numpy(opt.state[w]["velocity"]).dtype == np.uint16


@pytest.mark.parametrize(
    ("opt", "given", "error"),
    [
        (optimizer.Adam, "float8", ValueError),
        (optimizer.Adam, "float32", ValueError),
        (optimizer.Adam, np.int8, TypeError),
        (optimizer.Adam, 8, TypeError),
        (optimizer.SGD, "int8", ValueError),  # has no state
    ],
)
def test_what_cannot_be_kept_so_is_refused_at_compile(opt, given, error):
    net = classifier()
    before, compiled_with = state_of(net), net.optimizer
    with pytest.raises(error, match=f"state_dtype.*{re.escape(str(given))}"):
        net.compile(opt(), state_dtype=given)
    assert state_of(net) == before
    assert net.optimizer is compiled_with


def test_a_name_set_by_hand_is_checked_at_the_next_step():
    net = classifier()
    net.optimizer.state_dtype = "float8"
    with pytest.raises(ValueError, match=r"state_dtype.*'int8'.*received 'float8'"):
        trained(net, stop=1)


def test_parameters_of_another_dtype_are_refused():
    net = FeedForwardNet(loss.SquaredError(), dtype=np.float64)
    net.add(layers.Dense("a", 2, input_sample_shape=(3,)))
    with pytest.raises(ValueError, match=r"state_dtype.*float64"):
        net.compile(optimizer.Adam(), state_dtype="int8")


def test_state_that_is_there_keeps_its_kind():
    net = classifier(state_dtype="int8")
    trained(net, stop=1)
    for other in (None, "bfloat16"):
        with pytest.raises(ValueError, match=f"state.*{other!r}"):
            net.compile(net.optimizer, state_dtype=other)
    net.compile(net.optimizer, state_dtype="int8")
    trained(net, 1, 2)


# --- updates of small parameters by one call ----------------------------------------------------------------


def updates(net: FeedForwardNet) -> list[str]:
    """Kernels of the updates of a planned step."""
    return [i.kernel for i in net.plan_batch(16).placed.planned.instructions if i.phase is Phase.UPDATE]


def stepped(net: FeedForwardNet, steps: int = 2) -> list[Any]:
    """Losses of some steps, and the parameters behind them."""
    return [*(bits(net.train_one_batch(*batch(step))[0]) for step in range(steps)), *map(bits, net.param_values())]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_bits_are_those_of_single_updates(monkeypatch, name):
    together = classifier(new_device("stand-in"), name)
    found = stepped(together)
    assert any("*" in kernel for kernel in updates(together)), "nothing was joined"
    monkeypatch.setenv("SINGA_LITE_PASSES", "-updates")
    apart = classifier(new_device("stand-in"), name)
    assert stepped(apart) == found
    assert len(updates(apart)) == 8


#: Options of a net that change what updates are given, or when they come.
OPTIONS: dict[str, dict[str, object]] = {
    "clipped": {"clip_global_norm": 0.5},
    "accumulated": {"accumulate": 2},
    "halves": {"precision": "float16"},
    "any order": {"order": "dependencies"},
    "frozen": {"freeze": "second"},
}


@pytest.mark.parametrize("case", OPTIONS)
def test_no_plan_is_larger(monkeypatch, case):
    """And its proof holds, which each plan is given once more here."""
    plans = []
    for passes in ("", "-updates"):
        monkeypatch.setenv("SINGA_LITE_PASSES", passes)
        net = classifier(device.abstract("cuda", libraries=False), **OPTIONS[case])
        plans.append(net.plan_batch(64))
    plans[0].check()
    assert plans[0].floor_bytes <= plans[1].floor_bytes
    assert plans[0].arena_bytes <= plans[1].arena_bytes


def test_the_plan_and_the_profile_tell_them(tmp_path):
    net = classifier(new_device("stand-in"), "momentum")
    net.train_one_batch(*batch(0))
    before = stepped(net, 0)
    profile = net.training_graph.profile(2, peaks=False)
    assert stepped(net, 0) == before
    joined = [operation for operation in profile.operations if "*" in operation.kernel]
    assert joined and all(one.layer.count(" to ") == 1 for one in joined)
    assert joined[-1].layer.endswith(" to first")
    net.memory_plan.to_html(tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text()
    assert all(one.kernel in str(profile) and one.kernel in page for one in joined)
