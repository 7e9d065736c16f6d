"""What the host pays for a training step on a GPU beside the launch of its graph: on a stand-in that does nothing.

    pip install ".[cudatest]" && python benchmarks/host_cost.py [NET] [--batch N] [--profile]

A net is trained until its step is one graph launch, on a device whose CuPy and driver are those of the tests
(tests/cuda_host); from then on these do nothing. What is left is the package's own: checks of the batch, its copy to
pinned memory, copies asked for, the launch, the results. Microseconds, the fastest and the median of many steps, and
beside them the copy of the batch by itself, which no step can do without. --profile: Python's profile of the steps.
What was measured beside other work is not printed, and the exit status is 4, unless --anyway is given (quiet.py).
"""

import argparse
import cProfile
import os
import pstats
import statistics
import sys
import time
from itertools import chain
from pathlib import Path

import numpy as np

import quiet
from nets import NETS, batch
from singa_lite import optimizer
from tiny import parsed, size

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "cuda_host"))
os.environ["SINGA_LITE_TUNING"] = "off"
STEPS = size(2000, 8)


def seconds(work, times: int = STEPS) -> list[float]:
    """Of each call, in order of length."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return sorted(found)


def line(title: str, times: list[float]) -> str:
    """What is printed of a measurement."""
    return f"{title:34} {times[0] * 1e6:7.1f} {statistics.median(times) * 1e6:7.1f}"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", nargs="?", default="lenet", choices=NETS)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--profile", action="store_true")
    quiet.add_option(parser)
    asked = parsed(parser, batch=2)
    watch = quiet.Watch(asked.anyway)
    from late_gpu import late_gpu

    feed = batch(asked.net, asked.batch, 0)
    with late_gpu(0) as (_, driver, on):
        net = NETS[asked.net].build(on)
        net.compile(optimizer.SGD(lr=0.1, momentum=0.9))
        for _ in range(3):
            net.train_one_batch(*feed)
        with driver.idle():
            whole = [seconds(lambda: net.train_one_batch(*feed), STEPS // 4) for _ in range(4)]
            if asked.profile:
                profile = cProfile.Profile()
                profile.runcall(seconds, lambda: net.train_one_batch(*feed), STEPS // 4)
                pstats.Stats(profile).sort_stats("tottime").print_stats(40)
    held = [np.empty_like(array) for array in feed]
    copied = seconds(lambda: [np.copyto(*each) for each in zip(held, feed, strict=True)])
    why = watch.trouble([times[0] for times in whole], [copied[0]])
    print(f"{'':34} fastest  median")
    watch.write(line(f"a step of {asked.net}, batch {asked.batch}", sorted(chain(*whole))), why)
    watch.write(line("the copy of its batch alone", copied), why)
    return watch.status


if __name__ == "__main__":
    sys.exit(main())
