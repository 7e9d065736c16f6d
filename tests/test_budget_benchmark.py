"""The benchmark of memory budgets: its lower bound, turns, figures, tables and check, and whole runs at a tiny size."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

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
    task = load("peers.budget_task").BudgetTask("plan", "unet", 2, 32, targets=(0.05,))
    points = load("peers.budget_side").plans(task)["points"]
    assert points[0]["budget"] is None
    assert points[-1]["least"]
    assert len(points) > 1
    for point in points:
        assert point["bound"] <= point["estimated"] + 1e-9
        assert point["planned"] <= (point["budget"] or point["planned"])
    assert -0.1 < points[0]["bound"] <= 1e-9  # below 0 where the free plan has repeats


def test_points_are_those_nearest_to_the_targets_and_the_least(load):
    nearest = load("peers.budget_side").nearest
    curve = [(100, 0.0), (90, 0.01), (80, 0.06), (70, 0.09), (60, 0.3), (50, 2.0)]
    assert nearest(curve, (0.05, 0.1, 0.12)) == [80, 70, 50]
    assert nearest(curve[:1], (0.05,)) == []


# ---- what the turns say

MIB = 2**20


def turns(*seconds: float, peak: int = 3, disturbed: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """What a process tells of a turn a round. peak: MiB. disturbed: numbers of rounds."""
    return [
        {
            "round": f"1.{n}", "seconds": [each], "peak": peak * MIB, "steps_peak": peak * MIB // 3,
            "losses": [1.0], "why": "the hypervisor" if n in disturbed else "",
        }
        for n, each in enumerate(seconds)
    ]  # fmt: skip


@pytest.fixture
def case(load):
    """Makes a case of its way, setting and further fields."""

    def make(way: str, setting: str, value: float = 0.0, **fields: Any) -> Any:
        return load("budgets.cases").Case(
            load("peers.budget_task").BudgetTask(way, "unet", 2, 0, value), setting, **fields
        )

    return make


def test_rows_tell_ratios_within_rounds(load, case):
    figures, report = load("budgets.figures"), load("budgets.report")
    point = {"planned": 2 * MIB, "estimated": 0.25, "bound": 0.125}
    free = case("singa_lite", "free", point={**point, "estimated": 0.0, "bound": None}, turns=turns(1.0, 1.05))
    half = case("singa_lite", "half", 5.0, point=point, turns=turns(1.5, 1.05))
    peer = case("torch-compile", "compiled", turns=turns(2.0))
    absent = case("torch-compile", "compiled", why="no C++ compiler")
    cases = [free, half, peer, absent]
    known = {one.case.setting: one for one in figures.figures(cases, anyway=False)}
    rows = [report.row(each, known.get(each.setting) if each.turns else None) for each in cases]
    cells = [row.strip("| ").split(" | ") for row in rows]
    assert cells[1] == [
        "unet, 2", "singa_lite", "half", "2", "3", "1", "1275", "1.25 (1.00..1.50)", "2 of 2", "1.250", "1.125",
    ]  # fmt: skip
    assert cells[2][4] == "1"  # of the timed steps alone
    assert cells[2][7:9] == ["2.00 (2.00..2.00)", "1 of 1"]
    assert "no C++ compiler" in cells[3]
    assert {row.count("|") for row in rows} == {len(report.ROWS) + 1}


def test_disturbed_turns_and_rounds_that_are_apart_do_not_count(load, case):
    """Of the free plan's turns the second is disturbed, the third is 20 % slower than the first."""
    free = case("singa_lite", "free", turns=turns(1.0, 1.0, 1.2, 1.05, disturbed=(1,)))
    peer = case("torch", "usual", turns=turns(2.0, 9.0, 9.0, 2.1, 9.0))
    never = case("torch", "other", turns=turns(2.0, disturbed=(0,)))
    figures = load("budgets.figures").figures
    quiet = figures([free, peer, never], anyway=False)
    assert [one.case.setting for one in quiet] == ["free", "usual"]
    assert (quiet[1].ratio.median, quiet[1].rounds, quiet[1].tried, quiet[1].disturbed) == (2.0, 2, 5, "")
    assert [one.rounds for one in figures([free, peer, never], anyway=True)] == [4, 4, 1]
    assert figures([free, peer, never], anyway=True)[2].disturbed == "the hypervisor"
    again = {**turns(5.0, disturbed=(0,))[0]}, {**turns(3.0)[0]}
    repeated = case("torch", "usual", turns=list(again))
    assert figures([free, repeated], anyway=False)[1].ratio.median == 3.0


