"""What `budget.py` makes of its runs: ratios, the table and the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from peers.budget_task import BudgetTask
from report import MIB, Run, Spread, spread

HEAD = (
    "net, batch",
    "system",
    "setting",
    "planned MiB",
    "process MiB over import",
    "process - planned",
    "ms a step",
    "time / our free plan's (spread)",
    "estimated",
    "lower bound",
)
#: By system: what the legend calls it, and how it is drawn.
STYLES = {
    "singa_lite": ("singa_lite, memory_budget", "o-"),
    "torch": ("PyTorch, the usual loop", "s"),
    "torch-segments": ("PyTorch, checkpoint in segments", "^--"),
    "torch-compile": ("PyTorch, compiled, activation_memory_budget", "v--"),
}


@dataclass
class Case:
    """A setting of a system on a net. point: of our plans; runs: one a round; why: why there are none or no more."""

    task: BudgetTask
    setting: str
    point: dict[str, Any] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    why: str = ""


def key(case: Case) -> dict[str, Any]:
    """What a case is, for JSON."""
    return {"task": asdict(case.task), "setting": case.setting, "point": case.point, "why": case.why}


def steps_of(run: Run) -> list[float]:
    """Seconds of the timed steps."""
    return list(run["seconds"])


def step_seconds(case: Case) -> float:
    """The median over the rounds of each round's median step."""
    return median(median(steps_of(run)) for run in case.runs)


def time_ratio(case: Case, free: Case) -> Spread:
    """Its step by our free plan's, round by round."""
    return spread([median(steps_of(a)) / median(steps_of(b)) for a, b in zip(case.runs, free.runs, strict=False)])


def process_bytes(case: Case) -> float:
    """The median over the rounds of the process's peak; of a compiled peer of its timed steps alone."""
    return median(run["steps_peak" if case.task.way == "torch-compile" else "peak"] for run in case.runs)


def heading() -> str:
    """The first two lines of the table."""
    return f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}"


def rows(cases: Sequence[Case]) -> list[str]:
    """The lines of a net. The first case is our free plan."""
    return [f"| {' | '.join(_cells(case, cases[0]))} |" for case in cases]


def _cells(case: Case, free: Case) -> list[str]:
    point, task = case.point, case.task
    planned = f"{point['planned'] / MIB:.0f}" if point else ""
    measured = ["", "", "", case.why]
    if case.runs:
        above = f"{(process_bytes(case) - point['planned']) / MIB:.0f}" if point else ""
        step, ratio = f"{step_seconds(case) * 1e3:.0f}", str(time_ratio(case, free))
        measured = [f"{process_bytes(case) / MIB:.0f}", above, step, f"{ratio} {case.why}".strip()]
    bound = point.get("bound")
    told = [f"{1 + point['estimated']:.3f}" if point else "", f"{1 + bound:.3f}" if bound is not None else ""]
    return [f"{task.net}, {task.batch}", task.way, case.setting, planned, *measured, *told]


def picture(nets: Sequence[Sequence[Case]], path: str) -> None:
    """Draw bytes against time, a plot a net and a curve a system, into a file. ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("agg")  # into files; no screen is needed
    import matplotlib.pyplot as plt

    across = min(2, len(nets))
    down = -(-len(nets) // across)
    figure, axes = plt.subplots(down, across, figsize=(6 * across, 4 * down), squeeze=False, layout="constrained")
    for axis, cases in zip(axes.flat, nets, strict=False):
        _draw(axis, cases)
    for axis in list(axes.flat)[len(nets) :]:
        axis.remove()
    axes[0][0].legend(fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw(axis: Any, cases: Sequence[Case]) -> None:
    for way, (label, style) in STYLES.items():
        ran = [case for case in cases if case.task.way == way and case.runs]
        points = sorted((process_bytes(c) / MIB, time_ratio(c, cases[0]).median) for c in ran)
        if points:
            axis.plot(*zip(*points, strict=True), style, label=label, markersize=5)
    bounds = [(c.point["planned"] / MIB, 1 + c.point["bound"]) for c in cases if c.point.get("bound") is not None]
    if bounds:
        axis.plot(*zip(*sorted(bounds), strict=True), ":", color="gray", label="no schedule is below (planned bytes)")
    axis.set_title(f"{cases[0].task.net}, batch {cases[0].task.batch}")
    axis.set_xlabel("process over import, MiB")
    axis.set_ylabel("time of a step / our free plan's")
    axis.set_ylim(bottom=0)
    axis.set_xlim(left=0)
    axis.grid(alpha=0.3)
