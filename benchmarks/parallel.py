"""Several processes of one thread each, beside one of as many threads, and PyTorch's DistributedDataParallel over gloo.

    pip install ".[onednn,mpi]" torch && python benchmarks/parallel.py [--net NAME=BATCH ...] [--ranks 2] [--rounds 3]

All have the same cores, the same whole batch and equal weights, and are run in turn, each time in processes of their
own: A B C, A B C, ... Printed, by net: medians of a step's milliseconds, and ratios within each round, above 1 where
ours are faster; MiB of memory of a rank over its level after import, the largest; the share of the sums' time that is
hidden: 1 - (waited with nothing beside) / (the same sums with nothing beside at all); what a step takes beyond the
same computing without sums, all ranks at once; and what `singa_lite.parallel.simulate` says of the step by this
machine's latency, bandwidth between two processes, and cores, over what it took. --state: bytes of AdamW's state of a
rank of four, shard="state", over those of one process, instead.
Losses of all sides are compared. Rows that were taken beside other work are not printed, and the exit status is 4,
unless --anyway is given (quiet.py).
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import quiet
from peers.process import Task, environment
from tiny import parsed

NETS = {"resnet50": 32, "mlp": 512, "gpt_11m": 16}
#: Seconds that one side may take; and those that others have to end by themselves behind one that failed, or a rank to
#: write down where it is.
LONGEST, TO_TELL = 600.0, 10.0
PROGRAM = str(Path(__file__).resolve())


def side(task: Task, way: str, ranks: int, **more: Any) -> list[dict[str, Any]]:
    """What each rank of a side measured. RuntimeError if it fails or takes too long, which says where each of its
    processes was then; nothing of it lives on.
    """
    text = json.dumps({"task": task.to_json(), "way": way, "ranks": ranks, "longest": LONGEST, **more})
    own = [sys.executable, PROGRAM, "--side", text]
    if way == "ours" and ranks > 1:
        own = [mpiexec(), "-n", str(ranks), sys.executable, "-m", "mpi4py", PROGRAM, "--side", text]
    with tempfile.TemporaryDirectory() as folder:
        settings = [environment(task.threads) | {"STACKS": folder}]
        if way == "ddp":
            whole = settings[0] | {"WORLD_SIZE": str(ranks), "STORE": f"{folder}/store"}
            settings = [whole | {"RANK": str(rank)} for rank in range(ranks)]
        status, out = together(own, settings, Path(folder))
        if status:
            stacks = [f"{path.stem}:\n{path.read_text()}" for path in sorted(Path(folder).glob("rank *.stack"))]
            raise RuntimeError(f"{way}, {ranks} ranks, {task.net}: {status}\n" + "\n".join(filter(None, stacks)))
    lines = [line for line in out.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return list(found.get("ranks", [found]))


def together(command: list[str], settings: list[dict[str, str]], folder: Path) -> tuple[str, str]:
    """Start a process with each of these environments, until all have ended, one has failed or the time is over.

    What went wrong, "" if nothing; and what the first one printed.
    """
    names = [(folder / f"{number}.out", folder / f"{number}.err") for number in range(len(settings))]
    started = [_started(command, one, *pair) for one, pair in zip(settings, names, strict=True)]
    end = time.monotonic() + LONGEST + TO_TELL
    try:
        while any(process.poll() is None for process in started) and time.monotonic() < end:
            if any(process.poll() for process in started):  # the others would wait for it
                end = min(end, time.monotonic() + TO_TELL)
            time.sleep(0.05)
    finally:
        ends = [process.poll() for process in started]
        texts = [errors.read_text()[-2000:].strip() for _, errors in names]
        for process in started:
            _end(process)
    how = ["has not ended" if status is None else f"exit status {status}" for status in ends]
    told = [f"process {number}: {how[number]}: {texts[number]}" for number, status in enumerate(ends) if status != 0]
    return "\n".join(told), names[0][0].read_text()


def _started(command: list[str], settings: dict[str, str], out: Path, errors: Path) -> subprocess.Popen[bytes]:
    with open(out, "wb") as to, open(errors, "wb") as to_errors:
        return subprocess.Popen(command, env=settings, start_new_session=True, stdout=to, stderr=to_errors)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):  # at the first, mpiexec ends its ranks
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
            return


def mpiexec() -> str:
    """Of this environment."""
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if found is None:
        raise SystemExit('parallel.py: wanted mpiexec, pip install ".[mpi]"')
    return found


def do(text: str) -> None:
    """In a process of its own: one rank of a side."""
    given = json.loads(text)
    rank = int(next((os.environ[name] for name in ("PMI_RANK", "RANK") if name in os.environ), "0"))
    stacks = open(Path(os.environ["STACKS"], f"rank {rank}.stack"), "w")  # noqa: SIM115  # as long as the process
    faulthandler.dump_traceback_later(given["longest"], file=stacks)
    task = Task.from_json(given["task"])
    from peers import several

    if given["way"] == "ddp":
        several.tell(several.ddp(task))
    elif given["way"] == "ours":
        several.tell(several.ours(task, given.get("shard")))
    elif given["way"] == "simulated":
        several.tell({"step": simulated(task, given["processes"], given["latency"], given["bandwidth"])})
    else:
        from peers import singa_side

        several.tell(singa_side.write(task) if given["way"] == "write" else singa_side.run(task))


def simulated(task: Task, ranks: int, latency: float, bandwidth: float) -> float:
    """Seconds of a step, by the simulation."""
    from peers import singa_side
    from singa_lite.commands.simulated_step import Network
    from singa_lite.parallel import simulate

    net = singa_side.built(task.net, 0.0)
    net.compile(singa_side.OPTIMIZERS[task.optimizer](task.lr))
    rows = simulate.simulated(
        net, [ranks], task.batch // ranks, Network(bandwidth, latency, by_cores=True), cores=cores()
    )
    return [row.step.seconds for row in rows][-1]


def agree(several: list[dict[str, Any]], one: list[dict[str, Any]], rtol: float) -> None:
    """The mean over equal parts is the whole batch's loss, but for batch normalisation, which goes by the part."""
    mean = np.mean([rank["losses"] for rank in several], axis=0)
    np.testing.assert_allclose(mean[:2], one[0]["losses"][:2], rtol=rtol)