def test_a_curve_is_straight_between_points_that_none_beats(load):
    figures = load("budgets.figures")
    curve = [(100.0, 1.4), (200.0, 1.2), (300.0, 1.0)]
    asked = [figures.bytes_at(curve, ratio) for ratio in (0.9, 1.0, 1.1, 1.2, 1.25, 1.4, 3.0)]
    assert asked == [None, 300.0, pytest.approx(250.0), 200.0, pytest.approx(175.0), 100.0, 100.0]
    asked = [figures.time_at(curve, nbytes) for nbytes in (99.0, 100.0, 150.0, 200.0, 300.0, 999.0)]
    assert asked == [None, 1.4, pytest.approx(1.3), 1.2, 1.0, 1.0]


@pytest.mark.parametrize(
    ("mib", "seconds", "verdict", "by"),
    [
        (30, 1.3, "yes", "half"),
        (30, 1.0, "**memory only**", "half"),  # its time is that of ours
        (15, 1.3, "yes", "none"),  # between two points of ours, which are as large or as slow as it
        (10, 1.1, "**no**", "none"),
        (50, 0.9, "**no**", "none"),
        (10, 2.0, "**time only**", "least"),
        (5, 2.0, "**no**", "none"),
    ],
)
def test_a_peers_row_is_beaten_or_not(load, case, mib, seconds, verdict, by):
    """Ours: 40 MiB in 1.02 s beside 1, 20 in 1, 10 in 1.4; that with 40 is beaten by our own."""
    ours = [case("singa_lite", name, value, turns=turns(time, peak=size)) for name, value, time, size in (
        ("free", 0.0, 1.0, 40), ("half", 5.0, 1.0, 20), ("least", 3.0, 1.4, 10))]  # fmt: skip
    figures, report = load("budgets.figures"), load("budgets.report")
    known = figures.figures([*ours, case("torch", "usual", turns=turns(seconds, peak=mib))], anyway=False)
    said = report.verdicts(known)[2].strip("| ").split(" | ")
    assert (said[5], said[6].split(":")[0]) == (verdict, by)


def test_memory_at_equal_times_stands_beside_what_is_wanted(load, case):
    free = case("singa_lite", "free", turns=turns(1.0, peak=400))
    least = case("singa_lite", "least", 3.0, turns=turns(1.1, peak=200))
    peer = case("torch", "usual", turns=turns(1.12, peak=300))
    for each in (free, least, peer):
        each.task = load("dataclasses").replace(each.task, batch=8)
    known = load("budgets.figures").figures([free, least, peer], anyway=False)
    lines = load("budgets.report").at_times([free], known)
    assert lines[2] == "| unet, 8 | wanted | 450 | 250 | 220 | 200 | 180 |"
    assert lines[3] == "| unet, 8 | ours | 400 | 300 | 200 | 200 | 200 at +10.0% |"
    assert lines[4].count("none is so fast") == 3
    assert lines[4].endswith("| 300 (usual, +12.0%) | 300 (usual, +12.0%) |")


# ---- cases and their turns


def test_cases_are_ours_then_the_peers(load, monkeypatch):
    cases, task = load("budgets.cases"), load("peers.budget_task").BudgetTask("plan", "unet", 2)
    monkeypatch.setattr(cases, "obstacle", lambda way: "no C++ compiler" if way == "torch-compile" else "")
    points = [{"budget": None, "share": 1.0}, {"budget": 5, "share": 0.5, "least": True}]
    found = cases.cases(task, points, quick=True)
    assert [each.setting for each in found[:3]] == ["free", "0.50 of free, the least", "the usual loop, contiguous"]
    assert [each.task.value for each in found[:2]] == [0.0, 5.0]
    assert [each.why for each in found if each.task.way == "torch-compile"] == ["no C++ compiler"]
    assert len(cases.cases(task, points, quick=False)) > len(found)
    groups = cases.groups(found)
    assert [{each.task.way for each in group[1:]} for group in groups] == [{"singa_lite"}, {"torch", "torch-segments"}]
    assert all(group[0] is found[0] for group in groups)
    assert cases.groups(found[:1]) == [found[:1]]


