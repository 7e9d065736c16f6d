"""What it costs on a CPU to keep a memory budget by a temporary file, beside repeats: steps of a residual net.

    pip install . && python benchmarks/offload.py /folder/for/the/file --net resnet18_32 --batch 64 --share 0.6

One net is trained free, within a share of the free plan's total by repeats, and by copies alone: the link is said to be
as quick as memory for that, as its true rate would mostly choose repeats. The rounds are interleaved; printed are the
fastest step, the median of the rounds' ratios to the free step, the same of the process's seconds on all cores (which
work beside it changes less; the system's own writing to the disk is not in them), and what the copies would take at the
rate that `runtime/host.py` states. What was measured beside other work is not printed, and the exit status is 4, unless
--anyway is given (quiet.py).
"""

import argparse
import statistics
import sys
import time
from itertools import starmap

import quiet
from nets import NETS, batch
from singa_lite import FeedForwardNet, device, optimizer
from singa_lite.compiler.recompute.transfers import copy_seconds
from singa_lite.runtime.host import Host
from singa_lite.runtime.host_memory import Link
from tiny import parsed

WARM_UP = 2
#: Of one step: by the clock, and of all cores.
Seconds = tuple[float, float]


def trained(name: str, feed: tuple, **compiling) -> FeedForwardNet:
    """The net after its first steps."""
    net = NETS[name].build(device.new_cpu())
    net.compile(optimizer.SGD(lr=0.01, momentum=0.9), **compiling)
    for _ in range(WARM_UP):
        net.train_one_batch(*feed)
    return net


def seconds(net: FeedForwardNet, feed: tuple) -> tuple[float, float]:
    """Of one step, and of all cores for it."""
    start, used = time.perf_counter(), time.process_time()
    float(net.train_one_batch(*feed)[0])
    return time.perf_counter() - start, time.process_time() - used


def median_ratio(own: list[float], free: list[float]) -> float:
    """Of the rounds."""
    return statistics.median(starmap(lambda one, other: one / other, zip(own, free, strict=True)))


def line(title: str, net: FeedForwardNet, times: list[Seconds], free: list[Seconds], link: Link) -> str:
    """What is printed of one of the three."""
    plan = net.memory_plan
    copies = [size for size in plan.placed.planned.host_sizes.values() for _ in range(2)]
    estimated = sum(copy_seconds(size, link) for size in copies)
    wall, cores = (median_ratio(*pair) for pair in zip(zip(*times, strict=True), zip(*free, strict=True), strict=True))
    return (
        f"{title:9} {(plan.arena_bytes + plan.held_bytes) / 2**20:9.1f} {plan.recomputed:9} {plan.offloaded:9} "
        f"{plan.offloaded_bytes / 2**20:9.1f} {min(times)[0]:9.3f} {wall:9.3f} {cores:9.3f} {estimated:9.3f}"
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--net", choices=sorted(NETS), default="resnet18_32")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--share", type=float, default=0.6)
    parser.add_argument("--rounds", type=int, default=7)
    quiet.add_option(parser)
    options = parsed(parser, net="digits_cnn", batch=16, share=0.9, rounds=1)
    watch = quiet.Watch(options.anyway)
    feed = batch(options.net, options.batch)
    free = trained(options.net, feed)
    budget = int(free.plan_batch(options.batch).total_bytes * options.share)
    repeating = trained(options.net, feed, memory_budget=budget)
    link, Host.link = Host.link, Link(1.0, beside=False)
    copying = trained(options.net, feed, memory_budget=budget, offload=options.folder)
    nets = {"free": free, "repeats": repeating, "copies": copying}
    times: dict[str, list[Seconds]] = {title: [] for title in nets}
    for _ in range(options.rounds):
        for title, net in nets.items():
            times[title].append(seconds(net, feed))
    why = watch.trouble(*([wall for wall, _ in rounds] for rounds in times.values()))
    heads = ("MiB", "repeats", "copied", "MiB", "s, best", "ratio", "cores", "s, est.")
    print(" ".join([" " * 9, *(f"{head:>9}" for head in heads)]))
    for title, net in nets.items():
        watch.write(line(title, net, times[title], times["free"], link), why)
    return watch.status


if __name__ == "__main__":
    sys.exit(main())
