"""Sequences against PyTorch on the CPU: GPTs and an LSTM: step time, peak and planned memory, losses.

    pip install ".[onednn,peer]" && python benchmarks/sequences.py [--case CASE] [--rounds N] [--quick] ...

As `compare.py`, whose sides, turns and checks these are: each side in a process of its own, in turn, from equal
weights; memory is VmHWM over the level after the import. PyTorch's side is written in its quickest form
(peers/torch_texts.py), its optimizers are fused, and it runs eager, compiled, and with the optimizer in backward; the
best is named. Our step within a memory budget stands among the peers as "within-1800MiB". The second table has what our
plans say, and the ratio of processor time (user and system, of all threads), which other work disturbs less than the
clock; it is printed where that was disturbed too. The exit status is that of `compare.py`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

import compare
import quiet
from figure_file import add_option, machine, of_lines, origin, write
from peers.process import WITHIN, Task
from report import HEAD, MIB, Run, Spread, heading, peak_bytes, spread
from sgemm import sgemm_peaks
from tiny import parsed

PEERS = ("torch", "torch-compile", "torch-inbackward")


class Case(NamedTuple):
    """A row. rate: at which the loss falls in ten steps and rounding stays small; budgets: of further runs of ours."""

    net: str
    batch: int
    optimizer: str
    rate: float
    budgets: tuple[str, ...] = ()


CASES = {
    "gpt-11m": Case("gpt_11m", 8, "adamw", 3e-5),
    "gpt2-2x256": Case("gpt2_small_256", 2, "adamw", 3e-5),
    "gpt2-4x512": Case("gpt2_small_512", 4, "adamw", 3e-5, ("1800MiB",)),
    "lstm": Case("lstm", 32, "adam", 1e-4),
}
PLANS = ("case", "side", "planned MiB", "peak MiB", "processor s", "ours / its")


def plan_rows(case: str, result: dict[str, Any]) -> list[str]:
    """The second table's lines of a case: ours, then each peer that ran."""
    ours = result["ours"]
    sides = {"ours": ours, **{peer: runs for peer, runs in result["peers"].items() if not isinstance(runs, str)}}
    return [_plan_row(case, side, runs, processor_ratio(ours, runs)) for side, runs in sides.items()]


def processor_ratio(ours: Sequence[Run], theirs: Sequence[Run]) -> Spread:
    """Our median step by theirs, round by round, in processor time."""
    return spread([median(a["processor"]) / median(b["processor"]) for a, b in zip(ours, theirs, strict=True)])


def _plan_row(case: str, side: str, runs: Sequence[Run], ratio: Spread) -> str:
    planned = f"{runs[0]['planned'] / MIB:.0f}" if "planned" in runs[0] else ""
    seconds = median(median(run["processor"]) for run in runs)
    cells = [case, side, planned, f"{peak_bytes(runs) / MIB:.0f}", f"{seconds:.3f}", str(ratio)]
    return f"| {' | '.join(cells)} |"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", choices=list(CASES), help="may be repeated; default all")
    parser.add_argument("--peer", action="append", choices=PEERS, help="may be repeated; default all")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each side; default all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=7, help="steps that are timed, after three others")
    parser.add_argument("--quick", action="store_true", help="one round of one step and two timed ones")
    quiet.add_option(parser)
    add_option(parser)
    return parsed(parser, case=["lstm"], peer=["torch"], quick=True)


def main() -> int:
    """Compare, print both tables; 1 if something failed or disagreed."""
    options = arguments()
    warmup, steps, rounds = (1, 2, 1) if options.quick else (3, options.steps, options.rounds)
    watch, peaks = quiet.Watch(options.anyway), sgemm_peaks(options.threads)
    where = machine()
    print(f"{where['date']}, {where['cpu']}, {options.threads} of {where['cores']} cores, {where['system']}\n")
    print(heading())
    plans, failed = [], False
    for name in options.case or CASES:
        case = CASES[name]
        task = Task("", case.net, case.batch, case.optimizer, case.rate, warmup, steps, options.threads)
        peers = [*(options.peer or PEERS), *(WITHIN + budget for budget in case.budgets)]
        result = compare.compare(task, peers, rounds)
        compare.write(watch, result, peaks[0].gflops)
        failed |= compare.wrong(result)
        plans += plan_rows(name, result)
    print(f"\n| {' | '.join(PLANS)} |\n|{'---|' * len(PLANS)}")
    print("\n".join(plans))
    if options.write:
        found = {"steps": of_lines(HEAD, watch.printed), "plans": of_lines(PLANS, plans)}
        write(options.write, origin("python benchmarks/sequences.py"), found)
    if failed:
        print("sequences.py: a side failed, or losses disagree: see the rows above", file=sys.stderr)
    return int(failed) or watch.status


if __name__ == "__main__":
    sys.exit(main())
