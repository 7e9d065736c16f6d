"""The points of `head_to_head.py`: which budgets of each side, each measured in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

from peers.budget_task import BudgetTask
from peers.worker import Worker, asked_once
from tiny import size

from .cases import Case, obstacle

#: By net: samples, extent of the images (0: the net's own), and the rate of SGD.
NETS = size({"llama": (4, 0, 0.1), "resnet50": (8, 128, 0.001), "unet": (4, 0, 0.01)}, {"unet": (2, 16, 0.01)})
OURS, COMPILED, SEGMENTS = SIDES = ("singa_lite", "torch-compile", "torch-segments")
#: Pieces that a net can be cut into for checkpoints; of a U-Net the stages, of which none may be one too.
PIECES = {"llama": 10, "resnet50": 21, "unet": 7}
#: Seconds that planning all budgets of a net may take, and a point with its compiler.
LONGEST = 1800.0
#: The round of a point's own process.
ALONE = "alone"


def points(net: str, count: int, threads: int, folder: str) -> list[Case]:
    """All points of a net, none measured: of each side its free run first. folder: of the weights all start from."""
    batch, image, rate = NETS[net]
    task = BudgetTask(
        *("check", net, batch, image), warmup=2, threads=threads, budgets=count, momentum=0.0, lr=rate, folder=folder
    )
    asked_once(replace(task, way="write"))
    rows = asked_once(task, longest=LONGEST)["rows"]
    return [*_ours(task, rows), *_compiled(task, count), *_segments(task, count)]


def _ours(task: BudgetTask, rows: list[dict[str, Any]]) -> Iterator[Case]:
    for number, row in enumerate(rows):
        value = float(row["budget"]) if number else 0.0  # the first is the free plan's total
        name = f"ours, {row['budget'] / 2**20:.1f} MiB" if number else "ours, no budget"
        yield Case(replace(task, way=OURS, value=value), name, row, why=row.get("why", ""))


def _compiled(task: BudgetTask, count: int) -> Iterator[Case]:
    for number in range(count):
        share = (count - number) / count
        made = replace(task, way=COMPILED, value=share, channels_last=True)
        yield Case(made, f"compiled, budget {share:.3g}", why=obstacle(COMPILED))


def _segments(task: BudgetTask, count: int) -> Iterator[Case]:
    first, word = (0, "stages") if task.net == "unet" else (1, "segments")
    for number in range(first, min(PIECES[task.net], first + count - 1) + 1):
        made = replace(task, way=SEGMENTS, value=float(number), channels_last=True)
        yield Case(made, f"checkpoints, {number} {word}", why=obstacle(SEGMENTS))


def measured(case: Case, steps: int, cache: str) -> None:
    """Measure a point in a process of its own: its bytes and losses, and times that other work may have disturbed.

    What is compiled is compiled in a process before it, whose memory does not count.
    """
    try:
        if case.task.way == COMPILED:
            asked_once(replace(case.task, warmup=1), cache, LONGEST)
        with closing(Worker(case.task, cache)) as worker:
            begun, turn = worker.answer(LONGEST), worker.turn(steps, LONGEST)
        losses = begun["losses"] + turn["losses"]
        case.turns.append({**turn, "round": ALONE, "why": "beside other work", "losses": losses})
    except RuntimeError as error:
        case.why = f"failed: {error}"


def evenly(cases: list[Case], count: int) -> list[Case]:
    """So many points of each side, from the free run to the least budget, evenly; our free plan first.

    Of twenty points 4 are part of 7, and these of 13.
    """
    chosen = []
    for side in SIDES:
        able = [case for case in cases if case.task.way == side and case.able]
        places = {round(number * (len(able) - 1) / max(1, count - 1)) for number in range(count)} if able else set()
        chosen += [able[place] for place in sorted(places)]
    return chosen
