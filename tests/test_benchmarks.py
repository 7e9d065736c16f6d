"""The benchmarks against PyTorch: what they count, compare and tell, and that both sides are the same nets."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import skips
from benchmark_modules import FOLDER, benchmark_modules
from singa_lite import FeedForwardNet, device, layers, loss, optimizer
from singa_lite.kernels.interface import SIGNATURES

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="this copy has no benchmarks, the checkout has")


@pytest.fixture(scope="module")
def load() -> Iterator[Any]:
    """Imports a module of the folder by name, and forgets all of them in the end."""
    with benchmark_modules() as importer:
        yield importer


# ---- floating-point operations


def call(kernel: str, *shapes: tuple[int, ...] | None, **settings: Any) -> SimpleNamespace:
    """An instruction as the record has it."""
    operands = [None if shape is None else SimpleNamespace(shape=shape) for shape in shapes]
    return SimpleNamespace(kernel=kernel, operands=operands, settings=settings)


# 2 images of 6 x 5 x 4, 8 kernels of 3 x 3 in 2 groups: each of 2 * 8 * 5 * 4 results takes 3 * 9 products.
CONVOLUTION = 2 * (2 * 8 * 5 * 4) * (3 * 9)


@pytest.mark.parametrize(
    ("instruction", "wanted"),
    [
        (call("conv2d", (2, 6, 5, 4), (8, 3, 3, 3), (8,), (2, 8, 5, 4), groups=2), CONVOLUTION),
        (call("conv2d_derivative", (2, 8, 5, 4), (8, 3, 3, 3), (2, 6, 5, 4), groups=2), CONVOLUTION),
        (call("conv2d_gradient", (2, 6, 5, 4), (2, 8, 5, 4), (8, 3, 3, 3), groups=2), CONVOLUTION),
        (call("linear", (3, 5), (5, 7), None, (3, 7)), 2 * 3 * 5 * 7),
        (call("matmul", (3, 5), (7, 5), (3, 7), transpose_a=False, transpose_b=True), 2 * 3 * 5 * 7),
        (call("matmul", (2, 5, 3), (5, 7), (2, 3, 7), transpose_a=True, transpose_b=False), 2 * 2 * 3 * 5 * 7),
        (call("relu", (3, 5), (3, 5)), 0),
    ],
    ids=lambda value: getattr(value, "kernel", ""),
)
def test_flops_of_a_kernel(load, instruction, wanted):
    assert load("flops").step_flops([instruction]) == wanted


def test_a_product_without_a_rule_is_refused(load):
    with pytest.raises(KeyError, match="matmul_of_tomorrow"):
        load("flops").step_flops([call("matmul_of_tomorrow", (3, 5))])


def test_flops_of_a_recorded_step(load):
    """Forward and gradient of both layers, the derivative of the second one alone: nobody wants the first one's."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu())
    net.add(layers.Conv2D("conv", 4, 3, input_sample_shape=(2, 6, 5)))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 7))
    net.compile(optimizer.SGD(0.1))
    net.train_one_batch(np.zeros((3, 2, 6, 5), np.float32), np.zeros(3, np.int64))
    convolution, product = 2 * (3 * 4 * 6 * 5) * (2 * 9), 2 * 3 * (4 * 6 * 5) * 7
    assert load("flops").step_flops(net.training_graph.operations) == 2 * convolution + 3 * product


# ---- statistics and the table


def run(seconds: list[float], peak: int = 1, losses: tuple[float, ...] = (2.0, 1.0), flops: int = 0) -> dict[str, Any]:
    """What a measured process prints."""
    return {"seconds": seconds, "peak": peak, "losses": list(losses), "flops": flops}


def test_ratios_are_taken_within_rounds(load):
    report = load("report")
    ours = [run([1.0, 9.0, 2.0]), run([8.0]), run([3.0])]  # the machine was slow in the second round
    theirs = [run([4.0]), run([16.0]), run([2.0, 4.0])]
    assert report.time_ratio(ours, theirs) == (0.5, 0.5, 1.0)
    assert str(report.time_ratio(ours, theirs)) == "0.50 (0.50..1.00)"
    assert report.step_seconds(ours) == 3.0
    assert report.peak_bytes([run([1.0], peak) for peak in (5, 90, 7)]) == 7


