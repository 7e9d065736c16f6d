"""A stacked LSTM, 2 x 256 units, 32 x 100 steps x 256, Adam, beside PyTorch's nn.LSTM: time of a step, memory.

    pip install ".[onednn]" torch && python benchmarks/recurrent.py [--threads N] [--rounds N]

PyTorch is measured both ways: its oneDNN path, which it takes by default, and its own (torch.backends.mkldnn off). Each
measurement is a process of its own, the sides in turn: a second of steps, of which the fastest counts, and VmHWM (the
most resident memory, from the kernel) over the level with batch and library in memory, before the net is made. What
singa_lite plans is printed beside it: parameters, state, batch and arena. Seconds are of the process, over all of its
threads, with --threads 1, the default: these count no other work. With more threads they are of the clock, and what was
measured beside other work is not printed, unless --anyway is given (quiet.py).
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

SAMPLES, STEPS, SIZE, STACKS = size((32, 100, 256, 2), (2, 3, 8, 2))
#: Processes of each side, in turn, and seconds of steps in each at least.
ROUNDS, SECONDS = size((3, 1.0), (1, 0.0))
MIB = 2**20

Step = Callable[[], object]


def batch() -> tuple[np.ndarray, np.ndarray]:
    """x and the wanted output, (n, time, size)."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((SAMPLES, STEPS, SIZE), dtype=np.float32)
    return x, np.zeros_like(x)


def of_singa_lite(x: np.ndarray, y: np.ndarray) -> tuple[Step, dict[str, Any]]:
    """Recorded steps."""
    from singa_lite import FeedForwardNet, layers, loss, optimizer

    net = FeedForwardNet(loss.SquaredError(), seed=0)
    net.add(layers.LSTM("lstm", SIZE, 0.0, STACKS, return_sequences=True, input_sample_shape=(STEPS, SIZE)))
    net.compile(optimizer.Adam(lr=1e-3))
    return lambda: net.train_one_batch(x, y), {"planned": net.plan_batch(SAMPLES).total_bytes}


def of_torch(x: np.ndarray, y: np.ndarray, own_path: bool = False) -> tuple[Step, dict[str, Any]]:
    """The same by PyTorch."""
    import torch

    torch.backends.mkldnn.enabled = not own_path
    net = torch.nn.LSTM(SIZE, SIZE, STACKS, batch_first=True)
    adam = torch.optim.Adam(net.parameters(), 1e-3)
    given, wanted = torch.from_numpy(x), torch.from_numpy(y)

    def step() -> None:
        adam.zero_grad()
        torch.nn.functional.mse_loss(net(given)[0], wanted).backward()
        adam.step()

    return step, {}


SIDES: dict[str, Callable[[np.ndarray, np.ndarray], tuple[Step, dict[str, Any]]]] = {
    "singa_lite": of_singa_lite,
    "torch": of_torch,
    "torch, own path": lambda x, y: of_torch(x, y, own_path=True),
}


def measured(side: str, threads: int) -> dict[str, Any]:
    """Of one process: the fastest step in seconds, and the peak in bytes."""
    clock = time.process_time if threads == 1 else time.perf_counter
    given = batch()
    __import__("torch" if side.startswith("torch") else "singa_lite")
    level = high_water()
    step, facts = SIDES[side](*given)
    step()
    seconds: list[float] = []
    end = clock() + SECONDS
    while len(seconds) < 3 or clock() < end:
        start = clock()
        step()
        seconds.append(clock() - start)
    return {**facts, "seconds": min(seconds), "peak": high_water() - level}


def one(side: str, threads: int) -> dict[str, Any]:
    """`measured`, in a process of its own."""
    command = [sys.executable, str(Path(__file__)), "--one", side, "--threads", str(threads)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment(threads))
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> int:
    """Print a row for each side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--one", choices=SIDES, help="this side in this process, as JSON")
    quiet.add_option(parser)
    options = parsed(parser)
    if options.one:
        print(json.dumps(measured(options.one, options.threads)))
        return 0
    watch = quiet.Watch(options.anyway or options.threads == 1)
    rounds = [{side: one(side, options.threads) for side in SIDES} for _ in range(options.rounds)]
    print("side              seconds   peak MiB   planned MiB")
    for side in SIDES:
        seconds = [each[side]["seconds"] for each in rounds]
        peak = max(each[side]["peak"] for each in rounds) / MIB
        planned = rounds[0][side].get("planned", 0) / MIB
        line = f"{side:16} {min(seconds):8.4f} {peak:10.1f} {planned:13.1f}"
        watch.row(line, *([] if options.threads == 1 else [seconds]))
    return watch.status


if __name__ == "__main__":
    sys.exit(main())
