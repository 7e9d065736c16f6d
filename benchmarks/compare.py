"""singa_lite against PyTorch on the CPU: step time, peak memory, and the losses of ten steps from equal weights.

    pip install ".[onednn,peer]" && python benchmarks/compare.py [--net NET] [--batch N] [--peer PEER] [--quick] ...

Each side trains in a process of its own, the sides in turn (A B A B), from weights and a batch that a process before
them wrote; dropout is left out of both nets, as no two frameworks draw the same numbers. Times are of steps after the
warm-up: the fastest of all rounds, and the median of the rounds' medians; the ratio of medians is taken within each
round, its spread is over the rounds. The peer that is best is named. Memory: VmHWM over what the process had after
importing its framework and using it once (Linux only); torch-compile's holds its compiler's work. Losses must agree to
float32 accuracy (agreement.py says what that is), or the exit status is 1. Fraction of the SGEMM peak: counted
multiply-adds of products and convolutions (flops.py) by the fastest step and by the best SGEMM of any library at hand,
measured in the same run (sgemm.py). Rows that were taken beside other work, or whose rounds' fastest steps are too far
apart, are not printed, and the exit status is 4, unless --anyway is given (quiet.py).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import quiet
from agreement import Agreement, agreement
from figure_file import add_option, machine, of_lines, origin
from figure_file import write as write_figures
from peers.process import WITHIN, Task, environment
from peers.turns import in_turn
from report import HEAD, best, heading, round_minima, row, summary
from sgemm import sgemm_peaks
from tiny import parsed

#: The batch sizes of each net.
BATCHES = {
    "mlp": (64, 512),
    "lenet": (64, 256),
    "vgg16": (8,),
    "resnet50": (16, 32),
    "mobilenet_v2": (32,),
    "resnet18_32": (128,),
}
#: Those by default, then the others.
PEERS = ("torch", "torch-channels-last", "torch-compile", "torch-compile-channels-last", "torch-inbackward")
USUAL = PEERS[:3]
#: Rates at which the loss falls in ten steps, and rounding errors stay small (see CAP of agreement.py), by net: with
#: SGD, and with AdamW, whose first steps are about as long for a small gradient as for a large one.
RATES = {
    "mlp": (1e-3, 1e-4),
    "lenet": (1e-3, 1e-3),
    "vgg16": (2e-6, 1e-6),
    "resnet50": (1e-6, 1e-6),
    "mobilenet_v2": (2e-5, 1e-5),
    "resnet18_32": (1e-3, 1e-5),
}


def run_task(task: Task) -> dict[str, Any]:
    """Do a task in this process."""
    if task.way in ("singa_lite", "write") or task.way.startswith(WITHIN):
        from peers import singa_side

        return singa_side.write(task) if task.way == "write" else singa_side.run(task)
    from peers import torch_side

    return torch_side.noise(task) if task.way == "noise" else torch_side.run(task)


def in_process(task: Task) -> dict[str, Any]:
    """Do a task in a process of its own. RuntimeError, with the last line it wrote, if it fails."""
    command = [sys.executable, __file__, "--task", task.to_json()]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(task.threads))
    if done.returncode:
        last = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise RuntimeError(f"{task.way}: {last}")
    return json.loads(done.stdout.splitlines()[-1])


def obstacle(peer: str) -> str:
    """Why the peer cannot run here; "" if it can."""
    if peer.startswith(WITHIN):
        return ""
    if importlib.util.find_spec("torch") is None:
        return "not installed"
    if "compile" in peer and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
        return "no C++ compiler"
    return ""


def compare(task: Task, peers: list[str], rounds: int) -> dict[str, Any]:
    """All rounds of one net and batch: {"ours": runs, "peers": {peer: runs or why not}, "noise": losses}."""
    with tempfile.TemporaryDirectory(prefix="compare") as folder:
        task = replace(task, folder=folder)
        in_process(replace(task, way="write"))
        ours, results = in_turn(task, {peer: obstacle(peer) for peer in peers}, rounds, in_process)
        able = any(isinstance(runs, list) for runs in results.values())
        noise = in_process(replace(task, way="noise"))["losses"] if able else []
    return {"net": task.net, "batch": task.batch, "ours": ours, "peers": results, "noise": noise}


def worst(result: dict[str, Any], peer: str) -> Agreement | None:
    """The agreement of the round where it is worst; None if the peer did not run."""
    theirs = result["peers"][peer]
    if isinstance(theirs, str):
        return None
    checks = [agreement(a["losses"], b["losses"], result["noise"]) for a, b in zip(result["ours"], theirs, strict=True)]
    return min(checks, key=lambda check: (check.agrees, -check.difference / check.allowed))


def wrong(result: dict[str, Any]) -> bool:
    """Whether a peer failed, or its losses disagree with ours."""
    checks = {peer: worst(result, peer) for peer in result["peers"]}
    failed = any(str(theirs).startswith("failed") for theirs in result["peers"].values())
    return failed or any(check is not None and not check.agrees for check in checks.values())


def write(watch: quiet.Watch, result: dict[str, Any], gflops: float) -> tuple[str, str]:
    """Print the rows of a net and batch. (what they come to, what disturbed them: "" if nothing)."""
    title, ours, peers = f"{result['net']}, {result['batch']}", result["ours"], result["peers"]
    named, every, troubles = best(peers), watch.trouble(round_minima(ours)), []
    for peer, theirs in peers.items():
        apart = "" if isinstance(theirs, str) else quiet.unsteady(round_minima(theirs))
        why = ", ".join(filter(None, [every, apart and f"{peer}: {apart}"]))
        told = f"{peer} ({named[peer]})" if peer in named else peer
        watch.write(row(title, told, ours, theirs, worst(result, peer), gflops), why)
        troubles += [why] if why and peer in named else []
    return summary(title, ours, peers), "; ".join(troubles)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", action="append", choices=list(BATCHES), help="may be repeated; default all")
    parser.add_argument("--batch", action="append", type=int, help="may be repeated; default those of the net")
    parser.add_argument("--peer", action="append", choices=[*PEERS, "all"], help=f"default {', '.join(USUAL)}")
    parser.add_argument("--optimizer", choices=("sgd", "momentum", "adamw"), default="momentum")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each side; default all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=3, help="steps that are not timed")
    parser.add_argument("--steps", type=int, default=7, help="steps that are")
    parser.add_argument("--quick", action="store_true", help="one round of one step and two timed ones")
    parser.add_argument("--json", metavar="FILE", help="write all runs, the machine and the versions there")
    add_option(parser)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    quiet.add_option(parser)
    options = parsed(parser, net=["lenet"], batch=[5], peer=["torch"], rounds=1, warmup=1, steps=3, threads=1)
    if options.quick:
        options.rounds, options.warmup, options.steps = 1, 1, 2
    asked = options.peer or USUAL
    options.peer = list(PEERS) if "all" in asked else list(dict.fromkeys(asked))
    return options


def main() -> int:
    """Compare, print the table; 1 if something failed or disagreed."""
    options = arguments()
    if options.task:
        print(json.dumps(run_task(Task.from_json(options.task))))
        return 0
    watch = quiet.Watch(options.anyway)
    where, peaks = machine(), sgemm_peaks(options.threads)
    print(f"{where['date']}, {where['cpu']}, {options.threads} of {where['cores']} cores, {where['system']}")
    print("SGEMM peak: " + ", ".join(f"{p.gflops:.0f} GFLOP/s ({p.library}, {p.size})" for p in peaks))
    print(f"{options.optimizer}, {options.rounds} rounds of {options.warmup} + {options.steps} steps\n\n{heading()}")
    results, failed = [], False
    for net in options.net or list(BATCHES):
        for batch in options.batch or BATCHES[net]:
            rate = RATES[net][options.optimizer == "adamw"]
            task = Task("", net, batch, options.optimizer, rate, options.warmup, options.steps, options.threads)
            result = compare(task, options.peer, options.rounds)
            text, why = write(watch, result, peaks[0].gflops)
            results.append({**result, "summary": text, "trouble": why})
            failed |= wrong(result)
    rows = list(watch.printed)
    print()
    for result in results:
        if result["summary"]:
            watch.write(result["summary"], result["trouble"])
    if options.json:
        everything = {"machine": where, "sgemm": [p._asdict() for p in peaks], "options": vars(options)}
        Path(options.json).write_text(json.dumps({**everything, "results": results}, indent=1))
    if options.write:
        command = f"python benchmarks/compare.py {' '.join(f'--net {net}' for net in options.net or [])}".rstrip()
        write_figures(options.write, origin(command), {"steps": of_lines(HEAD, rows)})
    if failed:
        print("compare.py: a side failed, or losses disagree: see the rows above", file=sys.stderr)
    return int(failed) or watch.status


if __name__ == "__main__":
    sys.exit(main())
