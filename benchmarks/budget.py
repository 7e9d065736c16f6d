"""What less memory costs in time: plans within budgets, measured, beside a lower bound and PyTorch's own means.

    pip install ".[onednn,peer]" scipy matplotlib && python benchmarks/budget.py [--net NET] [--quick] [--picture FILE]

First each net is planned for budgets from the free plan down to the least: planned bytes, estimated time, and what a
linear program (bound.py, with scipy) says that no schedule can do better. Then rounds: in each, every case trains in a
process of its own, ours free and within the budgets and PyTorch's in turn: the usual loop, `torch.utils.checkpoint` in
so many segments (of a U-Net: so many stages, the largest first), and `torch.compile` with an
`activation_memory_budget`. Time is the median of the timed steps as a ratio to our free plan's in the same round, the
median over the rounds. Memory is VmHWM over what the process had after importing its framework and using it once: of
the whole process, planning and the batch included; of torch-compile's of the timed steps alone, without its compiler's
work. Linux only.

--quick: three budgets, two segments, one share, one round. --minutes M: rounds are begun as long as they should end
within M minutes from the start, and cases left out beyond it; the first round is of all nets in turn, so that
`--quick --minutes 15` has all four. Rows taken beside other work are not printed, and the exit status is 4, unless
--anyway is given (quiet.py).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import quiet
from budget_report import Case, heading, key, picture, rows, steps_of
from compare import machine
from peers.budget_task import BudgetTask
from peers.process import environment

BATCHES = {"resnet50": 16, "mobilenet_v2": 32, "unet": 8, "densenet121": 16, "lenet": 64}
USUAL = tuple(BATCHES)[:4]
#: Of our free plan's total; 0 is the least there is.
SHARES = (0.8, 0.7, 0.6, 0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.0)
#: Numbers of segments; of a U-Net's stages.
SEGMENTS, STAGES = (2, 4, 8, 16), (2, 4, 7)
#: Shares of PyTorch's `activation_memory_budget`.
COMPILED = (1.0, 0.8, 0.5, 0.2, 0.0)
#: The same under --quick.
FEW_SHARES, FEW_SEGMENTS, FEW_STAGES, FEW_COMPILED = (0.6, 0.45), (4, 8), (2, 7), (0.5,)
#: Seconds that a process may take.
LONGEST = 900.0


def run_task(task: BudgetTask) -> dict[str, Any]:
    """Do a task in this process."""
    if task.way in ("plan", "singa_lite"):
        from peers import budget_side

        return budget_side.plans(task) if task.way == "plan" else budget_side.run(task)
    from peers import torch_budget

    return torch_budget.run(task)


def in_process(task: BudgetTask) -> dict[str, Any]:
    """Do a task in a process of its own. RuntimeError, with the last line it wrote, if it fails or takes too long."""
    command = [sys.executable, __file__, "--task", task.to_json()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment(task.threads), timeout=LONGEST)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{task.way}: took longer than {LONGEST:.0f} s") from None
    if done.returncode:
        last = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise RuntimeError(f"{task.way}: {last}")
    return json.loads(done.stdout.splitlines()[-1])


def obstacle(way: str) -> str:
    """Why the peer cannot run here; "" if it can."""
    if importlib.util.find_spec("torch") is None:
        return "not installed"
    if way == "torch-compile" and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
        return "no C++ compiler, which the compiler's default backend needs"
    return ""


def cases(task: BudgetTask, points: list[dict[str, Any]], quick: bool) -> Iterator[Case]:
    """All cases of a net, ours first, the free plan before all others."""
    for point in points:
        name = "free" if not point["budget"] else f"{point['share']:.2f} of free"
        name += ", the least" if point.get("least") else ""
        yield Case(replace(task, way="singa_lite", value=float(point["budget"] or 0)), name, point=point)
    segments = (FEW_STAGES if quick else STAGES) if task.net == "unet" else FEW_SEGMENTS if quick else SEGMENTS
    word = "stages" if task.net == "unet" else "segments"
    peers = [("torch", 0.0, "the usual loop")]
    peers += [("torch-segments", float(n), f"checkpoint, {n} {word}") for n in segments]
    peers += [("torch-compile", b, f"compiled, budget {b:g}") for b in (FEW_COMPILED if quick else COMPILED)]
    for way, value, name in peers:
        yield Case(replace(task, way=way, value=value), name, why=obstacle(way))


def planned(task: BudgetTask, quick: bool) -> list[Case]:
    """Plan a net for its budgets, and list its cases."""
    points = in_process(replace(task, way="plan", shares=FEW_SHARES if quick else SHARES))["points"]
    return list(cases(task, points, quick))


def one_round(found: list[Case], end: float) -> None:
    """Every case that can run once more, until the time is over. RuntimeError if our free plan's fails."""
    for case in found:
        if case.why:
            continue
        if time.monotonic() > end and case is not found[0]:
            case.why = "" if case.runs else "no time was left"
            continue
        try:
            case.runs.append(in_process(case.task))
        except RuntimeError as error:
            if case is found[0]:
                raise
            case.why = f"failed: {error}"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", action="append", choices=list(BATCHES), help=f"may be repeated; default {USUAL}")
    parser.add_argument("--batch", type=int, help="default that of the net")
    parser.add_argument("--image", type=int, default=0, help="height and width; default the net's own")
    parser.add_argument("--threads", type=int, default=2, help="of each process")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=1, help="steps that are not timed")
    parser.add_argument("--steps", type=int, default=3, help="steps that are")
    parser.add_argument("--quick", action="store_true", help="fewer cases, one round")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no round or case is begun later")
    parser.add_argument("--no-bound", action="store_true", help="without the linear program")
    parser.add_argument("--json", metavar="FILE", help="write all runs, the machine and the options there")
    parser.add_argument("--picture", metavar="FILE", help="draw bytes against time there")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    quiet.add_option(parser)
    options = parser.parse_args()
    if options.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture: wanted matplotlib, which is not installed")
    if options.quick:
        options.rounds, options.steps = 1, 2
    return options


