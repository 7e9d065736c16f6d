"""Seconds of planning within budgets: single plans, the error where one is too small, and the curve.

    pip install ".[onednn]" && SINGA_LITE_THREADS=1 python benchmarks/planning.py [--net NET] [--batch N]
        [--share S ...] [--curve]

Nothing is trained. A share is of the free plan's arena, beside all that training holds anyway; one that is below the
least gives the error with its remedies. Seconds are of one core (processor time), recording included; each plan is
asked for by itself. SGD with momentum.
"""

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

from nets import NETS
from singa_lite import FeedForwardNet, optimizer
from singa_lite.graph.budget_error import BudgetError
from tiny import parsed

BATCHES = {"resnet50": 16, "unet": 8, "mobilenet_v2": 32, "densenet121": 16, "vgg16": 8, "lenet": 64}
MIB = 2**20

Answer = TypeVar("Answer")


def timed(ask: Callable[[], Answer]) -> tuple[float, Answer]:
    """Seconds of one core, and the answer."""
    start = time.process_time()
    answer = ask()
    return time.process_time() - start, answer


def told(net: FeedForwardNet, batch: int, budget: int) -> str:
    """What a budget gives, in words."""
    try:
        plan = net.plan_batch(batch, memory_budget=budget)
    except BudgetError as error:
        least = error.plan
        return f"least {error.total_bytes / MIB:.1f} MiB, {least.estimated_slowdown:+.2%}; {'; '.join(error.remedies)}"
    arena = f"total {plan.total_bytes / MIB:.1f}, arena {plan.arena_bytes / MIB:.1f} MiB"
    return f"{arena}, {plan.estimated_slowdown:+.2%}, {plan.recomputed} operations again"


def main() -> None:
    """Print one line for each plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", nargs="*", default=["resnet50", "unet"], choices=BATCHES)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--share", type=float, nargs="*", default=[0.6, 0.4, 0.35, 0.3, 0.1])
    parser.add_argument("--curve", action="store_true")
    options = parsed(parser, net=["lenet"], batch=16, share=[0.9, 0.1], curve=True)
    for name in options.net:
        batch = options.batch or BATCHES[name]
        net = NETS[name].build()
        net.compile(optimizer.SGD(lr=0.1, momentum=0.9))
        seconds, free = timed(lambda net=net, batch=batch: net.plan_batch(batch))
        sizes = f"free {free.total_bytes / MIB:.1f}, arena {free.arena_bytes / MIB:.1f} MiB"
        print(f"{name}, {batch}: {sizes}, {seconds:.1f} s", flush=True)
        for share in options.share:
            budget = free.total_bytes - free.arena_bytes + int(share * free.arena_bytes)
            seconds, words = timed(lambda net=net, batch=batch, budget=budget: told(net, batch, budget))
            print(f"  {share}: budget {budget / MIB:.1f}, {seconds:.1f} s: {words}", flush=True)
        if options.curve:
            seconds, curve = timed(lambda net=net, batch=batch: net.budget_curve(batch))
            points = " ".join(f"{nbytes / MIB:.0f}:{slower:+.1%}" for nbytes, slower in curve)
            print(f"  curve, {seconds:.1f} s: {points}", flush=True)


if __name__ == "__main__":
    main()
