"""The tables of `budget.py`: all rows, memory at equal times beside what is wanted, and each peer's row beside ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from report import MIB

from .cases import Case
from .figures import Curve, Figure, beaten_by, bytes_at, curve, time_at

ROWS = (
    "net, batch", "system", "setting", "planned MiB", "process MiB over import and batch", "process - planned",
    "ms a step", "time / our free plan's (spread)", "rounds that count", "estimated", "lower bound",
)  # fmt: skip
#: Measured slowdowns at which memory is told, and what is wanted there, MiB over import; the last is the least.
SLOWDOWNS = (0.0, 0.05, 0.10, 0.15)
WANTED = {
    ("resnet50", 16): (1240, 750, 620, 520, 430),
    ("mobilenet_v2", 32): (1650, 1000, 760, 480, 420),
    ("unet", 8): (450, 250, 220, 200, 180),
    ("densenet121", 16): (1010, 760, 640, 560, 480),
}
VERDICTS = (
    "peer's setting", "MiB", "time", "ours at its time, MiB", "ours at its memory, time",
    "less memory and less time", "by our measured point",
)  # fmt: skip


def heading(cells: Sequence[str]) -> list[str]:
    """The first two lines of a table."""
    return [line(cells), f"|{'---|' * len(cells)}"]


def line(cells: Sequence[str]) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def row(case: Case, found: Figure | None) -> str:
    """All that is known of a case."""
    point, task = case.point, case.task
    bound = point.get("bound")
    planned = f"{point['planned'] / MIB:.0f}" if point else ""
    told = [f"{1 + point['estimated']:.3f}" if point else "", f"{1 + bound:.3f}" if bound is not None else ""]
    return line([f"{task.net}, {task.batch}", task.way, case.setting, planned, *_measured(case, found), *told])


def _measured(case: Case, found: Figure | None) -> list[str]:
    if found is None:
        return ["", "", "", case.why or ("no round was quiet" if case.turns else "not measured"), ""]
    above = f"{(found.nbytes - case.point['planned']) / MIB:.0f}" if case.point else ""
    ratio = " ".join(filter(None, [str(found.ratio), case.why]))
    return [f"{found.nbytes / MIB:.0f}", above, f"{found.seconds * 1e3:.0f}", ratio, f"{found.rounds} of {found.tried}"]


def at_times(cases: Sequence[Case], found: Sequence[Figure]) -> list[str]:
    """Process MiB at equal measured times: wanted, ours between measured points, and the least of the peer's rows."""
    task, points = cases[0].task, curve(found)
    heads = ["net, batch", "", *(f"+{slowdown:.0%}" for slowdown in SLOWDOWNS), "least"]
    lines = heading(heads)
    wanted = WANTED.get((task.net, task.batch)) if not task.image else None
    if wanted:
        lines.append(line([f"{task.net}, {task.batch}", "wanted", *(f"{mib:,}" for mib in wanted)]))
    ours = [_mib(bytes_at(points, 1 + slowdown)) for slowdown in SLOWDOWNS]
    lines.append(line([f"{task.net}, {task.batch}", "ours", *ours, _least(found)]))
    peers = [one for one in found if not one.case.ours]
    if peers:
        told = [_fewest([one for one in peers if one.ratio.median <= 1 + slowdown]) for slowdown in SLOWDOWNS]
        lines.append(line([f"{task.net}, {task.batch}", "PyTorch, its best row", *told, _fewest(peers)]))
    return lines


def _least(found: Sequence[Figure]) -> str:
    least = min((one for one in found if one.case.ours), key=lambda one: one.nbytes, default=None)
    return f"{_mib(least.nbytes)} at {_percent(least.ratio.median)}" if least else ""


def _fewest(peers: Sequence[Figure]) -> str:
    if not peers:
        return "none is so fast"
    least = min(peers, key=lambda one: one.nbytes)
    return f"{_mib(least.nbytes)} ({least.case.setting}, {_percent(least.ratio.median)})"


def verdicts(found: Sequence[Figure]) -> list[str]:
    """Of each peer's row: whether ours takes less memory at equal time and less time at equal memory."""
    points = curve(found)
    return [*heading(VERDICTS), *(_verdict(one, found, points) for one in found if not one.case.ours)]


def _verdict(peer: Figure, found: Sequence[Figure], points: Curve) -> str:
    nbytes, ratio = bytes_at(points, peer.ratio.median), time_at(points, peer.nbytes)
    less = nbytes is not None and nbytes < peer.nbytes, ratio is not None and ratio < peer.ratio.median
    said = "yes" if all(less) else "**no**" if not any(less) else "**memory only**" if less[0] else "**time only**"
    by = beaten_by(peer, found)
    return line([
        peer.case.setting, _mib(peer.nbytes), _percent(peer.ratio.median),
        _against(nbytes, peer.nbytes, _mib) if nbytes is not None else "none of ours is so fast",
        _against(ratio, peer.ratio.median, _percent) if ratio is not None else "none of ours is so small",
        said, f"{by.case.setting}: {_mib(by.nbytes)}, {_percent(by.ratio.median)}" if by else "none",
    ])  # fmt: skip


def _against(ours: float, theirs: float, text: Callable[[float], str]) -> str:
    return f"{text(ours)} ({ours / theirs - 1:+.0%})"


def _mib(nbytes: float | None) -> str:
    return "none is so fast" if nbytes is None else f"{nbytes / MIB:,.0f}"


def _percent(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"


def summary(nets: Sequence[Sequence[Figure]]) -> str:
    """How many of the peer's rows are beaten, in words."""
    peers = [(one, found) for found in nets for one in found if not one.case.ours]
    beaten = sum(beaten_by(one, found) is not None for one, found in peers)
    words = "are beaten by a measured point of ours, in at most their bytes and at most their time"
    return f"{beaten} of {len(peers)} rows of the peer {words}" if peers else "no row of the peer was measured"
