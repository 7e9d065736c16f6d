"""Nets of parallel branches: a step by workers, each with a share of the cores, and by all cores in each operation.

    pip install ".[onednn]" && python benchmarks/branches.py [--net NET ...] [--batch N ...] [--size N] [--channels N]
                                                             [--workers N] [--rounds N]

Both sides have the same cores: `compile(order="dependencies", workers=N)` and the recorded order, from equal weights,
over one batch, in one process, in turn within each round (A B, B A, ...). inception: four cells of GoogLeNet's kind
(Szegedy and others, 2014: 1x1; 1x1, 3x3; 1x1, 5x5; pooling, 1x1; normalisation and ReLU behind each convolution).
nasnet: four cells of five pairs of separable convolutions and poolings (Zoph and others, 2018, figure 4, normal cell).
--size, --channels: of a cell's maps (14 and 64). Times are medians of a round's steps; the ratio is taken within each
round, and the median of the rounds' ratios is printed with their spread: above 1 workers are faster. fastest: the ratio
of each side's fastest step of all rounds. beside others: how many operations run beside others.
Rows that were taken beside other work are not printed, and the exit status is 4, unless --anyway is given (quiet.py).
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import numpy as np

import quiet
from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer
from singa_lite.layer import Layer
from tiny import parsed, size

CLASSES, CELLS = 10, size(4, 1)
#: Steps of a side in a round, and before the first.
STEPS, WARM = size((12, 3), (2, 2))


class Builder:
    """Adds layers to a net, each under a name of its own. size: of its pictures."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), seed=3)

    def convolution(self, source: Layer | None, count: int, kernel: int) -> Layer:
        """A convolution, its normalisation and ReLU."""
        shape = {} if source is not None else {"input_sample_shape": (3, self._size, self._size)}
        made = self.net.add(layers.Conv2D(None, count, kernel, use_bias=False, **shape), source)
        return self._behind(made)

    def separable(self, source: Layer, count: int, kernel: int) -> Layer:
        """A depthwise convolution and one of 1x1, their normalisation and ReLU."""
        deep = self.net.add(layers.DepthwiseConv2D(None, kernel, use_bias=False), source)
        return self._behind(self.net.add(layers.Conv2D(None, count, 1, use_bias=False), deep))

    def pooled(self, source: Layer, kind: type[Layer]) -> Layer:
        """Of 3x3, to the same size."""
        return self.net.add(kind(None, 3, 1), source)

    def _behind(self, made: Layer) -> Layer:
        return self.net.add(layers.Activation(None, "relu"), self.net.add(layers.BatchNormalization(None), made))

    def done(self, last: Layer) -> FeedForwardNet:
        """The net, which ends with scores."""
        self.net.add(layers.Dense(None, CLASSES), self.net.add(layers.GlobalAvgPooling2D(None), last))
        return self.net


def inception(size: int, channels: int) -> FeedForwardNet:
    """Cells of four branches."""
    build = Builder(size)
    x = build.convolution(None, channels, 3)
    for _ in range(CELLS):
        branches = [
            build.convolution(x, channels // 4, 1),
            build.convolution(build.convolution(x, channels // 4, 1), channels // 2, 3),
            build.convolution(build.convolution(x, channels // 8, 1), channels // 8, 5),
            build.convolution(build.pooled(x, layers.MaxPooling2D), channels // 8, 1),
        ]
        x = build.net.add(layers.Concat(None, 1), branches)
    return build.done(x)


def nasnet(size: int, channels: int) -> FeedForwardNet:
    """Cells of five sums of two branches each, of the last cell's output and the one before."""
    build = Builder(size)
    before = x = build.convolution(None, channels, 3)
    width = channels // 4
    for _ in range(CELLS):
        left, right = build.convolution(x, width, 1), build.convolution(before, width, 1)
        pairs = [
            (build.separable(left, width, 3), left),
            (build.separable(right, width, 3), build.separable(left, width, 5)),
            (build.pooled(left, layers.AvgPooling2D), right),
            (build.pooled(right, layers.AvgPooling2D), build.pooled(right, layers.MaxPooling2D)),
            (build.separable(right, width, 5), build.separable(right, width, 3)),
        ]
        sums = [build.net.add(layers.Merge(None), list(pair)) for pair in pairs]
        before, x = x, build.net.add(layers.Concat(None, 1), sums)
    return build.done(x)


NETS = {"inception": inception, "nasnet": nasnet}


def milliseconds(net: FeedForwardNet, x: np.ndarray, y: np.ndarray) -> list[float]:
    """Of each step of a round."""
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        net.train_one_batch(x, y)
        times.append(1e3 * (time.perf_counter() - start))
    return times


def measured(name: str, batch: int, options: argparse.Namespace, watch: quiet.Watch) -> None:
    """Print a row."""
    rng = np.random.default_rng(batch)
    x = rng.standard_normal((batch, 3, options.size, options.size)).astype("f")
    y = rng.integers(0, CLASSES, batch)
    sides = [NETS[name](options.size, options.channels) for _ in range(2)]
    sides[0].compile(optimizer.SGD(lr=0.01, momentum=0.9))
    sides[1].compile(optimizer.SGD(lr=0.01, momentum=0.9), order="dependencies", workers=options.workers)
    losses = [[float(net.train_one_batch(x, y)[0]) for _ in range(WARM)] for net in sides]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    rounds: list[list[list[float]]] = [[], []]
    watch.trouble()  # what came before does not count
    for turn in range(options.rounds):
        for side in (0, 1) if turn % 2 else (1, 0):
            rounds[side].append(milliseconds(sides[side], x, y))
    times = [[median(steps) for steps in side] for side in rounds]
    ratios = sorted(one / other for one, other in zip(*times, strict=True))
    fastest = [min(map(min, side)) for side in rounds]
    plans = [net.memory_plan for net in sides]
    lanes = sum(sum(wave) for wave in plans[1].placed.planned.waves if len(wave) > 1)
    arenas = " | ".join(f"{plan.arena_bytes / 2**20:.2f}" for plan in plans)
    line = (
        f"| {name} | {batch} | {median(times[0]):.2f} | {median(times[1]):.2f} | {median(ratios):.2f} "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f}) | {fastest[0] / fastest[1]:.2f} | "
        f"{lanes} of {plans[1].operations} | {arenas} |"
    )
    watch.row(line, *times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", nargs="*", default=[*NETS], choices=NETS)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--size", type=int, default=14)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--workers", type=int, default=device.threads())
    parser.add_argument("--rounds", type=int, default=7)
    quiet.add_option(parser)
    options = parsed(parser, batch=[2], size=6, channels=8, rounds=2)
    watch = quiet.Watch(options.anyway)
    print(f"{device.threads()} threads, {options.workers} workers, {device.default()}\n")
    print("| net | batch | all cores, ms | workers, ms | ratio | fastest | beside others | arena, MiB | theirs |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in options.net:
        for batch in options.batch:
            measured(name, batch, options, watch)
    raise SystemExit(watch.status)


if __name__ == "__main__":
    main()
