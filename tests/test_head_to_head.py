"""What `benchmarks/head_to_head.py` tells of its points: rises of peaks, equal losses, which points are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from benchmark_modules import FOLDER, benchmark_modules

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="this copy has no benchmarks, the checkout has")
MIB = 2**20


@pytest.fixture(scope="module")
def modules() -> Iterator[Any]:
    """Function that imports a module of the benchmarks."""
    with benchmark_modules() as module:
        yield module


def compiled(modules: Any, peaks: list[int], losses: list[list[float]]) -> list[Any]:
    """Points of a side by MiB of their steps; one without losses was not measured."""
    task, case = modules("peers.budget_task").BudgetTask, modules("budgets.cases").Case
    found = [
        case(task("torch-compile", "unet", 2, value=1 - n / 10), f"compiled, budget {n}") for n in range(len(peaks))
    ]
    for one, peak, values in zip(found, peaks, losses, strict=True):
        if values:
            one.turns.append(
                {"round": "alone", "why": "", "losses": values, "steps_peak": peak * MIB, "peak": 999 * MIB}
            )
    return found


def test_a_peak_rises_above_the_smallest_of_larger_budgets(modules):
    report = modules("budgets.head_to_head_report")
    points = compiled(modules, [300, 250, 251, 270, 249], [[2.0, 1.0]] * 5)
    made = report.tables([points])
    assert made["sides"].rows == [
        ["U-Net, compiled", 5, 300.0, 249.0, "budget 4", 1, 20.0, "4 of 4", "none"],
    ]


def test_losses_are_equal_by_bits_over_the_steps_of_both(modules):
    report = modules("budgets.head_to_head_report")
    losses = [[2.0, 1.0], [2.0, 1.0, 0.5], [], [2.0, 1.0 + 2**-10]]
    made = report.tables([compiled(modules, [300, 250, 0, 200], losses)])
    assert [row[3:] for row in made["points"].rows] == [["equal", 0.0], ["equal", 1 / 3], ["1e-03", 1.0]]
    assert made["sides"].rows[0][-2:] == ["1 of 2", "1e-03"] and not made["times"].rows


def test_fewer_points_are_part_of_more(modules):
    points = compiled(modules, [0] * 20, [[]] * 20)
    chosen = [modules("budgets.head_to_head").evenly(points, count) for count in (2, 4, 7, 13, 20)]
    assert [len(one) for one in chosen] == [2, 4, 7, 13, 20]
    settings = [{case.setting for case in one} for one in chosen]
    assert all(few <= more for few, more in pairwise(settings))
