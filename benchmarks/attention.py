"""Attention alone, 1 x 8 heads x 64, forward and backward, beside PyTorch's scaled_dot_product_attention: time, memory.

    pip install ".[onednn]" torch && python benchmarks/attention.py [--lengths 512 2048] [--causal] [--threads N]

Each measurement is a process of its own, the sides in turn: a few calls of a length, of which the fastest counts, and
VmHWM (the most resident memory, from the kernel) over the level with the inputs in memory, before the first call. What
singa_lite plans is printed beside it: its arena, scratch included. Seconds are of the process, over all of its threads,
with --threads 1, the default: these count no other work. With more threads they are of the clock, and what was measured
beside other work is not printed, unless --anyway is given (quiet.py).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import quiet
from peak_memory import high_water
from peers.process import environment
from tiny import parsed, size

HEADS, SIZE = 8, 64
LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384)
#: Processes of each side and length, in turn, and seconds of calls in each at least.
ROUNDS, SECONDS = size((3, 1.0), (1, 0.0))
MIB = 2**20
SIDES = "singa_lite", "torch"

Call = Callable[[], object]


def inputs(length: int) -> list[np.ndarray]:
    """q, k, v and dy, (1, length, heads, size)."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal((1, length, HEADS, SIZE), dtype=np.float32) for _ in range(4)]


def of_singa_lite(length: int, causal: bool) -> tuple[Call, dict[str, Any]]:
    """The recorded calls, and what is planned for them. The results are held, as whoever is given them would."""
    from singa_lite import device, tensor

    cpu = device.cpu()
    q, k, v, dy = (tensor.from_numpy(array, cpu) for array in inputs(length))
    settings: dict[str, object] = {"causal": causal, "scale": SIZE**-0.5}
    with cpu.recording() as graph:
        y, lse = cpu.empty(q.shape, q.dtype), cpu.empty((1, HEADS, length), q.dtype)
        gradients = [cpu.empty(q.shape, q.dtype) for _ in range(3)]
        cpu.run("attention", q, k, v, None, None, None, y, lse, **settings)
        cpu.run("attention_derivative", dy, q, k, v, None, None, None, y, lse, *gradients, **settings)
    graph.prepare()
    held = [y, *gradients]

    def call() -> None:
        graph.run()
        held[0].size()

    return call, {"arena": graph.memory_plan.arena_bytes, "kernels": cpu.kernels.name}


def of_torch(length: int, causal: bool) -> tuple[Call, dict[str, Any]]:
    """The same by PyTorch, heads before the length, as it has them."""
    import torch

    q, k, v, dy = (torch.from_numpy(array).transpose(1, 2).contiguous() for array in inputs(length))
    leaves = [one.requires_grad_() for one in (q, k, v)]
    attend = torch.nn.functional.scaled_dot_product_attention

    def call() -> None:
        attend(q, k, v, is_causal=causal).backward(dy)
        for one in leaves:
            one.grad = None

    return call, {"version": torch.__version__}


def measured(side: str, length: int, causal: bool, threads: int) -> dict[str, Any]:
    """Of one process: the fastest call in seconds, and the peak in bytes."""
    call, facts = (of_singa_lite if side == "singa_lite" else of_torch)(length, causal)
    clock = time.process_time if threads == 1 else time.perf_counter
    level, seconds, end = high_water(), [], 0.0
    call()
    end = clock() + SECONDS
    while len(seconds) < 2 or clock() < end:
        start = clock()
        call()
        seconds.append(clock() - start)
    return {**facts, "seconds": min(seconds), "peak": high_water() - level}


def one(side: str, options: argparse.Namespace, length: int) -> dict[str, Any]:
    """`measured`, in a process of its own."""
    command = [sys.executable, str(Path(__file__)), "--one", side, "--lengths", str(length)]
    command += ["--threads", str(options.threads), *(["--causal"] if options.causal else [])]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment(options.threads))
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> int:
    """Print a row for each length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--one", choices=SIDES, help="this side in this process, as JSON")
    quiet.add_option(parser)
    options = parsed(parser, lengths=[16])
    if options.one:
        print(json.dumps(measured(options.one, options.lengths[0], options.causal, options.threads)))
        return 0
    watch = quiet.Watch(options.anyway or options.threads == 1)
    print("length   s: ours  torch  ours / torch   peak MiB: ours  torch   arena MiB")
    for length in options.lengths:
        rounds = [{side: one(side, options, length) for side in SIDES} for _ in range(options.rounds)]
        seconds = {side: [each[side]["seconds"] for each in rounds] for side in SIDES}
        ours, theirs = (min(seconds[side]) for side in SIDES)
        peaks = [max(each[side]["peak"] for each in rounds) / MIB for side in SIDES]
        arena = rounds[0]["singa_lite"]["arena"] / MIB
        line = (
            f"{length:6} {ours:10.4f} {theirs:7.4f} {ours / theirs:9.2f} {peaks[0]:17.1f} {peaks[1]:7.1f} {arena:9.1f}"
        )
        watch.row(line, *([] if options.threads == 1 else seconds.values()))
    return watch.status


if __name__ == "__main__":
    sys.exit(main())