class Told:
    """Stands for a process: what it tells of a turn, or fails with. started: those that were."""

    started: ClassVar[list[str]] = []
    fails: ClassVar[dict[str, str]] = {}

    def __init__(self, task: Any, cache: str) -> None:
        self.task = task
        self.started.append(task.way)

    def answer(self) -> dict[str, Any]:
        return {"losses": [1.0], "peak": MIB}

    def turn(self, steps: int) -> dict[str, Any]:
        if self.task.way in self.fails:
            raise RuntimeError(self.fails[self.task.way])
        return {"seconds": [1.0] * steps, "peak": MIB, "steps_peak": MIB, "losses": [1.0], "cores": 1.0}

    def close(self) -> None:
        pass


class Disturbed:
    """Stands for a Watch: what each turn was disturbed by."""

    def __init__(self, *why: str, anyway: bool = False) -> None:
        self.why, self.anyway, self.asked = list(why), anyway, False

    def trouble(self) -> str:
        self.asked = not self.asked
        return "" if self.asked or not self.why else self.why.pop(0)


@pytest.fixture
def measuring(load, monkeypatch):
    """Makes a Measuring over told turns."""
    module = load("budgets.turns")
    monkeypatch.setattr(module, "Worker", Told)
    Told.started.clear()
    Told.fails.clear()

    def make(watch: Any, rounds: int = 2, end: float = float("inf")) -> Any:
        return module.Measuring(watch, rounds, 1, end, "", lambda: None)

    return make


def whys(case: Any) -> list[str]:
    return [turn["why"] for turn in case.turns]


def test_a_disturbed_turn_is_done_again_within_its_round(measuring, case):
    ours, peer = case("singa_lite", "free"), case("torch", "usual")
    measuring(Disturbed("", "steal", "steal", "", "")).net([ours, peer], 1.0)
    assert (whys(ours), whys(peer)) == (["", ""], ["steal", "steal", "", ""])
    assert [turn["round"][-1] for turn in peer.turns] == ["0", "0", "0", "1"]
    measuring(Disturbed()).net([ours, peer], 1.0)  # there are as many as are wanted
    assert len(ours.turns) == 2
    measuring(Disturbed(), rounds=3).net([ours, peer], 1.0)
    assert (len(ours.turns), len(peer.turns)) == (3, 5)


def test_a_plan_that_takes_several_times_as_long_takes_fewer_turns(measuring, case):
    ours, slow = case("singa_lite", "free"), case("singa_lite", "least", 3.0, point={"estimated": 2.5})
    measuring(Disturbed(), rounds=4).net([ours, slow, case("singa_lite", "half", 5.0, point={"estimated": 0.1})], 1.0)
    assert (len(ours.turns), len(slow.turns)) == (4, 2)


def test_a_machine_that_is_never_quiet_is_not_waited_for(measuring, case):
    ours, peer = case("singa_lite", "free"), case("torch", "usual")
    measuring(Disturbed(*["steal"] * 99)).net([ours, peer], 1.0)
    assert len(ours.turns) == len(peer.turns) == 2 * 2 * 3  # tried rounds a wanted one, rounds, turns of a round
    measuring(Disturbed(*["steal"] * 99, anyway=True)).net([ours, peer], 1.0)
    assert len(ours.turns) == 12


