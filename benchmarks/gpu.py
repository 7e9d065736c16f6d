"""singa_lite against PyTorch on a GPU: step time by CUDA events, and peak memory by both allocators.

    pip install ".[cuda13,cudnn13,peer]" && python benchmarks/gpu.py [--net NET] [--batch N] [--precision P] ...

Each side trains in a process of its own, the sides in turn (A B A B), from weights and a batch that a process before
them wrote; dropout is left out of both nets. Times: from one event to the next on the stream, a step after another with
nothing waited for; medians after the warm-up. Memory: ours the high water of the device's pool, PyTorch's
max_memory_allocated. Peers: torch (eager), torch-channels-last, torch-compile (mode "reduce-overhead", which captures
CUDA graphs, channels last as well). Equal precision: true float32 on both sides, or TF32 on both.

--checklist answers the questions that only a GPU can (gpu_checklist.py), and measures nothing else.

Rows that were taken beside other work, or whose rounds' fastest steps are too far apart, are not printed unless
--anyway is given (quiet.py).

Exit status: 0; 1 if a side failed or the first losses disagree; 3 where there is no GPU; 4 if the machine was busy.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpu_report
import quiet
from compare import RATES
from peers.gpu_task import GpuTask
from peers.process import environment
from peers.turns import in_turn
from report import round_minima

#: The batch sizes of each net.
BATCHES = {"mlp": (64,), "lenet": (64,), "vgg16": (32,), "resnet50": (16, 32, 128), "mobilenet_v2": (32,)}
PEERS = ("torch", "torch-channels-last", "torch-compile")
NO_GPU = 3


def no_gpu(index: int = 0) -> str:
    """Why there is no GPU of that number to measure on; "" if there is one."""
    from singa_lite import device
    from singa_lite.errors import DeviceError

    try:
        device.cuda(index)
    except DeviceError as error:
        return str(error)
    return ""


def obstacle(peer: str) -> str:
    """Why the peer cannot run here; "" if it can."""
    if importlib.util.find_spec("torch") is None:
        return "not installed"
    import torch

    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} finds no GPU"
    if peer == "torch-compile" and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        return "no C compiler"
    return ""


def run_task(task: GpuTask) -> dict[str, Any]:
    """Do a task in this process."""
    if task.way == "write":
        from peers import singa_side

        return singa_side.write(task)
    if task.way == "singa_lite":
        from peers import singa_gpu

        return singa_gpu.run(task)
    from peers import torch_gpu

    return torch_gpu.run(task)


def in_process(task: GpuTask) -> dict[str, Any]:
    """Do a task in a process of its own. RuntimeError, with the last line it wrote, if it fails."""
    command = [sys.executable, __file__, "--task", task.to_json()]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(task.threads))
    if done.returncode:
        last = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise RuntimeError(f"{task.way}: {last}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(task: GpuTask, peers: list[str], rounds: int) -> dict[str, Any]:
    """All rounds of one net and batch: {"ours": runs, "peers": {peer: runs or why not}}. RuntimeError if ours fails."""
    with tempfile.TemporaryDirectory(prefix="gpu") as folder:
        task = replace(task, folder=folder)
        in_process(replace(task, way="write"))
        ours, results = in_turn(task, {peer: obstacle(peer) for peer in peers}, rounds, in_process)
    return {"net": task.net, "batch": task.batch, "ours": ours, "peers": results}


def machine(index: int) -> dict[str, Any]:
    """The GPU and its driver, and when."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(index)
    return {
        "gpu": f"{properties['name'].decode()}, {properties['totalGlobalMem'] / 2**30:.0f} GiB",
        "driver": _driver() or f"for CUDA {cupy.cuda.runtime.driverGetVersion()}",
        "date": datetime.date.today().isoformat(),
    }


def _driver() -> str:
    command = shutil.which("nvidia-smi")
    if command is None:
        return ""
    asked = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout else ""


def ran(peers: dict[str, Any]) -> list[Any]:
    """The runs of the peers that have some."""
    return [runs for runs in peers.values() if not isinstance(runs, str)]