def row(task: Task, ranks: int, rounds: int, watch: quiet.Watch) -> None:
    """Measure a net and print its line."""
    one_thread, all_threads = replace(task, threads=1), replace(task, threads=min(ranks, cores()))
    sides: dict[str, list[list[dict[str, Any]]]] = {"one": [], "ours": [], "ddp": []}
    watch.trouble()
    for _ in range(rounds):
        sides["one"].append(side(all_threads, "one", 1))
        sides["ours"].append(side(one_thread, "ours", ranks))
        with contextlib.suppress(ModuleNotFoundError):
            sides["ddp"].append(side(one_thread, "ddp", ranks))
    rtol = 0.1 if task.net == "resnet50" else 1e-3
    for found in sides["ours"], sides["ddp"]:
        agree(found[0], sides["one"][0], rtol)
    seconds = {name: [median(found[0]["seconds"]) for found in every] for name, every in sides.items()}
    peaks = {name: max(rank["peak"] for found in every for rank in found) / 2**20 for name, every in sides.items()}
    ratios = {
        name: median(other / ours for other, ours in zip(seconds[name], seconds["ours"], strict=True))
        for name in ("one", "ddp")
    }
    hidden, added = (median(way(found) for found in sides["ours"]) for way in (hidden_share, added_share))
    every = [rank for found in sides["ours"] for rank in found]
    facts = {name: median(rank[name] for rank in every if rank[name]) for name in ("latency", "bandwidth")}
    said = side(one_thread, "simulated", 1, processes=ranks, **facts)[0]["step"]
    times = " | ".join(f"{median(seconds[name]) * 1e3:.1f}" for name in ("ours", "one", "ddp"))
    memory = " | ".join(f"{peaks[name]:.0f}" for name in ("ours", "one", "ddp"))
    line = (
        f"| {task.net} | {task.batch} | {times} | {ratios['one']:.2f} | {ratios['ddp']:.2f} | {memory} | "
        f"{peaks['ours'] / peaks['ddp']:.2f} | {hidden:.0%} | {added:.1%} | {said / median(seconds['ours']):.2f} |"
    )
    watch.row(line, seconds["ours"], seconds["one"])


def hidden_share(ranks: list[dict[str, Any]]) -> float:
    """Of the sums' time alone, what a step of one round does not wait for. Each step goes by the rank that waits least:
    what others wait longer, they wait for that rank, which is late, and not for sums.
    """
    waited = median(map(min, zip(*(rank["waited"] for rank in ranks), strict=True)))
    return 1 - waited / median(rank["alone"] for rank in ranks)


def added_share(ranks: list[dict[str, Any]]) -> float:
    """What a step takes over one that computes the same and sums nothing: all that sums cost, polls and copies too."""
    return median(median(rank["seconds"]) for rank in ranks) / median(rank["computed"] for rank in ranks) - 1


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0))


def state_share(task: Task) -> str:
    """AdamW's state of a rank of four over one process's."""
    task = replace(task, optimizer="adamw", warmup=1, steps=1, threads=1)
    whole, shared = (side(task, "ours", ranks, **more) for ranks, more in ((1, {}), (4, {"shard": "state"})))
    most = max(rank["state"] for rank in shared)
    return (
        f"{task.net}: {most:,} bytes of AdamW's state a rank of four, {most / whole[0]['state']:.3f} of one process's"
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", nargs="*", default=[f"{net}={size}" for net, size in NETS.items()])
    parser.add_argument("--ranks", type=int, nargs="*", default=[2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--state", action="store_true")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    quiet.add_option(parser)
    options = parsed(parser, net=["lenet=4"], rounds=1, steps=2)
    if options.side:
        do(options.side)
        return 0
    watch = None if options.state else quiet.Watch(options.anyway)
    times = "ours, ms | one process, ms | DDP, ms | one / ours | DDP / ours"
    heads = f"net | batch | {times} | MiB ours | one | DDP | ours / DDP"
    for ranks in options.ranks:
        if watch is not None:
            print(f"\n{ranks} ranks of a thread each, one process of {min(ranks, cores())} threads, {cores()} cores\n")
            print(f"| {heads} | hidden | added | simulated / ours |\n|" + "---|" * 14, flush=True)
        for name, batch in (each.split("=") for each in options.net):
            with tempfile.TemporaryDirectory() as folder:
                task = Task("singa_lite", name, int(batch), steps=options.steps, folder=folder)
                side(replace(task, way="write"), "write", 1)
                if watch is None:
                    print(state_share(task), flush=True)
                else:
                    row(task, ranks, options.rounds, watch)
    return 0 if watch is None else watch.status


if __name__ == "__main__":
    sys.exit(main())