def test_a_peer_that_fails_is_named_and_ours_is_an_error(measuring, case):
    ours, peer, other = case("singa_lite", "free"), case("torch", "usual"), case("torch-segments", "two", 2.0)
    Told.fails["torch"] = "torch: no memory"
    measuring(Disturbed()).net([ours, peer, other], 1.0)
    assert (len(ours.turns), peer.why, len(other.turns)) == (2, "failed: torch: no memory", 2)
    late = case("torch-compile", "compiled")
    measuring(Disturbed(), end=0.0).net([ours, late], 1.0)
    assert late.why == "no time was left"
    measuring(Disturbed()).net([ours, late], 1.0)
    assert (late.why, len(late.turns)) == ("", 2)
    Told.fails["singa_lite"] = "singa_lite: no memory"
    with pytest.raises(RuntimeError, match="no memory"):
        measuring(Disturbed()).net([case("singa_lite", "free")], 1.0)


def test_files_are_put_together_by_case(load, case, tmp_path):
    files, path = load("budgets.files"), str(tmp_path / "a.json")
    ours, peer = case("singa_lite", "free", turns=turns(1.0)), case("torch", "usual", why="failed: no memory")
    files.write(path, [[ours, peer]], {"machine": {"cpu": "x"}})
    nets, about = files.read(path)
    assert (nets, about) == ([[ours, peer]], {"machine": {"cpu": "x"}})
    more = case("singa_lite", "0.50 of free", 5.0, point={"planned": 5})
    others = [[case("singa_lite", "free", turns=turns(2.0)), more]]
    (found,) = files.merged([nets, others])
    assert [each.setting for each in found] == ["free", "0.50 of free", "usual"]
    assert [turn["seconds"] for turn in found[0].turns] == [[1.0], [2.0]]
    (tmp_path / "b.json").write_text('{"nets": 3}')
    with pytest.raises(ValueError, match=r"b\.json: wanted a file of --json"):
        files.read(str(tmp_path / "b.json"))


# ---- the check of many budgets


def told_by(*rows: tuple[int, float], below: int | None = 50) -> dict[str, Any]:
    """Plans of budgets 100, 90, ... by their bytes and estimates."""
    planned = [
        {"budget": 100 - 10 * n, "planned": size, "arena": size - 8, "held": 8, "estimated": time, "recomputed": n}
        for n, (size, time) in enumerate(rows)
    ]
    return {"free": 100, "least": 50, "below": below, "rows": planned}


def test_breaches_of_a_curve_are_found(load):
    check = load("budgets.check")
    assert check.breaches(told_by((100, 0.0), (90, 0.1), (80, 0.1))) == []
    (faster,) = check.breaches(told_by((100, 0.0), (90, 0.1), (80, 0.05)))
    assert "faster by 5.00% than with more bytes" in faster
    (larger,) = check.breaches(told_by((100, 0.0), (91, 0.1)))
    assert "takes" in larger
    (far,) = check.breaches(told_by((100, 0.0), below=None))
    assert "0.97 of it is planned" in far
    (other,) = check.breaches(told_by((100, 0.0), below=40))
    assert "the least is stated as" in other
    told = told_by((100, 0.0), (90, 0.1))
    told["rows"].append({"budget": 50, "why": "memory_budget: the least is 60"})
    (refused,) = check.breaches(told)
    assert refused.endswith("refused: memory_budget: the least is 60")
    assert check.table(told)[-1].count("|") == check.table(told)[0].count("|")
    assert check.summary(told, [refused]).splitlines()[1] == f"- {refused}"


@pytest.mark.parametrize(("net", "size", "image", "count"), [("lenet", 16, 0, 20), ("unet", 2, 16, 6)])
def test_budgets_of_small_nets_hold(load, net, size, image, count):
    task = load("peers.budget_task").BudgetTask("check", net, size, image, budgets=count)
    told = load("peers.budget_side").check(task)
    assert len(told["rows"]) == count
    assert told["below"] is not None
    assert load("budgets.check").breaches(told) == []


# ---- whole runs


def run(*options: str) -> Any:
    """The program, in a process of its own."""
    return subprocess.run([sys.executable, "budget.py", *options], cwd=FOLDER, capture_output=True, text=True)


