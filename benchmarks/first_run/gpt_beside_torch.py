"""A step of the smallest GPT-2 beside PyTorch's: fused attention, its compiler, one kernel for all of AdamW."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from first_run import torch_side, training
from first_run.item import Item, Values

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
    """The sides in turn."""
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
