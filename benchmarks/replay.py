"""What a replay costs beside its kernels: a chain of tiny operations under kernels that do nothing.

    pip install . && python benchmarks/replay.py

A net of 1,000 narrow layers is recorded; then the same launches run with every kernel replaced by an empty function of
the same arguments, so that what is left is the replay's own. Beside it, the whole step with its kernels, replayed and
done operation by operation. The fastest and the median; microseconds an operation. What was measured beside other work
is not printed, and the exit status is 4, unless --anyway is given (quiet.py).
"""

import argparse
import statistics
import sys
import time
from itertools import chain

import quiet
from nets import NETS, batch
from singa_lite import FeedForwardNet, device, optimizer
from singa_lite.kernels.kernel_set import Kernel, KernelSet, Launch
from tiny import parsed


def seconds(step, runs: int) -> list[float]:
    """Of each call."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times


def line(title: str, times: list[float], operations: int) -> str:
    """What is printed of a measurement."""
    fastest, median = (value / operations * 1e6 for value in (min(times), statistics.median(times)))
    return f"{title:27} {fastest:7.2f} {median:7.2f}"


class Empty:
    """A kernel that takes what another one does, and computes nothing."""

    def __init__(self, kernel: Kernel) -> None:
        self.supports, self.scratch_bytes = kernel.supports, kernel.scratch_bytes

    def prepare(self, arrays, scratch, settings) -> Launch:
        """Nothing, over the call's arrays."""
        return lambda: None


def empty_kernels(kernels: KernelSet) -> KernelSet:
    """The same names, with those of the sets below."""
    below = {} if kernels.fallback is None else empty_kernels(kernels.fallback).kernels
    return KernelSet("empty", below | {name: Empty(kernel) for name, kernel in kernels.kernels.items()})


def trained(graph: bool) -> tuple[FeedForwardNet, tuple]:
    """The chain after one step, and a batch for it."""
    net = NETS["chain"].build(device.new_cpu())
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9), graph=graph)
    feed = batch("chain", 4, 0)
    net.train_one_batch(*feed)
    return net, feed


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    quiet.add_option(parser)
    watch = quiet.Watch(parsed(parser).anyway)
    net, feed = trained(graph=True)
    operations = net.memory_plan.operations
    eager, eager_feed = trained(graph=False)
    replayed, done = [], []
    for _ in range(5):  # in turn, since the machine may be shared
        replayed.append(seconds(lambda: net.train_one_batch(*feed), 3))
        done.append(seconds(lambda: eager.train_one_batch(*eager_feed), 3))
    why = watch.trouble([min(times) for times in replayed], [min(times) for times in done])

    hollow = device.new_cpu()
    hollow.kernels = empty_kernels(hollow.kernels)
    bare = NETS["chain"].build(hollow)
    bare.compile(optimizer.SGD(lr=0.1, momentum=0.9))
    bare.train_one_batch(*feed)
    overhead = seconds(bare.training_graph.run, 50)

    print(f"{operations} operations; microseconds each\n{'':27} fastest  median")
    watch.row(line("replay beside its kernels", overhead, operations))
    watch.write(line("step, replayed", [*chain(*replayed)], operations), why)
    watch.write(line("step, each operation done", [*chain(*done)], operations), why)
    return watch.status


if __name__ == "__main__":
    sys.exit(main())
