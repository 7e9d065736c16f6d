"""Budgets from the free total to the least, planned and not run: each kept, never more time for more bytes, the least
stated to `CLOSE`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from report import MIB

from .report import heading, line

#: How near the least that is stated lies to what is refused, and by how much an estimate may rise: rounding alone.
CLOSE, ROUNDING = 0.03, 1e-9
HEAD = ("budget MiB", "planned MiB", "arena MiB, of at most", "estimated", "repeats", "")


def table(told: dict[str, Any]) -> list[str]:
    """What was planned in each budget, and what is wrong with it."""
    lines, before = heading(HEAD), None
    for row in told["rows"]:
        wrong = ", ".join(_wrong(row, before))
        cells = [f"{row['budget'] / MIB:.1f}", "", "", "", ""]
        if "why" not in row:
            room = f"{row['arena'] / MIB:.1f}, {(row['budget'] - row['held']) / MIB:.1f}"
            estimated = f"{row['estimated']:+.2%}"
            cells = [cells[0], f"{row['planned'] / MIB:.1f}", room, estimated, str(row["recomputed"])]
            before = row
        lines.append(line([*cells, f"**{wrong}**" if wrong else ""]))
    return lines


def breaches(told: dict[str, Any]) -> list[str]:
    """All that is wrong, in words."""
    rows = told["rows"]
    found = [f"{row['budget'] / MIB:.1f} MiB: {what}" for row in rows[:1] for what in _wrong(row, None)]
    for before, row in pairwise(rows):
        found += [f"{row['budget'] / MIB:.1f} MiB: {what}" for what in _wrong(row, before)]
    return found + _least(told)


def _wrong(row: dict[str, Any], before: dict[str, Any] | None) -> list[str]:
    """Of a budget; before: the plan of the next larger one."""
    if "why" in row:
        return [f"refused: {row['why']}"]
    found = []
    if row["planned"] > row["budget"] or row["arena"] > row["budget"] - row["held"]:
        found.append(f"takes {row['planned'] / MIB:.1f} MiB")
    if before is not None and "why" not in before and row["estimated"] < before["estimated"] - ROUNDING:
        found.append(f"faster by {before['estimated'] - row['estimated']:.2%} than with more bytes")
    return found


def _least(told: dict[str, Any]) -> list[str]:
    """What is wrong with the least."""
    found, least = [], told["least"]
    if told["below"] is None:
        found.append(f"the least is stated as {least / MIB:.1f} MiB, but {1 - CLOSE:.2f} of it is planned")
    elif told["below"] != least:
        found.append(f"the least is stated as {least / MIB:.1f} MiB, and as {told['below'] / MIB:.1f} below it")
    return found


def summary(told: dict[str, Any], breaches: Sequence[str]) -> str:
    """In a line."""
    count, least = len(told["rows"]), told["least"] / MIB
    refused = "refused" if told["below"] is not None else "planned"
    words = f"{count} budgets from {told['free'] / MIB:.1f} MiB to the least, {least:.1f}"
    words += f"; {1 - CLOSE:.2f} of it is {refused}; {len(breaches)} breaches"
    return "\n- ".join([words, *breaches])
