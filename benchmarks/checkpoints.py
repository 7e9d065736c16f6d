"""How long training stands still for a checkpoint, and how long the write takes: blocking, and in the background.

    pip install . && python benchmarks/checkpoints.py

The net is Dense(WIDTH) twice and Dense(10), plain SGD; a checkpoint is due every EVERY steps. "stands still" is the
time that the training's thread spends on a checkpoint: in the callback, at the beginning of the next step, and where
that step waits for the copy. "step" is a step without a write under way, "step beside" one that a write is beside.
Medians without the first checkpoint, which makes the memory of the copy; a round is one training of each kind. Rows
that were taken beside other work are not printed, and the exit status is 4, unless --anyway is given (quiet.py).
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import quiet
from singa_lite import FeedForwardNet, layers, loss, optimizer
from singa_lite.fit import Callback, Training
from singa_lite.graph.graph import Pause
from singa_lite.snapshots import Checkpoint
from tiny import parsed


def make_net(width: int) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=1)
    net.add(layers.Dense("first", width, input_sample_shape=(width,)))
    net.add(layers.Dense("second", width))
    net.add(layers.Dense("scores", 10))
    net.compile(optimizer.SGD(lr=0.01))
    return net


class Clock(Callback):
    """Times what a Checkpoint does to a training, from around it. Seconds of each checkpoint, write and step."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.still: list[float] = []
        self.writes: list[float] = []
        self.steps: list[float] = []
        self.steps_beside: list[float] = []
        self._last = 0.0
        self._in_callback = 0.0

    def on_start(self, training: Training) -> None:
        self.checkpoint.on_start(training)
        writer = self.checkpoint._saver._writer
        writer.start = self._timed_write(writer.start)  # type: ignore[method-assign]
        readers = training.net.trainer.runner.readers
        begin = readers.begin

        def timed_begin() -> Pause | None:
            start = time.perf_counter()
            pause = begin()
            if pause is None:
                return None
            self.still.append(self._in_callback + time.perf_counter() - start)
            return Pause(pause.blocks, lambda: self._wait(pause))

        readers.begin = timed_begin

    def on_batch(self, training: Training) -> None:
        start, writes, busy = time.perf_counter(), len(self.writes), self.checkpoint._saver.busy
        if self._last:
            (self.steps_beside if busy else self.steps).append(start - self._last)
        self.checkpoint.on_batch(training)
        self._last = time.perf_counter()
        self._in_callback = self._last - start
        if not self.checkpoint.background and len(self.writes) > writes:
            self.still.append(self._in_callback)

    def on_end(self, training: Training, error: BaseException | None) -> None:
        self.checkpoint.on_end(training, error)

    def _wait(self, pause: Pause) -> None:
        start = time.perf_counter()
        pause.wait()
        self.still[-1] += time.perf_counter() - start

    def _timed_write(self, start: Callable[[Any], None]) -> Callable[[Any], None]:
        def timed(work: Callable[[], None]) -> None:
            def run() -> None:
                begun = time.perf_counter()
                work()
                self.writes.append(time.perf_counter() - begun)

            start(run)

        return timed


def trained(given: argparse.Namespace, background: bool) -> Clock:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(given.batch * given.every * (given.checkpoints + 1), given.width)).astype("f")
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        clock = Clock(Checkpoint(folder, every_steps=given.every, keep=2, background=background))
        make_net(given.width).fit(
            x, rng.integers(0, 10, len(x)), batch_size=given.batch, verbose=False, callbacks=[clock]
        )
    return clock


def milliseconds(seconds: list[float]) -> str:
    return f"{1e3 * statistics.median(seconds):12.2f}" if seconds else f"{'-':>12}"


def main() -> int:
    """Print a table, a row a round."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=3550, help="101 MB of parameters")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--every", type=int, default=12)
    parser.add_argument("--checkpoints", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="on the disk that is measured")
    quiet.add_option(parser)
    given = parsed(parser, width=20, batch=4, every=3, checkpoints=2, rounds=1)
    watch = quiet.Watch(given.anyway)
    print(f"{'ms':12}{'stands still':>13}{'write':>12}{'share':>8}{'step':>12}{'step beside':>12}")
    for _ in range(given.rounds):
        for background in (False, True):
            clock = trained(given, background)
            still, writes = clock.still[1:], clock.writes[1:]  # none stands still where the net is small
            share = f"{statistics.median(still) / statistics.median(writes):8.1%}" if still else f"{'-':>8}"
            watch.row(
                f"{'background' if background else 'blocking':12}{milliseconds(still):>13}"
                f"{milliseconds(writes)}{share}{milliseconds(clock.steps[1:])}"
                f"{milliseconds(clock.steps_beside)}"
            )
    return watch.status


if __name__ == "__main__":
    sys.exit(main())
