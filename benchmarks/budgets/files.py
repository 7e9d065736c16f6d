"""The file of a run: written after every round, read to go on with, and put together with others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peers.budget_task import BudgetTask

from .cases import Case

#: The cases of each net.
Nets = list[list[Case]]


def write(path: str, nets: Nets, about: dict[str, Any]) -> None:
    """All that is known. An interrupted write leaves the file that was there. about: where and how it was measured."""
    results = [[asdict(case) for case in found] for found in nets]
    beside = Path(f"{path}.new")
    beside.write_text(json.dumps({"about": about, "nets": results}, indent=1, default=str))
    beside.replace(path)


def read(path: str) -> tuple[Nets, dict[str, Any]]:
    """What `write` wrote. ValueError for another file."""
    try:
        told = json.loads(Path(path).read_text())
        nets = [[Case(**{**case, "task": BudgetTask.of(case["task"])}) for case in found] for found in told["nets"]]
        return nets, told["about"]
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: wanted a file of --json, received {type(error).__name__}: {error}") from None


def merged(files: Sequence[Nets]) -> Nets:
    """The nets of several files, in their order; equal cases of one net together, with all turns."""
    nets: dict[tuple[Any, ...], dict[tuple[Any, ...], Case]] = {}
    for case in (case for found in files for cases in found for case in cases):
        task = case.task
        cases = nets.setdefault((task.net, task.batch, task.image, task.threads), {})
        same = cases.setdefault((task.way, task.value, task.channels_last, case.point.get("planned")), case)
        if same is not case:
            same.turns, same.why = same.turns + case.turns, case.why or same.why
    return [_free_first(list(cases.values())) for cases in nets.values()]


def _free_first(cases: list[Case]) -> list[Case]:
    return sorted(cases, key=lambda case: (not case.ours, case.ours and case.task.value != 0.0))