def tasks(options: argparse.Namespace) -> list[BudgetTask]:
    """What is asked for, a task a net."""
    return [
        BudgetTask(
            "plan", net, options.batch or BATCHES[net], options.image, warmup=options.warmup, steps=options.steps,
            threads=options.threads, bound=not options.no_bound,
        )
        for net in options.net or USUAL
    ]  # fmt: skip


def write(watch: quiet.Watch, found: list[Case], why: str) -> None:
    """Print the rows of a net."""
    for line in rows(found):
        watch.write(line, why)


def main() -> int:
    """Plan, measure, print, draw."""
    options = arguments()
    if options.task:
        print(json.dumps(run_task(BudgetTask.from_json(options.task))))
        return 0
    watch, start = quiet.Watch(options.anyway), time.monotonic()
    end, where = start + 60 * options.minutes, machine()
    print(f"{where['date']}, {where['cpu']}, {options.threads} of {where['cores']} cores, {where['system']}")
    print(f"{options.rounds} rounds of {options.warmup} + {options.steps} steps\n\n{heading()}", flush=True)
    nets = [planned(task, options.quick) for task in tasks(options)]
    troubles = [""] * len(nets)
    for number in range(options.rounds):
        begun = time.monotonic()
        for index, found in enumerate(nets):
            left = (end - time.monotonic()) / (len(nets) - index)
            one_round(found, time.monotonic() + left)
            troubles[index] = troubles[index] or watch.trouble()
        now = time.monotonic()
        if number + 1 < options.rounds and now + (now - begun) > end:
            break
    for found, trouble in zip(nets, troubles, strict=True):
        apart = quiet.unsteady([min(steps_of(run)) for run in found[0].runs])
        write(watch, found, ", ".join(filter(None, [trouble, apart])))
    if options.json:
        results = [[{**key(case), "runs": case.runs} for case in found] for found in nets]
        text = json.dumps({"machine": where, "options": vars(options), "results": results}, indent=1, default=str)
        Path(options.json).write_text(text)
    if options.picture:
        picture(nets, options.picture)
    failed = any(case.why.startswith("failed") for found in nets for case in found)
    return int(failed) or watch.status


if __name__ == "__main__":
    sys.exit(main())
