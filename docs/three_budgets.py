"""Draws docs/three_budgets.svg: README's table of ResNet-50 within budgets, memory and time as bars.

python docs/three_budgets.py writes it. tests/test_readme.py compares it with the table.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "three_budgets.svg"
OURS = "singa_lite, "
#: Widths of the labels, and of the longest bars of memory and of time.
LABELS, MEMORY, TIME, ROW = 262, 260, 110, 30

STYLE = """\
    text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1f2328; }
    .soft { fill: #59636e; }
    .page { fill: #ffffff; }
    .ours { fill: #0072b2; }
    .peer { fill: #a0a7ae; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .soft { fill: #9da7b1; }
      .page { fill: #0d1117; }
      .ours { fill: #56b4e9; }
      .peer { fill: #6e7781; }
    }"""


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


def label(case: Case) -> str:
    """Returns the words before a bar."""
    name = case.name.removeprefix(OURS).replace('memory_budget="', "a budget of ").replace('"', "")
    return name.replace(", activation_memory_budget=", ", its budget ")


def drawing(found: list[Case]) -> str:
    """Returns the SVG."""
    largest, longest = max(case.mebibytes for case in found), max(case.time for case in found)
    begin, times = LABELS + 8, LABELS + 8 + MEMORY + 70
    width, height = times + TIME + 46, 66 + ROW * len(found)
    parts = [
        '<text x="8" y="22" font-size="15" font-weight="600">ResNet-50, batch 16: one net, three budgets</text>',
        f'<text x="{begin}" y="46" font-size="12" class="soft">memory of the process, MiB</text>',
        f'<text x="{times}" y="46" font-size="12" class="soft">time of a step</text>',
    ]
    for number, case in enumerate(found):
        top, kind = 56 + ROW * number, "ours" if case.name.startswith(OURS) else "peer"
        for x, length, text in (
            (begin, MEMORY * case.mebibytes / largest, f"{case.mebibytes:,}"),
            (times, TIME * case.time / longest, f"{case.time:.2f}"),
        ):
            parts.append(f'<rect x="{x}" y="{top}" width="{length:.1f}" height="20" rx="3" class="{kind}"/>')
            parts.append(f'<text x="{x + length + 6:.1f}" y="{top + 15}" font-size="13">{text}</text>')
        parts.append(f'<text x="{LABELS}" y="{top + 15}" font-size="13" text-anchor="end">{label(case)}</text>')
    body = "\n".join(f"  {part}" for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img">\n  <title>One net, three budgets</title>\n  <style>\n{STYLE}\n  </style>\n'
        f'  <rect width="{width}" height="{height}" class="page"/>\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    FILE.write_text(drawing(cases((ROOT / "README.md").read_text(encoding="utf-8"))), encoding="utf-8")
