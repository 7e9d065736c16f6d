"""The benchmark of memory budgets: its lower bound, its cases and table, and a whole run at a tiny size."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import skips
from benchmark_modules import FOLDER, benchmark_modules

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="this copy has no benchmarks, the checkout has")


@pytest.fixture(scope="module")
def load() -> Iterator[Any]:
    """Imports a module of the folder by name, and forgets all of them in the end."""
    with benchmark_modules() as importer:
        yield importer


# ---- the bound


@pytest.mark.parametrize(("limit", "wanted"), [(20, 0.0), (15, 0.05), (10, 0.1), (9, None)])
def test_the_bound_of_two_values(load, limit, wanted):
    """10 bytes each; backward reads the second, then the first, which takes 1 of 10 seconds to make again."""
    skips.library("scipy")
    bound = load("bound")
    two = bound.Problem([10, 10], [0, 0], [{1}, {0}], [{1}, {0}], [[0], [1]], [[], [0]], [1.0, 2.0], 10.0)
    found = bound.extra_time(two, limit)
    assert found == (None if wanted is None else pytest.approx(wanted, abs=1e-6))


def test_a_value_costs_what_it_is_made_of(load):
    """The third is made of the second, that of the first: with room for one only, all three are made again for it."""
    skips.library("scipy")
    bound = load("bound")
    reading = [set(), {2}]
    chain = bound.Problem([10] * 3, [25, 0], reading, reading, [[0], [1], [2]], [[], [0], [1]], [1.0, 2.0, 3.0], 10.0)
    assert bound.extra_time(chain, 25) == pytest.approx(0.6, abs=1e-6)  # nothing is held at the first instant
    assert bound.extra_time(chain, 35) == pytest.approx(0.0, abs=1e-6)  # the third is


def test_no_plan_is_below_its_bound(load):
    skips.library("scipy")
    task = load("peers.budget_task").BudgetTask("plan", "unet", 2, 16, shares=(0.95, 0.0))
    points = load("peers.budget_side").plans(task)["points"]
    assert points[0]["budget"] is None
    assert points[-1]["least"]
    assert len(points) > 1
    for point in points:
        assert point["bound"] <= point["estimated"] + 1e-9
        assert point["planned"] <= (point["budget"] or point["planned"])
    assert points[0]["bound"] == pytest.approx(0.0, abs=1e-9)


# ---- the table


def runs(*seconds: float, peak: int = 3 * 2**20) -> list[dict[str, Any]]:
    """What processes of several rounds tell."""
    return [{"seconds": [each], "peak": peak, "steps_peak": peak // 3, "losses": [1.0]} for each in seconds]


def test_rows_tell_ratios_within_rounds(load):
    report, task = load("budget_report"), load("peers.budget_task").BudgetTask("singa_lite", "unet", 2)
    point = {"planned": 2 * 2**20, "estimated": 0.25, "bound": 0.125}
    free = report.Case(task, "free", {**point, "estimated": 0.0, "bound": None}, runs(1.0, 2.0))
    half = report.Case(task, "half", point, runs(1.5, 2.5))
    peer = report.Case(task.from_json(task.to_json()), "compiled", runs=runs(2.0))
    peer.task = load("peers.budget_task").BudgetTask("torch-compile", "unet", 2)
    absent = report.Case(peer.task, "compiled", why="no C++ compiler")
    lines = [line.strip("| ").split(" | ") for line in report.rows([free, half, peer, absent])]
    assert lines[1] == [
        "unet, 2", "singa_lite", "half", "2", "3", "1", "2000", "1.38 (1.25..1.50)", "1.250", "1.125",
    ]  # fmt: skip
    assert lines[2][4] == "1"  # of the timed steps alone
    assert lines[2][7] == "2.00 (2.00..2.00)"
    assert "no C++ compiler" in lines[3]
    assert {row.count("|") for row in report.rows([free, half, peer, absent])} == {len(report.HEAD) + 1}


def test_cases_are_ours_then_the_peers(load, monkeypatch):
    budget, task = load("budget"), load("peers.budget_task").BudgetTask("plan", "unet", 2)
    monkeypatch.setattr(budget, "obstacle", lambda way: "no C++ compiler" if way == "torch-compile" else "")
    points = [{"budget": None, "share": 1.0}, {"budget": 5, "share": 0.5, "least": True}]
    found = list(budget.cases(task, points, quick=True))
    assert [case.setting for case in found[:3]] == ["free", "0.50 of free, the least", "the usual loop"]
    assert [case.task.value for case in found[:2]] == [0.0, 5.0]
    assert [case.why for case in found if case.task.way == "torch-compile"] == ["no C++ compiler"]
    assert len(list(budget.cases(task, points, quick=False))) > len(found)


def test_a_peer_that_fails_is_named_and_ours_is_an_error(load, monkeypatch):
    budget, report, process = load("budget"), load("budget_report"), load("peers.budget_task")

    def fails(task: Any) -> dict[str, Any]:
        if task.way == "torch":
            raise RuntimeError("torch: no memory")
        return runs(1.0)[0]

    monkeypatch.setattr(budget, "in_process", fails)
    ours, peer = (report.Case(process.BudgetTask(way, "unet", 2), way) for way in ("singa_lite", "torch"))
    budget.one_round([ours, peer], end=float("inf"))
    assert (len(ours.runs), peer.why) == (1, "failed: torch: no memory")
    late = report.Case(process.BudgetTask("singa_lite", "unet", 2), "half")
    budget.one_round([ours, late], end=0.0)
    assert (len(ours.runs), late.why) == (2, "no time was left")
    with pytest.raises(RuntimeError, match="no memory"):
        budget.one_round([peer.__class__(peer.task, "free")], end=0.0)


# ---- whole runs


def test_a_whole_run(tmp_path):
    """Only our free plan is run, as no time is left behind it."""
    for library in ("scipy", "matplotlib"):
        skips.library(library)
    files = ["--json", str(tmp_path / "runs.json"), "--picture", str(tmp_path / "curve.png")]
    options = ["--net", "unet", "--batch", "2", "--image", "16", "--quick", "--anyway", "--minutes", "0", *files]
    done = subprocess.run([sys.executable, "budget.py", *options], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| unet, 2")]
    assert "| singa_lite | free |" in rows[0]
    assert "1.00 (1.00..1.00)" in rows[0]
    assert any("no time was left" in row for row in rows)
    (found,) = json.loads((tmp_path / "runs.json").read_text())["results"]
    assert found[0]["runs"][0]["peak"] > 0
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_training_within_a_budget_takes_what_the_plan_says(load):
    process = load("peers.budget_task")
    plan = load("budget").in_process(process.BudgetTask("plan", "unet", 2, 32, shares=(0.0,), bound=False))
    free, least = plan["points"]
    assert least["planned"] < free["planned"]
    done = load("budget").in_process(process.BudgetTask("singa_lite", "unet", 2, 32, least["budget"], steps=1))
    assert len(done["losses"]) == 2
    assert least["planned"] * 0.5 < done["peak"] < least["planned"] + load("predicted_memory").ABOVE


@pytest.mark.peer
def test_segments_change_no_loss(load):
    skips.library("torch")
    process, run = load("peers.budget_task"), load("budget").in_process
    for net, image in (("unet", 16), ("densenet121", 32)):
        ways = (("torch", 0.0), ("torch-segments", 3.0))
        told = [run(process.BudgetTask(way, net, 2, image, value, warmup=0, steps=1, threads=1)) for way, value in ways]
        assert told[0]["losses"][0] == pytest.approx(told[1]["losses"][0], rel=1e-5)


PARAMETERS = """
from math import prod
from nets import NETS
from peers.torch_segments import built
for name in ("densenet121", "unet"):
    ours = sum(prod(value.shape) for value in NETS[name].build(init=0.0).param_values())
    print(ours == sum(p.numel() for p in built(name, 2).parameters()))
"""


@pytest.mark.peer
def test_both_sides_have_as_many_parameters():
    skips.library("torch")
    done = subprocess.run([sys.executable, "-c", PARAMETERS], cwd=FOLDER, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "True"]
