"""Placement on generated problems: arena against floor, whether it is proved, and the time taken.

    python benchmarks/placement.py [--seconds S] [--only WORD]

*step*: a training step of a random residual net: activations held from the forward to the backward pass, scratch
of single operations, derivatives that die at the next layer, gradients that die at their update.
*cut*: a rectangle of bytes by steps, cut at random into requests without waste, so that the floor can be
reached, but only by a perfect packing; like the hard instances of MiniMalloc, but with a known answer.

Rows that were taken beside other work are not printed, and the exit status is 4, unless --anyway is given (quiet.py).
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator

import quiet
from singa_lite.compiler.placement.check import check
from singa_lite.compiler.placement.planner import plan
from singa_lite.compiler.placement.problem import Request
from tiny import parsed, size

COLUMNS = "problem n floor arena gap% proved seconds method"


def training_step(count: int, seed: int) -> list[Request]:
    """About `count` requests of one training step of a random residual net."""
    draw = random.Random(seed)
    layers = max(count // 9, 1)
    end = 4 * layers + 2  # a forward slot a layer, then derivative, gradient and update slots
    requests: list[Request] = []

    def add(kind: str, layer: int, start: int, stop: int, size: float) -> None:
        rounded = max(int(size) // 64, 1) * 64
        requests.append(Request(f"{kind}{layer}.{len(requests)}", start, stop, rounded))

    image, channels, skip = 112, 64, -1
    for layer in range(layers):
        if draw.random() < 4 / layers and image > 7:
            image, channels = image // 2, channels * 2
        width = channels * draw.choice((1, 1, 1, 2, 4))
        activation, weight = 4 * 16 * image * image * width, 4 * width * channels * draw.choice((1, 1, 9))
        backward = end - 3 * (layer + 1)
        held = draw.random() < 0.8
        add("activation", layer, layer, backward + 2 if held else layer + 2, activation)
        if draw.random() < 0.5:
            add("mask", layer, layer, backward + 1, activation // 4)
        if draw.random() < 0.3:
            add("statistic", layer, layer, backward + 2, 4 * width)
        if skip < 0 and draw.random() < 0.3:
            skip = layer
        elif skip >= 0 and draw.random() < 0.3:
            add("shortcut", layer, skip, layer + 1, activation)
            add("shortcut derivative", layer, backward, end - 3 * (skip + 1) + 1, activation)
            skip = -1
        add("derivative", layer, backward - 3, backward + 1, activation)
        for _ in range(2):
            add("gradient", layer, backward + 1, backward + 3, weight * draw.choice((1, 1, 1 / channels)))
        for step in (layer, backward, backward + 1, backward + 2):
            if draw.random() < 0.6:
                add("scratch", layer, step, step + 1, draw.choice((weight, activation * draw.random(), 4096)))
    return requests


def cut_rectangle(count: int, seed: int, steps: int = 2000, units: int = 1024) -> list[Request]:
    """`count` requests that fill `units` KiB over `steps` steps without waste, by cuts across the whole piece."""
    draw = random.Random(seed)
    pieces = [(0, steps, units)]
    while len(pieces) < count:
        start, stop, size = pieces.pop(max(range(len(pieces)), key=lambda i: _area(pieces[i]) * draw.random()))
        if draw.random() < 0.5 and stop - start > 1:
            middle = draw.randint(start + 1, stop - 1)
            pieces += [(start, middle, size), (middle, stop, size)]
        elif size > 1:
            part = draw.randint(1, size - 1)
            pieces += [(start, stop, part), (start, stop, size - part)]
        else:
            pieces.append((start, stop, size))
    draw.shuffle(pieces)
    return [Request(f"piece{i}", start, stop, size * 1024) for i, (start, stop, size) in enumerate(pieces)]


def _area(piece: tuple[int, int, int]) -> int:
    return (piece[1] - piece[0]) * piece[2]


def problems() -> Iterator[tuple[str, list[Request]]]:
    """Names and requests, small ones first."""
    for count in size((500, 2_000, 5_000, 20_000), (60,)):
        for seed in range(3 if count < 20_000 else 1):
            yield f"step-{count}-{seed}", training_step(count, seed)
    for count in size((30, 60, 100, 200, 400), (8,)):
        for seed in range(3):
            yield f"cut-{count}-{seed}", cut_rectangle(count, seed)


def main() -> int:
    """Plan each problem, check the plan, print a line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="time limit of each plan")
    parser.add_argument("--only", default="", help="problems whose name contains this")
    quiet.add_option(parser)
    arguments = parsed(parser, seconds=0.2)
    watch = quiet.Watch(arguments.anyway)
    form = "{:<14} {:>6} {:>14} {:>14} {:>8} {:>6} {:>8} {}"
    print(form.format(*COLUMNS.split()))
    for name, requests in problems():
        if arguments.only not in name:
            continue
        result = plan(requests, seconds=arguments.seconds)
        check(requests, result.offsets, result.arena)
        gap = f"{100 * (result.arena / result.floor - 1):.4f}"
        proved = "yes" if result.proved else "no"
        seconds = f"{result.seconds:.3f}"
        watch.row(form.format(name, len(requests), result.floor, result.arena, gap, proved, seconds, result.method))
    return watch.status


if __name__ == "__main__":
    sys.exit(main())
