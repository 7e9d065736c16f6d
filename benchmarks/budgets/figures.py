"""What the turns say: time and bytes of each case beside our free plan, our curve, and whether it beats a peer's row.

Time is a ratio to our free plan's turn of the same round; of these the median. A round counts if our free plan's turn
was quiet and is near its fastest, a turn if it was quiet. Between measured points the curve is straight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from quiet import SPREAD
from report import Spread, spread

from .cases import Case


@dataclass(frozen=True)
class Figure:
    """Of a case: ratio of its step to our free plan's; seconds of a step; bytes of its process over import.

    rounds: how many count, of `tried`. disturbed: why those that count should not, if they were wanted anyway.
    """

    case: Case
    ratio: Spread
    seconds: float
    nbytes: float
    rounds: int
    tried: int
    disturbed: str = ""


#: Bytes and ratio of our points that no other beats, by rising bytes.
Curve = list[tuple[float, float]]


def figures(cases: Sequence[Case], anyway: bool) -> list[Figure]:
    """Of all cases with rounds that count; the first is our free plan. anyway: disturbed turns count too."""
    free = _by_round(cases[0], anyway)
    if free and not anyway:
        fastest = min(free.values())
        free = {name: seconds for name, seconds in free.items() if seconds <= (1 + SPREAD) * fastest}
    return [found for case in cases if (found := _figure(case, free, anyway)) is not None]


def _by_round(case: Case, anyway: bool) -> dict[str, float]:
    """The median step of the last turn that counts of each round."""
    return {turn["round"]: median(turn["seconds"]) for turn in case.turns if anyway or not turn["why"]}


def _figure(case: Case, free: dict[str, float], anyway: bool) -> Figure | None:
    own = _by_round(case, anyway)
    rounds = [name for name in own if name in free]
    if not rounds:
        return None
    why = next((turn["why"] for turn in case.turns if turn["why"]), "") if anyway else ""
    ratios = spread([own[name] / free[name] for name in rounds])
    seconds, tried = median(own[name] for name in rounds), len({turn["round"] for turn in case.turns})
    return Figure(case, ratios, seconds, process_bytes(case), len(rounds), tried, why)


def process_bytes(case: Case) -> float:
    """The process's peak; of a compiled peer of its timed steps alone, without its compiler's work."""
    return float(max(turn["steps_peak" if case.task.way == "torch-compile" else "peak"] for turn in case.turns))


def curve(found: Sequence[Figure]) -> Curve:
    """Ours."""
    points: Curve = []
    for nbytes, ratio in sorted((one.nbytes, one.ratio.median) for one in found if one.case.ours):
        if not points or ratio < points[-1][1]:
            points.append((nbytes, ratio))
    return points


def bytes_at(points: Curve, ratio: float) -> float | None:
    """The least bytes with which a step takes at most so long; None where none is so fast."""
    if not points or ratio < points[-1][1]:
        return None
    for (low, slow), (high, fast) in pairwise(points):
        if fast <= ratio < slow:
            return low + (high - low) * (slow - ratio) / (slow - fast)
    return points[0][0]


def time_at(points: Curve, nbytes: float) -> float | None:
    """How long a step takes, at the least, within so many bytes; None where that is too little."""
    if not points or nbytes < points[0][0]:
        return None
    for (low, slow), (high, fast) in pairwise(points):
        if low <= nbytes < high:
            return slow - (slow - fast) * (nbytes - low) / (high - low)
    return points[-1][1]


def beaten_by(peer: Figure, found: Sequence[Figure]) -> Figure | None:
    """A measured point of ours that takes at most its time and at most its bytes: the fastest of these."""
    better = (one for one in found if one.case.ours)
    better = (one for one in better if one.nbytes <= peer.nbytes and one.ratio.median <= peer.ratio.median)
    return min(better, key=lambda one: one.ratio.median, default=None)
