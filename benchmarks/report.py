"""What `compare.py` makes of its runs: ratios, agreement, and the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from peers.process import WITHIN

MIB = 2**20
HEAD = (
    "net, batch",
    "peer",
    "ms, fastest step: ours",
    "ms, fastest step: peer's",
    "fastest: ours / peer's",
    "ms, median: ours",
    "ms, median: peer's",
    "median: ours / peer's (spread)",
    "peak MiB: ours",
    "peak MiB: peer's",
    "peak: ours / peer's",
    "last loss: ours",
    "last loss: peer's",
    "largest difference, at step (allowed)",
    "of SGEMM peak: ours",
    "of SGEMM peak: peer's",
)

#: What a measured process prints: losses of all steps, seconds of those after the warm-up, peak bytes, versions.
Run = dict[str, Any]
#: The runs of each peer, or why there are none.
Peers = Mapping[str, Sequence[Run] | str]


class Spread(NamedTuple):
    """A median and what it lies between."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}..{self.high:.2f})"


def spread(values: Sequence[float]) -> Spread:
    """Of at least one value."""
    return Spread(median(values), min(values), max(values))


def step_seconds(runs: Sequence[Run]) -> float:
    """The median over the rounds of each round's median step."""
    return median(median(run["seconds"]) for run in runs)


def fastest_seconds(runs: Sequence[Run]) -> float:
    """The fastest step of all rounds: the one that other work disturbed least."""
    return min(round_minima(runs))


def round_minima(runs: Sequence[Run]) -> list[float]:
    """The fastest step of each round."""
    return [min(run["seconds"]) for run in runs]


def time_ratio(ours: Sequence[Run], theirs: Sequence[Run]) -> Spread:
    """Our step by theirs, round by round: what slows the machine for minutes slows both sides of a round."""
    return spread([median(a["seconds"]) / median(b["seconds"]) for a, b in zip(ours, theirs, strict=True)])


def peak_bytes(runs: Sequence[Run]) -> float:
    """The median over the rounds."""
    return median(run["peak"] for run in runs)


def best(peers: Peers) -> dict[str, str]:
    """{peer: in what it is the best of the peers that ran}: by its fastest step, by its median, or by both."""
    ran = {peer: runs for peer, runs in peers.items() if not isinstance(runs, str) and not peer.startswith(WITHIN)}
    if not ran:
        return {}
    fastest = min(ran, key=lambda peer: fastest_seconds(ran[peer]))
    usual = min(ran, key=lambda peer: step_seconds(ran[peer]))
    return {fastest: "best peer"} if fastest == usual else {fastest: "best fastest step", usual: "best median"}


def summary(title: str, ours: Sequence[Run], peers: Peers) -> str:
    """How our step compares with that of the peer that is best, in words; "" if no peer ran."""
    parts = []
    for peer, what in best(peers).items():
        runs: Any = peers[peer]
        if "median" not in what:
            parts.append(f"{fastest_seconds(ours) / fastest_seconds(runs):.2f} of {peer}'s fastest step")
        if "fastest" not in what:
            parts.append(f"{time_ratio(ours, runs).median:.2f} of {peer}'s median")
    return f"{title}: {', '.join(parts)}" if parts else ""


def heading() -> str:
    """The first two lines of the table."""
    return f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}"


def row(title: str, peer: str, ours: Sequence[Run], theirs: Sequence[Run] | str, checked: Any, gflops: float) -> str:
    """A line of the table.

    theirs: the peer's runs, or why there are none. checked: the Agreement of the rounds that is worst. gflops: the
    SGEMM peak, of which the fastest steps are a part.
    """
    known = not isinstance(theirs, str)
    cells = [title, peer, *_pair(ours, theirs, lambda runs: f"{fastest_seconds(runs) * 1e3:.1f}")]
    cells.append(f"{fastest_seconds(ours) / fastest_seconds(theirs):.2f}" if known else theirs)
    cells += _pair(ours, theirs, lambda runs: f"{step_seconds(runs) * 1e3:.1f}")
    cells.append(str(time_ratio(ours, theirs)) if known else "")
    cells += _pair(ours, theirs, lambda runs: f"{peak_bytes(runs) / MIB:.0f}")
    cells.append(f"{peak_bytes(ours) / peak_bytes(theirs):.2f}" if known else "")
    cells += _pair(ours, theirs, lambda runs: f"{runs[0]['losses'][-1]:.6f}")
    cells.append(_verdict(checked) if known else "")
    work = ours[0]["flops"] / 1e9 / gflops
    cells += _pair(ours, theirs, lambda runs: f"{work / fastest_seconds(runs):.0%}")
    return f"| {' | '.join(cells)} |"


def _pair(ours: Sequence[Run], theirs: Sequence[Run] | str, text: Any) -> list[str]:
    return [text(ours), "" if isinstance(theirs, str) else text(theirs)]


def _verdict(checked: Any) -> str:
    numbers = f"{checked.difference:.1e} at {checked.step + 1} ({checked.allowed:.1e})"
    return numbers if checked.agrees else f"**{numbers}: {checked.reason}**"
