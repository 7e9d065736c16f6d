"""A step of the smallest GPT-2 beside PyTorch's: fused attention, its compiler, one kernel for all of AdamW."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median

from first_run import torch_side, training
from first_run.item import Context, Item, Skipped, Values, written

#: Net, batch, measured steps; a small one for the stand-in. Rounds, in each of which each side has its turn.
MEASURED, TINY_MEASURED, ROUNDS = ("gpt2_small_1024", 8, 30), ("gpt_11m", 3, 2), 2
#: The budget as a share of the bytes that our free plan takes: about half of those of PyTorch's compiled step.
SHARE, TINY_SHARE = 0.6, 1.0
#: PyTorch's ways; of the stand-in the first alone, as a compiler takes a minute.
WAYS = ("bfloat16", "bfloat16-compile", "bfloat16-compile-default")
#: Ours, and whether each run has equal bits: on a Hopper another engine is the derivative of attention then. The last
#: one keeps a budget.
OURS = {"ours": True, "ours-varying": False, "ours-budget": False}


def items(tiny: bool) -> Iterator[Item]:
    """The sides in turn, then our ratios to each of PyTorch's ways."""
    name, n, steps = TINY_MEASURED if tiny else MEASURED
    share = TINY_SHARE if tiny else SHARE
    given: Values = {"name": name, "n": n, "steps": steps, "rule": "adamw"}
    for turn in range(1, ROUNDS + 1):
        for side, deterministic in OURS.items():
            options = {"deterministic": deterministic, "budget_share": share if side == "ours-budget" else None}
            run = partial(training.measure, precision="bfloat16", **options, **given)
            yield Item(f"gpt/{turn}/{side}", 0.2, run)
        for way in WAYS[:1] if tiny else WAYS:
            beside = partial(torch_side.measure, way=way, **given)
            yield Item(f"gpt/{turn}/torch-{way}", 0.3, beside, "torch")
    yield Item("gpt/ratios", 0.02, ratios)


def ratios(context: Context) -> Values:
    """Our least time and peak over those of each of PyTorch's ways."""
    found: dict[str, list[Values]] = {}
    for line in written(context.out / "results.jsonl"):
        kind, _, rest = line["item"].partition("/")
        if kind == "gpt" and line.get("status") == "ok" and "milliseconds" in line["values"]:
            found.setdefault(rest.partition("/")[2], []).append(line["values"])
    least = {side: _least(measured) for side, measured in found.items()}
    theirs = least.keys() - OURS.keys()
    if len(theirs) in (0, len(least)):
        raise Skipped(f"wants a step of both sides, found {sorted(found)}")
    return {
        f"{name}, {ours} / {way}": least[ours][name] / value
        for ours in OURS
        if ours in least
        for way in sorted(theirs)
        for name, value in least[way].items()
    }


def _least(measured: list[Values]) -> dict[str, float]:
    """Of all rounds. PyTorch tells its peak on a GPU alone."""
    peaks = [one["high_water_bytes"] for one in measured if "high_water_bytes" in one]
    found = {"milliseconds": min(median(one["milliseconds"]) for one in measured)}
    return found | ({"peak bytes": float(min(peaks))} if peaks else {})
