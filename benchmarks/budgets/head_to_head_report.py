"""The tables of `head_to_head.py`: all points, what each side's budgets do, gradients, and times."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from figure_file import Cell, Table

from .cases import Case
from .files import Nets
from .head_to_head import ALONE, COMPILED, OURS, SIDES

MIB = 2**20
NAMES = {"llama": "Llama-like", "resnet50": "ResNet-50", "unet": "U-Net"}
#: A peak rises where it is so much above the smallest of larger budgets, MiB.
NOISE = 2.0
POINTS = [("point", ""), ("planned MiB", ",.1f"), ("MiB", ",.1f"), ("losses", ""), ("place", ".2f")]
SIDE_COLUMNS = [
    ("net, side", ""), ("budgets", "d"), ("MiB, free", ",.0f"), ("MiB, least", ",.0f"), ("at", ""), ("rises", "d"),
    ("largest rise, MiB", ",.0f"), ("losses equal", ""), ("largest difference", ""),
]  # fmt: skip
GRADIENT_COLUMNS = [
    ("net, budget", ""), ("loss", ".6f"), ("squared length of the gradient", ".3f"), ("slope along it", ".3f"),
]  # fmt: skip
TIMED_COLUMNS = [
    ("point", ""), ("MiB", ",.0f"), ("ms, fastest", ",.0f"), ("ms, median", ",.0f"), ("estimated", ""),
]  # fmt: skip


def tables(nets: Nets) -> dict[str, Table]:
    """All, by name. Points that were not measured are left out."""
    measured = [[case for case in cases if case.turns] for cases in nets]
    sides = [[c for c in cases if c.task.way == side] for cases in nets for side in SIDES]
    return {
        "points": Table(POINTS, [row for side in sides for row in _points(side)]),
        "sides": Table(SIDE_COLUMNS, [_side(done) for side in sides if (done := [c for c in side if c.turns])]),
        "gradients": Table(
            GRADIENT_COLUMNS, [_gradient(c) for cases in measured for c in cases if "gradient" in c.point]
        ),
        "times": Table(TIMED_COLUMNS, [_timed(c) for cases in measured for c in cases if times(c)[0] != ""]),
    }


def _name(case: Case) -> str:
    return f"{NAMES[case.task.net]}, {case.setting}"


def mebibytes(case: Case) -> float:
    """Of the point's own process; of a compiled net of the steps alone."""
    return float(case.turns[0]["steps_peak" if case.task.way == COMPILED else "peak"]) / MIB


def difference(case: Case, free: Case) -> float:
    """The largest relative difference of a loss from the free run's, over the steps that both did."""
    pairs = zip(case.turns[0]["losses"], free.turns[0]["losses"], strict=False)
    return max(abs(own - other) / abs(other) for own, other in pairs)


def times(case: Case) -> tuple[Cell, Cell]:
    """Milliseconds of a step, the fastest and the median: of quiet turns, of all if none was; "" if it took no turn."""
    if all(turn["round"] == ALONE for turn in case.turns):
        return "", ""
    turns = [turn for turn in case.turns if not turn["why"]] or case.turns
    seconds = [second for turn in turns for second in turn["seconds"]]
    return 1e3 * min(seconds), 1e3 * median(seconds)


def _points(side: list[Case]) -> Iterator[list[Cell]]:
    """place: from 0, the free run, to 1, the least budget."""
    for number, case in enumerate(side):
        if case.turns:
            apart = difference(case, side[0])
            planned: Cell = case.point["planned"] / MIB if case.task.way == OURS else ""
            losses = f"{apart:.0e}" if apart else "equal"
            yield [_name(case), planned, mebibytes(case), losses, number / max(1, len(side) - 1)]


def _gradient(case: Case) -> list[Cell]:
    found = case.point["gradient"]
    return [_name(case), found["loss"], found["square"], found["slope"]]


def rises(side: list[Case]) -> list[float]:
    """MiB by which peaks are above the smallest of larger budgets, where that is more than noise."""
    found, least = [], float("inf")
    for case in side:
        if mebibytes(case) > least + NOISE:
            found.append(mebibytes(case) - least)
        least = min(least, mebibytes(case))
    return found


def _side(side: list[Case]) -> list[Cell]:
    free, least, risen = side[0], min(side, key=mebibytes), rises(side)
    apart = [difference(case, free) for case in side[1:]]
    name = {"singa_lite": "ours", "torch-compile": "compiled", "torch-segments": "checkpoints"}[free.task.way]
    return [
        f"{NAMES[free.task.net]}, {name}", len(side), mebibytes(free), mebibytes(least),
        least.setting.partition(", ")[2], len(risen), max(risen, default=0.0),
        f"{apart.count(0.0)} of {len(apart)}", f"{max(apart):.0e}" if any(apart) else "none",
    ]  # fmt: skip


def _timed(case: Case) -> list[Cell]:
    estimated = f"{case.point['estimated']:+.0%}" if case.task.way == OURS else ""
    return [_name(case), mebibytes(case), *times(case), estimated]
