"""Long chains: a memory budget's bytes, estimated extra time and planning beside the optimum; planning of both orders.

    pip install ".[onednn]" && python benchmarks/long_chains.py [--layers N] [--share S ...]
    pip install ".[onednn]" && python benchmarks/long_chains.py --operations 1000 4000 8000 20000

Nothing is trained: a step of N equal dense layers of 64 with ReLU, batch 512, is recorded and planned, free, and its
record within shares of the free arena: a memory budget would also count what the process takes for so many calls.
forwards: repeats in times of the forward part's products; optimum: the same by Griewank and Walther's formula
("Algorithm 799: revolve"), for as many layers as the arena has room for. seconds: of one core, recording included in
the free plan's. operations: steps of about so many are planned in the recorded order and in that of dependencies
instead, without a budget; seconds of one core from the whole record to the placed and checked plan, and the proof.
"""

import argparse
import time
from math import comb

from singa_lite import FeedForwardNet, layers, loss, metric, optimizer
from singa_lite.compiler.lower import Lowering
from singa_lite.compiler.placed import prove
from singa_lite.compiler.recompute.budget import estimated_slowdown
from tiny import parsed, size

WIDTH, BATCH = size((64, 512), (16, 64))
#: Operations of a layer's forward and backward part and its updates.
PER_LAYER = 7


def net_of(count: int, order: str = "recorded") -> FeedForwardNet:
    """A compiled net of so many dense layers."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy())
    for number in range(count):
        first = {"input_sample_shape": (WIDTH,)} if number == 0 else {}
        net.add(layers.Dense(f"dense{number}", WIDTH, **first))
        net.add(layers.Activation(f"relu{number}", "relu"))
    net.add(layers.Dense("scores", 4))
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9), order=order)
    return net


def optimum(count: int, kept: int) -> float:
    """The least number of more forwards of so many equal layers, where so many values have room."""
    times = next(times for times in range(1, count + 1) if comb(kept + times, kept) >= count)
    return (times * count - comb(kept + times, kept + 1) - (count - 1)) / count


def in_both_orders(operations: int) -> None:
    """Print the seconds of planning about so many operations."""
    told = []
    for order in ("recorded", "dependencies"):
        net = net_of(max(1, operations // PER_LAYER), order)
        net.plan_batch(BATCH, samples=BATCH)  # what is made once
        start = time.process_time()
        plan = net.plan_batch(BATCH, samples=BATCH)
        planned = time.process_time() - start
        prove(plan.placed)
        proved = time.process_time() - start - planned
        told.append(f"{order} {planned:.1f} s, proof {proved:.1f} s, arena {plan.arena_bytes:,} bytes")
    print(f"{plan.operations} operations: {'; '.join(told)}", flush=True)


def main() -> None:
    """Print one line for each share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=1000)
    parser.add_argument("--share", type=float, nargs="*", default=[0.5, 0.1, 1 / 30])
    parser.add_argument("--operations", type=int, nargs="*", default=[])
    options = parsed(parser, layers=12, share=[0.5])
    for operations in options.operations:
        in_both_orders(operations)
    if options.operations:
        return
    net = net_of(options.layers)
    start = time.process_time()
    free = net.plan_batch(BATCH, samples=BATCH)
    print(f"free: arena {free.arena_bytes:,} bytes, {free.operations} operations, {time.process_time() - start:.1f} s")
    searched = Lowering(free.placed.recorded)
    for share in options.share:
        start = time.process_time()
        placed = searched.within(int(share * free.arena_bytes))
        seconds = time.process_time() - start
        kept = max(1, placed.arena_bytes // (4 * BATCH * WIDTH) - 2)  # beside two that backward works on
        repeats = sum(instruction.repeats is not None for instruction in placed.planned.instructions)
        least = optimum(options.layers, kept)
        print(
            f"{share:.3f}: arena {placed.arena_bytes:,} bytes, {estimated_slowdown(placed.planned, placed.free):+.1%}, "
            f"{repeats / options.layers:.3f} forwards (optimum {least:.3f}), {seconds:.1f} s"
        )


if __name__ == "__main__":
    main()
