"""What less memory costs in time: plans within budgets, measured, beside a lower bound and PyTorch's own means.

    pip install ".[onednn,peer]" scipy matplotlib
    python benchmarks/budget.py --compile                                      # what PyTorch compiles; minutes a net
    python benchmarks/budget.py --prepare curve.json                           # plans, nothing is run
    python benchmarks/budget.py --resume curve.json --minutes 40               # measures, on a machine that is quiet
    python benchmarks/budget.py --from-json curve.json --picture curve.png     # tables and picture, nothing is measured
    python benchmarks/budget.py --check [--net NET]                            # twenty budgets a net, nothing is run

Ours are the free plan, those nearest to some estimated slowdowns, and the least; their certificates (with scipy)
say what no schedule can do better. PyTorch's are the usual loop, `torch.utils.checkpoint` in so many segments
(of a U-Net: so many stages, the largest first), and `torch.compile` with an `activation_memory_budget`; images channels
last, the usual loop also contiguous. What the compiler makes is kept for later processes (--cache).

Each case has a process of its own, which stays while its group is measured: they take turns, a turn is a step (shorter
ones are repeated), a round a turn of each. Time is the ratio to our free plan's turn of the same round, of these the
median. A turn that was taken beside other work or a hypervisor's is done again, and left out if no quiet one comes; so
is a round in which our free plan's step is far from its fastest (quiet.py); --anyway counts them too, and says so.
Memory is VmHWM over what the process had after importing its framework and using it once, and over the batch that it
is given: of the whole process, planning included; of torch-compile's of the timed steps alone, without its compiler's
work. Linux only. (Files of before 2026-11-23 have the batch in it.)

The file of --prepare, --json or --resume is written after every round, and --resume goes on with it. --from-json puts
several together, such as of nets measured one at a time. Exit status: 1 if a case failed or --check found a breach, 4
if something that was wanted has no quiet round.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import quiet
from budgets import check, files
from budgets.about import about, origin, where
from budgets.cases import Case, cases
from budgets.figures import Figure, figures
from budgets.options import arguments, tasks
from budgets.picture import picture
from budgets.report import ROWS, at_times, heading, row, summary, verdicts
from budgets.turns import Measuring
from figure_file import of_lines, write
from peers.budget_task import BudgetTask, answers
from peers.worker import asked_once

#: Seconds that the peer may take to compile a case, and a net to be planned for all budgets.
COMPILING = PLANNING = 3600.0


def run_task(task: BudgetTask) -> None:
    """Do a task in this process, and tell."""
    told = answers()
    if task.way == "singa_lite":
        from peers import budget_side

        budget_side.run(task, told)
    elif task.way in ("plan", "check", "write"):
        from peers import budget_side

        asked = {"plan": budget_side.plans, "check": budget_side.check, "write": budget_side.write}
        print(json.dumps(asked[task.way](task)), file=told)
    elif task.way == "torch-gradient":
        from peers import torch_gradient

        print(json.dumps(torch_gradient.run(task)), file=told)
    else:
        from peers import torch_budget

        torch_budget.run(task, told)


def planned(options: argparse.Namespace) -> files.Nets:
    """The cases of each net."""
    nets = []
    for task in tasks(options, "plan"):
        found = cases(task, asked_once(task, longest=PLANNING)["points"], options.quick)
        nets.append([case for case in found if case.ours or not options.no_peers])
    return nets


def compiled(options: argparse.Namespace) -> int:
    """Let the peer's compiler fill its caches, two cases at a time; 1 if one failed."""
    found = [case for task in tasks(options, "plan") for case in cases(task, [], options.quick)]
    wanted = [case for case in found if case.task.way == "torch-compile" and case.able]

    def said(case: Case) -> str:
        start = time.monotonic()
        try:
            asked_once(case.task, options.cache, COMPILING)
        except RuntimeError as error:
            return f"failed: {error}"
        return f"compiled within {time.monotonic() - start:.0f} s"

    failed = False
    with ThreadPoolExecutor(2) as pool:
        for case, words in zip(wanted, pool.map(said, wanted), strict=True):
            print(f"{case.task.net}, {case.setting}: {words}", flush=True)
            failed |= words.startswith("failed")
    return int(failed)


def measure(options: argparse.Namespace) -> tuple[files.Nets, dict[str, Any]]:
    """All nets, as long as there is time."""
    end = time.monotonic() + 60 * options.minutes
    watch, told = quiet.Watch(options.anyway), about(options)
    path = options.resume or options.json
    nets = files.read(options.resume)[0] if options.resume else planned(options)
    print(where(told), flush=True)

    def save() -> None:
        if path:
            files.write(path, nets, told)

    measuring = Measuring(watch, options.rounds, options.steps, end, options.cache, save)
    for found in measuring.nets(nets):
        print(f"{found[0].task.net}: {len(found[0].turns)} turns of our free plan", file=sys.stderr, flush=True)
    return nets, told


def tell(nets: files.Nets, anyway: bool) -> tuple[list[list[Figure]], int]:
    """Print the tables; the figures, and the exit status."""
    known = [figures(found, anyway) for found in nets]
    for lines in _tables(nets, known):
        print("\n".join([*lines, ""]))
    print(summary(known), flush=True)
    disturbed = sorted({one.disturbed for found in known for one in found if one.disturbed})
    if disturbed:
        print(f"(turns were taken on a busy machine: {disturbed[0]})")
    every = [case for found in nets for case in found]
    if any(case.why.startswith("failed") for case in every):
        return known, 1
    missing = sum(bool(case.turns) for case in every) > sum(map(len, known))
    return known, quiet.BUSY if missing else 0


def _tables(nets: files.Nets, known: list[list[Figure]]) -> list[list[str]]:
    by_case = {id(one.case): one for found in known for one in found}
    tables = [[*heading(ROWS), *(row(case, by_case.get(id(case))) for found in nets for case in found)]]
    for found, own in zip(nets, known, strict=True):
        tables += [at_times(found, own), verdicts(own)] if own else []
    return tables


def checked(options: argparse.Namespace) -> int:
    """Plan many budgets of each net; 1 if something is wrong."""
    status = 0
    for task in tasks(options, "check"):
        told = asked_once(task, longest=PLANNING)
        found = check.breaches(told)
        status |= bool(found)
        print(f"{task.net}, {task.batch}\n")
        print("\n".join([*check.table(told), "", check.summary(told, found), ""]), flush=True)
    return status


def main() -> int:
    """Plan, measure, print, draw; or a part of it."""
    options = arguments(__doc__)
    if options.task:
        run_task(BudgetTask.from_json(options.task))
        return 0
    if options.check:
        return checked(options)
    if options.compile:
        return compiled(options)
    if options.prepare:
        files.write(options.prepare, planned(options), about(options))
        return 0
    if options.from_json:
        read = [files.read(path) for path in options.from_json]
        nets, told = files.merged([found for found, _ in read]), read[-1][1]
        print(where(told))
    else:
        nets, told = measure(options)
    known, status = tell(nets, options.anyway)
    if options.write:
        rows = _tables(nets, known)[0]
        write(options.write, origin(told, "budget.py"), {"curve": of_lines(ROWS, rows[2:])})
    if options.picture:
        picture(known, where(told), options.picture)
    return status


if __name__ == "__main__":
    sys.exit(main())
