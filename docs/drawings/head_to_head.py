"""Peaks of ours and of PyTorch's own budgets over the budget that was asked for, a panel a net."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from drawings.svg import Drawing

FIGURES = Path(__file__).resolve().parents[1] / "figures" / "head_to_head.json"
#: By words of a point's name: what the legend says, and the color.
SIDES = {
    "ours": ("singa_lite, memory_budget", "blue"),
    "compiled": ("PyTorch, compiled, its budget", "pink"),
    "checkpoints": ("PyTorch, checkpoint_sequential", "orange"),
}
#: Where a panel's axes begin, their lengths, what lies between panels, and the height of the words above.
LEFT, WIDE, HIGH, APART, HEAD = 58, 350, 96, 50, 88


#: (place between the free run, 0, and the least budget, 1; MiB of the process).
Point = tuple[float, float]


def points() -> dict[str, dict[str, list[Point]]]:
    """Returns the points by net and side."""
    rows = json.loads(FIGURES.read_text(encoding="utf-8"))["tables"]["points"]
    headings = [heading for heading, _ in rows["columns"]]
    found: dict[str, dict[str, list[Point]]] = {}
    for row in rows["rows"]:
        net, words = row[0].split(", ", 1)
        side = re.split(r"[ ,]", words)[0]
        found.setdefault(net, {}).setdefault(side, []).append(
            (row[headings.index("place")], row[headings.index("MiB")])
        )
    return found


def drawing() -> Drawing:
    """Returns the panels from top to bottom."""
    nets = points()
    made = Drawing(
        "Peaks within budgets",
        "Process memory of three nets: ours within budgets, PyTorch's compiled within its own, and its checkpoints.",
        HEAD + (HIGH + APART) * len(nets),
    )
    made.label(12, 22, "Less budget, less memory?", "strong", size=15)
    for number, (words, color) in enumerate(SIDES.values()):
        made.frame(12, 32 + 17 * number, 12, 12, color)
        made.label(30, 42 + 17 * number, words, size=12)
    for number, (net, sides) in enumerate(nets.items()):
        _panel(made, HEAD + 22 + (HIGH + APART) * number, net, sides)
    return made


def _panel(made: Drawing, top: float, net: str, sides: dict[str, list[Point]]) -> None:
    """Adds a net's panel: budgets from the free run at the left to the least, MiB of the process upwards."""
    bottom = top + HIGH
    most = max(size for side in sides.values() for _, size in side)
    step = 100 if most < 450 else 200
    highest = step * -(-most // step)
    made.label(12, top - 8, f"{net}: MiB of the process", "strong", size=12)
    for mark in range(0, int(highest) + 1, step):
        height = round(bottom - HIGH * mark / highest, 1)
        made.line([(LEFT, height), (LEFT + WIDE, height)], "guide")
        made.label(LEFT - 6, height + 4, f"{mark}", "soft", "end", size=11)
    made.label(LEFT, bottom + 16, "no budget", "soft", size=11)
    made.label(LEFT + WIDE, bottom + 16, "the least", "soft", "end", size=11)
    for side, found in sides.items():
        places = [(round(LEFT + WIDE * x, 1), round(bottom - HIGH * size / highest, 1)) for x, size in found]
        _curve(made, places, SIDES[side][1])


def _curve(made: Drawing, places: Sequence[tuple[float, float]], color: str) -> None:
    made.line(places, color)
    for x, y in places:
        made.dot(x, y, color)