def versions(results: list[dict[str, Any]]) -> dict[str, str]:
    """Of all libraries that the runs named."""
    named: dict[str, str] = {}
    for result in results:
        for runs in (result["ours"], *result["peers"].values()):
            if not isinstance(runs, str):
                named |= runs[0]["versions"]
    return named


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", action="append", choices=list(BATCHES), help="may be repeated; default all")
    parser.add_argument("--batch", action="append", type=int, help="may be repeated; default those of the net")
    parser.add_argument("--peer", action="append", choices=PEERS, help="may be repeated; default all")
    parser.add_argument("--gpu", type=int, default=0, help="its number")
    parser.add_argument(
        "--precision", action="append", choices=gpu_report.PRECISIONS, help="of both sides; default both"
    )
    parser.add_argument("--channels-first", action="store_true", help="images in C order on our side")
    parser.add_argument("--optimizer", choices=("sgd", "momentum", "adamw"), default="momentum")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=10, help="steps that are not timed")
    parser.add_argument("--steps", type=int, default=50, help="steps that are")
    parser.add_argument("--json", metavar="FILE", help="write all runs, the machine and the versions there")
    parser.add_argument("--markdown", metavar="FILE", help="write the table there, ready for docs/gpu.md")
    parser.add_argument("--checklist", action="store_true", help="answer the checklist for a first hour on a GPU")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    quiet.add_option(parser)
    options = parser.parse_args(given)
    options.peer, options.precision = options.peer or list(PEERS), options.precision or list(gpu_report.PRECISIONS)
    return options


def cases(options: argparse.Namespace) -> Iterator[tuple[str, int, str]]:
    """(net, batch, precision) that are wanted."""
    for net in options.net or list(BATCHES):
        for batch in options.batch or BATCHES[net]:
            for precision in options.precision:
                yield net, batch, precision


def main() -> int:
    """Compare and print the table, or answer the checklist."""
    options = arguments()
    if options.task:
        print(json.dumps(run_task(GpuTask.from_json(options.task))))
        return 0
    missing = no_gpu(options.gpu)
    if missing:
        print(f"gpu.py: nothing was measured: {missing}", file=sys.stderr)
        return NO_GPU
    if options.checklist:
        import gpu_checklist

        return gpu_checklist.main(options.gpu)
    watch = quiet.Watch(options.anyway)
    where, results, failed = machine(options.gpu), [], False
    print(f"{where['date']}, {where['gpu']}, driver {where['driver']}\n\n{gpu_report.heading()}", flush=True)
    for net, batch, precision in cases(options):
        rate, tf32 = RATES[net][options.optimizer == "adamw"], precision == "tf32"
        task = GpuTask("", net, batch, options.optimizer, rate, options.warmup, options.steps)
        task = replace(task, gpu=options.gpu, tf32=tf32, channels_last=not options.channels_first)
        try:
            result = {**compare(task, options.peer, options.rounds), "tf32": tf32}
        except RuntimeError as error:
            print(f"gpu.py: {net}, {batch}, {precision}: {error}", file=sys.stderr)
            failed = True
            continue
        why = watch.trouble(*map(round_minima, [result["ours"], *ran(result["peers"])]))
        for line in gpu_report.rows(result):
            watch.write(line, why)
        if options.anyway or not why:
            results.append({**result, "trouble": why})
        for theirs in result["peers"].values():
            failed |= isinstance(theirs, str) and theirs.startswith("failed")
            failed |= gpu_report.losses_differ(result["ours"], theirs, tf32)
    where["versions"] = versions(results)
    if options.json:
        everything = {"machine": where, "options": vars(options), "results": results}
        Path(options.json).write_text(json.dumps(everything, indent=1))
    if options.markdown:
        Path(options.markdown).write_text(gpu_report.markdown(where, vars(options), results))
    if failed:
        print("gpu.py: a side failed, or first losses disagree: see above", file=sys.stderr)
    return int(failed) or watch.status


if __name__ == "__main__":
    sys.exit(main())