def test_a_row_tells_both_sides(load):
    report, agreement = load("report"), load("agreement")
    ours, theirs = [run([0.5], 2 * 2**20, (2.0, 1.5), 4 * 10**9)], [run([0.25], 8 * 2**20, (2.0, 1.25))]
    check = agreement.Agreement(False, 1, 0.25, 1e-6, "loss of step 2 differs")
    cells = report.row("net, 3", "torch", ours, theirs, check, 32.0).strip("| ").split(" | ")
    assert len(cells) == len(report.HEAD)
    assert cells[:8] == ["net, 3", "torch", "500.0", "250.0", "2.00 (2.00..2.00)", "2", "8", "0.25"]
    assert cells[8:12] == ["2.000000", "2.000000", "1.500000", "1.250000"]
    assert "step 2 differs" in cells[12]
    assert cells[13:] == ["25%", "50%"]  # 4 GFLOP in 0.5 and 0.25 s are 8 and 16 of 32 GFLOP/s


def test_a_row_says_why_a_peer_did_not_run(load):
    report = load("report")
    line = report.row("net, 3", "torch", [run([0.5], flops=1)], "not installed", None, 32.0)
    assert "not installed" in line
    assert line.count("|") == report.heading().splitlines()[0].count("|")


# ---- agreement


LOSSES = [4.0, 3.0, 2.0]
NOISE = [[4.0, 3.0, 2.0], [4.0, 3.00001, 2.0], [4.0, 3.0, 2.000005]]  # ranges 0, 1e-5, 5e-6


def test_what_is_allowed_follows_the_noise_and_never_falls(load):
    agreement = load("agreement")
    last = 4 * 2.0**-24
    wanted = [last * 4.0, 4e-5 + last * 3.0, 4e-5 + last * 2.0]
    assert agreement.allowed_differences(LOSSES, NOISE) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "agrees", "step"),
    [
        ([0, 0, 0], True, 0),
        ([5e-7, 3e-5, 1e-5], True, 1),
        ([0, 0, 5e-5], False, 2),
        ([2e-6, 0, 0], False, 0),
        ([0, math.nan, 0], False, 1),
    ],
)
def test_losses_agree_within_what_is_allowed(load, changes, agrees, step):
    ours = [a + b for a, b in zip(LOSSES, changes, strict=True)]
    check = load("agreement").agreement(ours, LOSSES, NOISE)
    assert (check.agrees, check.step) == (agrees, step)
    assert bool(check.reason) != agrees


def test_losses_that_rounding_decides_do_not_agree(load):
    noise = [LOSSES, [4.0, 3.0, 2.01]]
    check = load("agreement").agreement(LOSSES, LOSSES, noise)
    assert not check.agrees
    assert "noise" in check.reason


def test_losses_that_stand_still_do_not_agree(load):
    losses = [4.0, 4.0, 3.9999]
    check = load("agreement").agreement(losses, losses, [losses, [4.0, 4.00001, 3.9999]])
    assert not check.agrees
    assert "hardly moved" in check.reason


# ---- weights on their way


def test_weights_arrive_in_arrays_of_any_strides(load, tmp_path, monkeypatch):
    process = load("peers.process")
    monkeypatch.setattr(process, "PIECE", 64)  # several pieces an array, the last one shorter
    weight, bias = np.arange(35.0, dtype=np.float32).reshape(7, 5), np.arange(3, dtype=np.float32)
    process.write_weights(tmp_path, [("dense/weight", weight), ("dense/bias", bias)])
    turned, plain = np.zeros((5, 7), np.float32), np.zeros(3, np.float32)
    process.read_weights(tmp_path, [("dense/weight", turned.T), ("dense/bias", plain)])
    assert np.array_equal(turned, weight.T)
    assert np.array_equal(plain, bias)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"a/weight": (2, 3), "b/bias": (4,)}, "'b/bias'"),
        ({}, "a.weight"),
        ({"a/weight": (3, 2)}, r"wanted \(3, 2\)"),
    ],
)
def test_weights_that_do_not_fit_are_refused(load, tmp_path, targets, message):
    process = load("peers.process")
    process.write_weights(tmp_path, [("a/weight", np.ones((2, 3), np.float32))])
    with pytest.raises(ValueError, match=message):
        process.read_weights(tmp_path, [(name, np.zeros(shape, np.float32)) for name, shape in targets.items()])


# ---- kernel cases


