"""The gradients by a net's filters in each way that oneDNN's kernels have: GFLOP/s beside the SGEMM peak.

    pip install ".[onednn]" && python benchmarks/filter_gradients.py [--net NAME] [--batch N] [--threads N]

By processor time where there is one thread, as other work on the machine moves it little, else by the wall. The ways
take turns, and the least time of each counts. The table is that of `python -m singa_lite tune`; nothing is kept.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence

import numpy as np

from tiny import parsed, size

#: Orders of the products whose best rate is the peak, and turns of each.
ORDERS, TURNS = size(((512, 1024, 2048), 5), ((64,), 1))


def sgemm_peak(clock: Callable[[], float]) -> float:
    """GFLOP/s of the best product of matrices by the default device's own kernel."""
    from singa_lite import device

    kernels, settings = device.default().kernels, {"transpose_a": False, "transpose_b": False}
    best = 0.0
    for order in ORDERS:
        a, b = (np.full((order, order), value, np.float32) for value in (0.5, 0.25))
        y = np.empty_like(a)
        scratch = np.empty(kernels.scratch_bytes("matmul", (a, b, y), settings), np.uint8)
        product = kernels.prepare("matmul", (a, b, y), scratch, settings)
        for _ in range(TURNS):
            start = clock()
            product()
            best = max(best, 2 * order**3 / (clock() - start) / 1e9)
    return best


def by_way(timings: Sequence[object]) -> list[str]:
    """Of all calls of a step: what each way takes where it can do the call, the first way elsewhere."""
    names = list(dict.fromkeys(name for timing in timings for name in timing.seconds))
    lines = []
    for name in names:
        seconds = sum(t.call.count * t.seconds.get(name, t.seconds[names[0]]) for t in timings)
        flops = sum(t.call.count * t.call.flops for t in timings)
        lines.append(f"{name:8}  {seconds * 1e3:9.2f} ms a step  {flops / seconds / 1e9:6.1f} GFLOP/s")
    return lines


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default="resnet50")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=("process", "wall"), help="default: process with one thread, else wall")
    options = parsed(parser, batch=1)
    os.environ["SINGA_LITE_THREADS"] = str(options.threads)
    os.environ["SINGA_LITE_TUNING"] = "off"
    from singa_lite import device
    from singa_lite.commands.tune import table, totals
    from singa_lite.commands.tuned_calls import calls_of_net, measured
    from singa_lite.common import machine

    named = options.clock or ("process" if options.threads == 1 else "wall")
    clock = time.process_time if named == "process" else time.perf_counter
    kernels = device.default().kernels
    calls = calls_of_net(options.net, options.batch, kernels)
    print(f"{machine.processor()}, {options.threads} threads, {named} time, {options.net}, batch {options.batch}")
    print(f"SGEMM peak {sgemm_peak(clock):.1f} GFLOP/s")
    timings = [timing for call in calls if (timing := measured(call, 1 << 40, clock)) is not None]
    print(table(timings))
    print("\n".join(by_way(timings)))
    print(totals(timings))
    print(f"SGEMM peak {sgemm_peak(clock):.1f} GFLOP/s")


if __name__ == "__main__":
    main()
