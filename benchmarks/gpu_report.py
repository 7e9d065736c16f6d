"""What `gpu.py` makes of its runs: ratios, goals, and the table for `docs/gpu.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from quiet import marked
from report import MIB, Run, Spread, peak_bytes, step_seconds, time_ratio

#: How products and convolutions take float32 factors, and what a table calls that.
PRECISIONS = {"float32": "true float32", "tf32": "TF32"}
HEAD = (
    "net, batch",
    "peer",
    "ms a step: ours",
    "peer's",
    "speed, peer's time / ours (spread)",
    "peak MiB: ours",
    "peer's",
    "ours / peer's",
    "first loss: ours",
    "peer's",
    "goals",
)

#: Nets whose step is short for the host: launches are what it costs.
SMALL = ("mlp", "lenet")
#: Times eager PyTorch that the small ones shall be as fast; times the fastest way of PyTorch that ResNet-50 shall be;
#: part of eager PyTorch's memory that a step may take.
SMALL_SPEED, RESNET_SPEED, MEMORY = 2.0, 1.0, 0.75
#: What losses before the first update may differ by, relatively: the order of sums, and with TF32 the rounding.
FIRST_LOSS = {False: 1e-4, True: 1e-2}

Peers = Mapping[str, Sequence[Run] | str]


class Goal(NamedTuple):
    """What was wanted and what came out."""

    text: str
    received: float
    met: bool

    def __str__(self) -> str:
        return f"{self.text}: {self.received:.2f}, {'met' if self.met else '**missed**'}"


def speed(ours: Sequence[Run], theirs: Sequence[Run]) -> Spread:
    """Their step by ours, round by round."""
    return time_ratio(theirs, ours)


def goals(net: str, ours: Sequence[Run], peers: Peers) -> dict[str, list[Goal]]:
    """The goals by the peer that they are measured at: eager PyTorch, for ResNet-50 its fastest way."""
    ran = {peer: runs for peer, runs in peers.items() if not isinstance(runs, str)}
    found: dict[str, list[Goal]] = {peer: [] for peer in ran}
    if "torch" in ran:
        ratio = peak_bytes(ours) / peak_bytes(ran["torch"])
        found["torch"].append(Goal(f"memory at most {MEMORY}", ratio, ratio <= MEMORY))
        if net in SMALL:
            eager = speed(ours, ran["torch"]).median
            found["torch"].append(Goal(f"speed at least {SMALL_SPEED:g}", eager, eager >= SMALL_SPEED))
    if net == "resnet50" and ran:
        best = min(ran, key=lambda peer: step_seconds(ran[peer]))
        reached = speed(ours, ran[best]).median
        found[best].append(Goal(f"speed at least {RESNET_SPEED:g} of the fastest", reached, reached >= RESNET_SPEED))
    return found


def losses_differ(ours: Sequence[Run], theirs: Sequence[Run] | str, tf32: bool) -> bool:
    """Whether the losses before the first update, of equal weights, are not equal to rounding."""
    if isinstance(theirs, str):
        return False
    a, b = ours[0]["losses"][0], theirs[0]["losses"][0]
    return not abs(a - b) <= FIRST_LOSS[tf32] * max(abs(a), abs(b))


def heading() -> str:
    """The first two lines of the table."""
    return f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}"


def rows(result: Mapping[str, Any]) -> list[str]:
    """The lines of one net, batch and precision; one for each peer, and one of ours alone where there are none."""
    ours, peers, tf32 = result["ours"], result["peers"] or {"": ""}, result["tf32"]
    wanted = goals(result["net"], ours, peers)
    title = f"{result['net']}, {result['batch']}, {PRECISIONS['tf32' if tf32 else 'float32']}"
    return [_row(title, peer, ours, theirs, wanted.get(peer, []), tf32) for peer, theirs in peers.items()]


def _row(
    title: str, peer: str, ours: Sequence[Run], theirs: Sequence[Run] | str, wanted: Sequence[Goal], tf32: bool
) -> str:
    def both(text: Any) -> list[str]:
        return [text(ours), "" if isinstance(theirs, str) else text(theirs)]

    cells = [title, peer, *both(lambda runs: f"{step_seconds(runs) * 1e3:.3f}")]
    cells.append(theirs if isinstance(theirs, str) else str(speed(ours, theirs)))
    cells += both(lambda runs: f"{peak_bytes(runs) / MIB:.0f}")
    cells.append("" if isinstance(theirs, str) else f"{peak_bytes(ours) / peak_bytes(theirs):.2f}")
    cells += both(lambda runs: f"{runs[0]['losses'][0]:.6f}")
    if losses_differ(ours, theirs, tf32):
        cells[-1] = f"**{cells[-1]}**"
    cells.append("; ".join(map(str, wanted)))
    return f"| {' | '.join(cells)} |"


def markdown(where: Mapping[str, Any], options: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> str:
    """All of it, for `docs/gpu.md`: where and when it was measured, how, and the table."""
    how = (
        "true float32: every factor has 24 bits, on both sides; TF32: products and convolutions round factors to 11, "
        "on both, as PyTorch's convolutions do by default. "
        f"{options['optimizer']}, medians of {options['rounds']} rounds of {options['warmup']} + {options['steps']} "
        "steps in processes in turn, by CUDA events; the batch lies on the GPU."
    )
    versions = "; ".join(f"{name} {version}" for name, version in where["versions"].items())
    table = [heading()]
    for result in results:
        why = result.get("trouble", "")
        table += [marked(line, why) if why else line for line in rows(result)]
    return "\n".join(
        [f"{where['date']}, {where['gpu']}, driver {where['driver']}. {how}", "", versions, "", *table, ""]
    )
