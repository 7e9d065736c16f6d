"""README's table of ResNet-50 within budgets as bars of memory and of time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from drawings.svg import Drawing

README = Path(__file__).resolve().parents[2] / "README.md"
OURS = "singa_lite, "
#: Where bars of memory and of time begin, their longest lengths, and the height of a row.
MEMORY, TIME, LONGEST, LONGEST_TIME, ROW = 12, 306, 224, 84, 46


class Case(NamedTuple):
    """A row of the table: what trains, MiB of the process, and time as a ratio."""

    name: str
    mebibytes: int
    time: float


def cases(readme: str) -> list[Case]:
    """Returns the rows of README's table of ResNet-50 that are drawn: ours, and PyTorch's but for its checkpoints."""
    table = re.sub(r"<!--.*?-->", "", readme).split("| ResNet-50, batch 16, float32 |", 1)[1].split("\n\n", 1)[0]
    rows = re.findall(r"^\| (\S.*?) \| ([\d,]+) \| ([\d.]+) \|$", table, re.MULTILINE)
    found = [Case(name, int(size.replace(",", "")), float(ratio)) for name, size, ratio in rows]
    return [case for case in found if "checkpoints" not in case.name]


def words(case: Case) -> str:
    """Returns the words above a bar."""
    name = case.name.removeprefix(OURS).replace('memory_budget="', "a budget of ").replace('"', "")
    return name.replace(", activation_memory_budget=", ", its budget ")


def drawing() -> Drawing:
    """Returns the rows from top to bottom, memory at the left, time at the right."""
    found = cases(README.read_text(encoding="utf-8"))
    largest, longest = max(case.mebibytes for case in found), max(case.time for case in found)
    made = Drawing(
        "One net, three budgets",
        "Memory of the process and time of a step of ResNet-50 without a budget and within two, beside PyTorch's.",
        60 + ROW * len(found),
    )
    made.label(MEMORY, 22, "ResNet-50, batch 16: one net, three budgets", "strong", size=15)
    made.label(MEMORY, 44, "memory of the process, MiB", "soft", size=12)
    made.label(TIME, 44, "time of a step", "soft", size=12)
    for number, case in enumerate(found):
        top, color = 72 + ROW * number, "blue" if case.name.startswith(OURS) else "gray"
        made.label(MEMORY, top - 5, words(case), size=12)
        for left, length, text in (
            (MEMORY, LONGEST * case.mebibytes / largest, f"{case.mebibytes:,}"),
            (TIME, LONGEST_TIME * case.time / longest, f"{case.time:.2f}"),
        ):
            made.frame(left, top, round(length, 1), 18, color)
            made.label(round(left + length + 6, 1), top + 14, text)
    return made
