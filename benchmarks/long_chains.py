"""A memory budget on long chains: bytes, estimated extra time and seconds of planning, beside the optimum.

    pip install ".[onednn]" && python benchmarks/long_chains.py [--layers N] [--share S ...]

Nothing is trained: a step of N equal dense layers of 64 with ReLU, batch 512, is recorded and planned, free and within
shares of the free arena. forwards: repeats in times of the forward part's products; optimum: the same by Griewank
and Walther's formula ("Algorithm 799: revolve"), for as many layers as the arena has room for. seconds: of one core,
recording included.
"""

import argparse
import time
from math import comb

from singa_lite import FeedForwardNet, layers, loss, metric, optimizer

WIDTH, BATCH = 64, 512


def net_of(count: int) -> FeedForwardNet:
    """A compiled net of so many dense layers."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy())
    for number in range(count):
        first = {"input_sample_shape": (WIDTH,)} if number == 0 else {}
        net.add(layers.Dense(f"dense{number}", WIDTH, **first))
        net.add(layers.Activation(f"relu{number}", "relu"))
    net.add(layers.Dense("scores", 4))
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9))
    return net


def optimum(count: int, kept: int) -> float:
    """The least number of more forwards of so many equal layers, where so many values have room."""
    times = next(times for times in range(1, count + 1) if comb(kept + times, kept) >= count)
    return (times * count - comb(kept + times, kept + 1) - (count - 1)) / count


def main() -> None:
    """Print one line for each share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=1000)
    parser.add_argument("--share", type=float, nargs="*", default=[0.5, 0.1, 1 / 30])
    options = parser.parse_args()
    net = net_of(options.layers)
    start = time.process_time()
    free = net.plan_batch(BATCH, samples=BATCH)
    print(f"free: arena {free.arena_bytes:,} bytes, {free.operations} operations, {time.process_time() - start:.1f} s")
    for share in options.share:
        start = time.process_time()
        budget = free.total_bytes - free.arena_bytes + int(share * free.arena_bytes)
        plan = net.plan_batch(BATCH, samples=BATCH, memory_budget=budget)
        seconds = time.process_time() - start
        kept = max(1, plan.arena_bytes // (4 * BATCH * WIDTH) - 2)  # beside two that backward works on
        least = optimum(options.layers, kept)
        print(
            f"{share:.3f}: arena {plan.arena_bytes:,} bytes, {plan.estimated_slowdown:+.1%}, "
            f"{len(plan.repeats) / options.layers:.3f} forwards (optimum {least:.3f}), {seconds:.1f} s"
        )


if __name__ == "__main__":
    main()