def test_cases_are_calls_of_the_interface(load):
    cases = list(load("kernel_table").cases())
    assert len({str(case) for case in cases}) == len(cases)
    for case in cases:
        signature = SIGNATURES[case.kernel]
        assert tuple(case.tensors) == signature.tensors, case
        assert set(case.settings) == set(signature.settings), case
        assert {name for name, shape in case.tensors.items() if shape is None} <= signature.optional, case
        assert case.result in ("", *signature.tensors), case


def test_a_case_has_equal_values_in_every_layout(load):
    case = load("kernel_table").Case("", "copy", {"x": (2, 3, 5, 4), "y": (2, 3, 5, 4)}, within={"y": (2, 6, 5, 4)})
    plain, last = case.arrays(), case.arrays({"image": (0, 2, 3, 1)})
    assert all(np.array_equal(plain[name], last[name]) for name in "xy")
    assert plain["x"].strides == (240, 80, 16, 4)
    assert last["x"].strides == (240, 4, 48, 12)
    assert last["y"].strides == (480, 4, 96, 24)


def test_slowest_kernels_come_first(load):
    kernels, report = load("kernels"), load("report")
    case = load("kernel_table").Case
    rows = [
        kernels.Row(case(title, "relu", {}), 0.001, 0.002, report.spread([ratio]), equal)
        for title, ratio, equal in (("fast", 0.5, True), ("slow", 3.0, False), ("middle", 1.0, True))
    ]
    lines = kernels.table(rows).splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == ["| relu: slow", "| relu: middle", "| relu: fast"]
    assert ["differ" in line for line in lines] == [True, False, False]


# ---- against PyTorch


@pytest.mark.peer
def test_every_case_has_its_operation(load):
    skips.library("torch")
    operations = load("peers.torch_kernels").OPERATIONS
    assert {case.kernel for case in load("kernel_table").cases()} <= set(operations)


NAMES = """
import json, torch
from nets import NETS
from peers import torch_nets
shapes = {}
for name, build in torch_nets.NETS.items():
    with torch.device("meta"):
        named = torch_nets.parameters_by_our_names(build())
    theirs = {n: tuple(p.T.shape if turned else p.shape) for n, p, turned in named}
    ours = {n: tuple(value.shape) for n, value in NETS[name].build(init=0.0).parameters().items()}
    shapes[name] = [ours, theirs]
print(json.dumps(shapes))
"""


@pytest.mark.peer
def test_both_sides_have_the_same_parameters(load):
    skips.library("torch")
    command = [sys.executable, "-c", NAMES]  # a process, since a helper of the tests is called `nets` too
    done = subprocess.run(command, cwd=FOLDER, check=True, capture_output=True, text=True)
    shapes = json.loads(done.stdout)
    assert set(shapes) == set(load("compare").BATCHES) == set(load("compare").RATES)
    for name, (ours, theirs) in shapes.items():
        assert ours == theirs, name


@pytest.mark.peer
def test_both_sides_train_to_equal_losses(load):
    skips.library("torch")
    compare, process = load("compare"), load("peers.process")
    task = process.Task("", "lenet", 5, lr=0.001, warmup=1, steps=3)
    result = compare.compare(task, ["torch"], rounds=1)
    assert compare.worst(result, "torch").agrees
    assert [len(run["losses"]) for run in (*result["ours"], *result["peers"]["torch"])] == [4, 4]
    assert len(result["ours"][0]["seconds"]) == 3
    assert result["ours"][0]["flops"] > 0


def test_a_failing_peer_is_named(load, monkeypatch):
    compare, process = load("compare"), load("peers.process")
    monkeypatch.setattr(compare, "obstacle", lambda peer: "")
    runs = load("peers.turns").one_more([], process.Task("torch", "no such net", 5), compare.in_process)
    assert isinstance(runs, str)
    assert runs.startswith("failed: torch:")


def test_a_peer_that_is_not_there_is_said_so(load, monkeypatch):
    compare = load("compare")
    monkeypatch.setattr(compare.importlib.util, "find_spec", lambda name: None)
    assert compare.obstacle("torch") == "not installed"
    monkeypatch.setattr(compare.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(compare.shutil, "which", lambda name: None)
    assert compare.obstacle("torch-compile") == "no C++ compiler"
    assert compare.obstacle("torch") == ""
