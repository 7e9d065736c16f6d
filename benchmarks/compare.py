"""singa_lite against PyTorch on the CPU: step time, peak memory, and the losses of ten steps from equal weights.

    pip install ".[peer]" && python benchmarks/compare.py [--net NET] [--batch N] [--peer PEER] [--quick] ...

Each side trains in a process of its own, the sides in turn (A B A B), from weights and a batch that a process before
them wrote; dropout is left out of both nets, as no two frameworks draw the same numbers. Times: medians after the
warm-up; the ratio is taken within each round, its spread is over the rounds. Memory: VmHWM over what the process had
after importing its framework and using it once (Linux only). Losses must agree to float32 accuracy (agreement.py says
what that is), or the exit status is 1. Fraction of the SGEMM peak: counted multiply-adds of products and convolutions
(flops.py) by step time and by the best SGEMM of any library at hand, measured in the same run (sgemm.py).
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from agreement import Agreement, agreement
from peers.process import Task, environment
from peers.turns import in_turn
from report import heading, row
from sgemm import sgemm_peaks

#: The batch sizes of each net.
BATCHES = {
    "mlp": (64, 512),
    "lenet": (64, 256),
    "vgg16": (8,),
    "resnet50": (16, 32),
    "mobilenet_v2": (32,),
    "resnet18_32": (128,),
}
PEERS = ("torch", "torch-channels-last", "torch-compile", "torch-inbackward")
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
    if task.way in ("singa_lite", "write"):
        from peers import singa_side

        return singa_side.run(task) if task.way == "singa_lite" else singa_side.write(task)
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
    if importlib.util.find_spec("torch") is None:
        return "not installed"
    if peer == "torch-compile" and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
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


def machine() -> dict[str, Any]:
    """Where and when."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
    date = datetime.date.today().isoformat()
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.platform(), "date": date}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", action="append", choices=list(BATCHES), help="may be repeated; default all")
    parser.add_argument("--batch", action="append", type=int, help="may be repeated; default those of the net")
    parser.add_argument("--peer", action="append", choices=[*PEERS, "all"], help=f"default {' and '.join(PEERS[:2])}")
    parser.add_argument("--optimizer", choices=("sgd", "momentum", "adamw"), default="momentum")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each side; default all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=3, help="steps that are not timed")
    parser.add_argument("--steps", type=int, default=7, help="steps that are")
    parser.add_argument("--quick", action="store_true", help="one round of one step and two timed ones")
    parser.add_argument("--json", metavar="FILE", help="write all runs, the machine and the versions there")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.warmup, options.steps = 1, 1, 2
    asked = options.peer or PEERS[:2]
    options.peer = list(PEERS) if "all" in asked else list(dict.fromkeys(asked))
    return options


def main() -> int:
    """Compare, print the table; 1 if something failed or disagreed."""
    options = arguments()
    if options.task:
        print(json.dumps(run_task(Task.from_json(options.task))))
        return 0
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
            results.append(result)
            for peer, theirs in result["peers"].items():
                check = worst(result, peer)
                print(row(f"{net}, {batch}", peer, result["ours"], theirs, check, peaks[0].gflops), flush=True)
                failed |= not check.agrees if check else str(theirs).startswith("failed")
    if options.json:
        everything = {"machine": where, "sgemm": [p._asdict() for p in peaks], "options": vars(options)}
        Path(options.json).write_text(json.dumps({**everything, "results": results}, indent=1))
    if failed:
        print("compare.py: a side failed, or losses disagree: see the rows above", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