def test_a_whole_run(tmp_path):
    """Prepared, gone on with until the time is over, which it is behind our free plan, and told again from its file."""
    for library in ("scipy", "matplotlib"):
        skips.library(library)
    path, picture = str(tmp_path / "runs.json"), tmp_path / "curve.png"
    size = ["--net", "unet", "--batch", "2", "--image", "16", "--quick", "--no-peers"]
    done = run(*size, "--prepare", path)
    assert done.returncode == 0, done.stderr
    done = run("--resume", path, "--quick", "--anyway", "--minutes", "0")
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("| unet, 2 | singa_lite | free |")]
    assert "1.00 (1.00..1.00)" in row
    ((first, *_),) = json.loads(Path(path).read_text())["nets"]
    assert first["turns"][0]["peak"] > 0
    done = run("--from-json", path, "--from-json", path, "--anyway", "--picture", str(picture))
    assert done.returncode == 0, done.stderr
    assert row in done.stdout
    assert picture.stat().st_size > 1000


def test_training_within_a_budget_takes_what_the_plan_says(load):
    process, workers = load("peers.budget_task"), load("peers.worker")
    plan = workers.asked_once(process.BudgetTask("plan", "unet", 2, 32, bound=False))
    free, least = plan["points"]
    assert least["planned"] < free["planned"]
    worker = workers.Worker(process.BudgetTask("singa_lite", "unet", 2, 32, least["budget"]), "")
    try:
        started, done = worker.answer(), worker.turn(2)
    finally:
        worker.close()
    assert len(started["losses"]) == 1
    assert len(done["seconds"]) == len(done["losses"]) >= 2
    assert least["planned"] * 0.5 < done["peak"] < least["planned"] + load("predicted_memory").ABOVE


def test_a_process_that_fails_says_why(load):
    process, workers = load("peers.budget_task"), load("peers.worker")
    with pytest.raises(RuntimeError, match="singa_lite: KeyError: 'no net'"):
        workers.asked_once(process.BudgetTask("singa_lite", "no net", 2))
    with pytest.raises(RuntimeError, match="took longer than 0 s"):
        workers.asked_once(process.BudgetTask("singa_lite", "lenet", 2), longest=0.0)


@pytest.mark.peer
def test_segments_change_no_loss(load):
    skips.library("torch")
    process, workers = load("peers.budget_task"), load("peers.worker")
    for net, image in (("unet", 16), ("densenet121", 32)):
        last = net == "unet"  # the other normalises two numbers a channel in the end: rounding may turn their signs
        ways = (("torch", 0.0, False), ("torch-segments", 3.0, last))
        tasks = [process.BudgetTask(way, net, 2, image, value, lies, threads=1) for way, value, lies in ways]
        told = [workers.asked_once(task) for task in tasks]
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


# ---- both precisions beside the peer's


def test_precisions_are_told_by_the_best_peer(load):
    precision, figures = load("precision"), load("budgets.figures")
    found = precision.cases(load("peers.budget_task").BudgetTask("", "unet", 8), peers=True)
    settings = ["torch", "torch, channels last", "torch, compiled"]
    assert [case.setting for case in found] == [
        "ours, float32", "ours, bfloat16", *(f"{one}{tail}" for one in settings for tail in ("", ", autocast")),
    ]  # fmt: skip
    assert {case.task.precision for case in found if "autocast" in case.setting} == {"bfloat16"}
    for case, seconds in zip(found[:5], (1.0, 0.5, 4.0, 5.0, 2.0), strict=True):
        case.turns, case.why = turns(seconds, 1.05 * seconds, 9.0, disturbed=(2,)), ""
    found[5].why = "failed: torch: no memory"
    known = figures.figures(found, anyway=False)
    assert precision.best_peer(known).case is found[4]
    rows = [row.strip("| ").split(" | ") for row in precision.rows(found[:6], known, anyway=False)]
    assert rows[1] == [
        "unet, 8", "ours, bfloat16", "500.0", "512.5", "0.50 (0.50..0.50)", "0.25", "3", "2 of 3",
    ]  # fmt: skip
    assert "failed: torch: no memory" in rows[5]
    assert precision.summary(known).startswith(
        "unet, 8: float32 0.50 (3 MiB), bfloat16 0.25 (3 MiB) of the time of torch"
    )
    assert precision.summary(known[:2]) == ""
