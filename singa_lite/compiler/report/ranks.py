"""Layout of a drawn net: boxes in rows from its inputs down, lines that pass rows in gaps of their own.

The method of Sugiyama, Tagawa and Toda (IEEE Trans. SMC 11, 1981): rows by the longest way from an input, each row in
the order of the means of what feeds it, and places that are moved towards the means of their neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: How often rows are put into order, and boxes are moved towards their neighbours.
_SWEEPS = 8


class Passing(NamedTuple):
    """A line's place in a row that it passes. source, target: between which boxes; row: which one."""

    source: str
    target: str
    row: int


#: What stands in a row: a box, or a line that passes.
Entry = str | Passing


def rows_of(sources: Mapping[str, Sequence[str]]) -> list[list[Entry]]:
    """The entries of each row. sources: what feeds each box, all of them above it in the mapping's order."""
    rank: dict[str, int] = {}
    for name, feeding in sources.items():
        rank[name] = 1 + max((rank[source] for source in feeding), default=-1)
    rows: list[list[Entry]] = [[] for _ in range(1 + max(rank.values(), default=-1))]
    for name in sources:
        rows[rank[name]].append(name)
    for name, feeding in sources.items():
        for source in dict.fromkeys(feeding):
            for number in range(rank[source] + 1, rank[name]):
                rows[number].append(Passing(source, name, number))
    above = feeders(rows, sources)
    for row, before in zip(rows[1:], rows, strict=False):
        order = {entry: number for number, entry in enumerate(before)}
        row.sort(key=lambda entry: _mean([order[other] for other in above[entry] if other in order]))
    return rows


def feeders(rows: Sequence[Sequence[Entry]], sources: Mapping[str, Sequence[str]]) -> dict[Entry, list[Entry]]:
    """For each entry those in the row above that a line comes from."""
    found: dict[Entry, list[Entry]] = {}
    for number, row in enumerate(rows):
        there = set(rows[number - 1]) if number else set()
        for entry in row:
            wanted = sources[entry] if isinstance(entry, str) else [entry.source]
            target = entry if isinstance(entry, str) else entry.target
            passing = [Passing(source, target, number - 1) for source in dict.fromkeys(wanted)]
            found[entry] = [p if p in there else p.source for p in passing]
    return found


def centers(
    rows: Sequence[Sequence[Entry]], above: Mapping[Entry, Sequence[Entry]], widths: Mapping[Entry, float], gap: float
) -> dict[Entry, float]:
    """The middle of each entry, from 0 on; none lies over another of its row."""
    at: dict[Entry, float] = {}
    for row in rows:
        at |= _spread(row, [0.0] * len(row), widths, gap)
    below: dict[Entry, list[Entry]] = {}
    for entry, others in above.items():
        for other in others:
            below.setdefault(other, []).append(entry)
    for sweep in range(_SWEEPS):
        near, order = (above, rows) if sweep % 2 == 0 else (below, list(reversed(rows)))
        for row in order:
            wished = [_mean([at[other] for other in near.get(entry, ())], at[entry]) for entry in row]
            at |= _spread(row, wished, widths, gap)
    left = min((at[entry] - widths[entry] / 2 for entry in at), default=0.0)
    return {entry: place - left for entry, place in at.items()}


def _spread(
    row: Sequence[Entry], wished: Sequence[float], widths: Mapping[Entry, float], gap: float
) -> dict[Entry, float]:
    """Places in this order, as near to the wishes as they can be with the row's mean kept."""
    placed: list[float] = []
    for number, (entry, wish) in enumerate(zip(row, wished, strict=True)):
        before = row[number - 1]
        least = placed[-1] + (widths[before] + widths[entry]) / 2 + gap if placed else wish
        placed.append(max(wish, least))
    shift = _mean([wish - place for wish, place in zip(wished, placed, strict=True)])
    return {entry: place + shift for entry, place in zip(row, placed, strict=True)}


def _mean(values: Sequence[float], otherwise: float = 0.0) -> float:
    return sum(values) / len(values) if values else otherwise
