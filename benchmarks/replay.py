"""What a replay costs beside its kernels: a chain of tiny operations under kernels that do nothing.

    pip install . && python benchmarks/replay.py

A net of 1,000 narrow layers is recorded; then the same launches run with every kernel replaced by an empty function of
the same arguments, so that what is left is the replay's own. Beside it, the whole step with its kernels, replayed and
done operation by operation. Medians; microseconds an operation.
"""

import statistics
import time

from nets import NETS, batch
from singa_lite import FeedForwardNet, device, optimizer
from singa_lite.kernels.kernel_set import Kernel, KernelSet


def seconds(step, runs: int) -> float:
    """Median seconds of a call."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def empty_kernels(kernels: KernelSet) -> KernelSet:
    """The same names, scratch rules and arguments; nothing is computed."""
    empty = {name: Kernel(lambda *arrays, **settings: None, kernel.scratch) for name, kernel in kernels.kernels.items()}
    return KernelSet("empty", empty)


def trained(graph: bool) -> tuple[FeedForwardNet, tuple]:
    """The chain after one step, and a batch for it."""
    net = NETS["chain"].build(device.new_cpu())
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9), graph=graph)
    feed = batch("chain", 4, 0)
    net.train_one_batch(*feed)
    return net, feed


def main() -> None:
    """Measure and print."""
    net, feed = trained(graph=True)
    operations = net.memory_plan.operations
    eager, eager_feed = trained(graph=False)
    replayed, done = [], []
    for _ in range(5):  # in turn, since the machine may be shared
        replayed.append(seconds(lambda: net.train_one_batch(*feed), 3))
        done.append(seconds(lambda: eager.train_one_batch(*eager_feed), 3))

    hollow = device.new_cpu()
    hollow.kernels = empty_kernels(hollow.kernels)
    bare = NETS["chain"].build(hollow)
    bare.compile(optimizer.SGD(lr=0.1, momentum=0.9))
    bare.train_one_batch(*feed)
    overhead = seconds(bare.training_graph.run, 50)

    print(f"{operations} operations")
    print(f"replay beside its kernels   {overhead / operations * 1e6:6.2f} microseconds an operation")
    print(f"step, replayed              {statistics.median(replayed) / operations * 1e6:6.2f}")
    print(f"step, each operation done   {statistics.median(done) / operations * 1e6:6.2f}")


if __name__ == "__main__":
    main()
