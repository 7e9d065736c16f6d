"""A mixture in which a segmentation fault was once seen: copies, a fork, threads, failing callbacks and interrupts.

    python tests/mixture.py [seed]

One process does all of it, and prints "whole" at its end; what it finds wrong is an error. `tests/test_mixture.py` runs
it, and so can valgrind or a sanitizer of addresses: MIXTURE_SLOWER=40 says how many times slower these are.
"""

from __future__ import annotations

import copy
import faulthandler
import os
import random
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

import numpy as np

from singa_lite import FeedForwardNet, GraphError, device, layers, loss, metric, optimizer
from singa_lite.fit import Callback, Training

INTERRUPTED = 40
SLOWER = float(os.environ.get("MIXTURE_SLOWER", "1"))


def data(seed: int, samples: int = 24) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((samples, 3, 10, 8)).astype("f"), rng.integers(0, 5, samples)


def net_of(on: Any, width: int = 6, graph: bool = True) -> FeedForwardNet:
    """Convolutions, normalisation, pooling, dropout, and layers whose work is shared by workers."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device=on, seed=3)
    net.add(layers.Conv2D("conv", width, 3, input_sample_shape=(3, 10, 8)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("relu"))
    net.add(layers.MaxPooling2D("pool", 2, 2))
    net.add(layers.Conv2D("again", 2 * width, 3))
    net.add(layers.Reshape("steps", (2 * width, -1)))
    net.add(layers.LSTM("lstm", 7))
    net.add(layers.Dropout("drop", 0.2))
    net.add(layers.Dense("scores", 5))
    net.compile(optimizer.Adam(0.01), graph=graph)
    return net


def train(net: FeedForwardNet, seed: int, steps: int = 4) -> None:
    """Batches of several sizes, so that the arena grows on the way."""
    x, y = data(seed)
    for number in range(steps):
        size = (5, 16, 3, 24)[number % 4]
        found, _ = net.train_one_batch(x[:size], y[:size])
        assert np.isfinite(float(found))
    net.predict(x[:7])
    net.evaluate(x, y, batch_size=9)


def copies() -> None:
    net = net_of(device.new_cpu())
    train(net, 1)
    twin = copy.deepcopy(net)
    train(twin, 2)
    train(net, 2)
    for one, other in zip(net.param_values(), twin.param_values(), strict=True):
        assert one.array.tobytes() == other.array.tobytes()
    del net
    train(twin, 3)


def forked() -> None:
    """A child that trains the net of its parent, and one of its own."""
    net = net_of(device.new_cpu())
    train(net, 4, 2)
    child = os.fork()
    if not child:
        code = 1
        try:
            train(net, 5)
            train(net_of(device.new_cpu(), 5), 6)
            code = 0
        finally:
            os._exit(code)
    train(net, 5)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with status {status}"


def in_threads(works: list[Any]) -> None:
    errors: list[BaseException] = []

    def run(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def threads_with_nets() -> None:
    def work(number: int) -> None:
        net = net_of(device.new_cpu(), 4 + number, graph=number % 3 != 2)
        train(net, number)
        train(copy.deepcopy(net), number)

    in_threads([lambda number=number: work(number) for number in range(6)])


def threads_with_one_net() -> None:
    net = net_of(device.new_cpu())

    def work() -> None:
        for seed in range(3):
            with suppress(GraphError):
                train(net, seed)

    in_threads([work] * 3)
    if net.unfinished_at:
        net.discard_step()
    train(net, 1)


class Failing(Callback):
    """Raises at its batch."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_batch(self, training: Training) -> None:
        self.at -= 1
        if not self.at:
            raise RuntimeError("a callback's")


def failing_callbacks() -> None:
    net = net_of(device.new_cpu())
    x, y = data(8)
    for at in (1, 2, 5):
        try:
            net.fit(x, y, batch_size=7, epochs=3, verbose=False, callbacks=[Failing(at)], prefetch=2)
        except RuntimeError:
            continue
        raise AssertionError("the callback's error was lost")
    train(net, 9)


def interrupts(rng: random.Random) -> None:
    """Steps that a timer interrupts, of new and of old nets, recorded and done at once."""
    came = 0
    net = net_of(device.new_cpu())
    for number in range(INTERRUPTED):
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0005, 0.05) * SLOWER)
            if number % 4 == 0:
                net = net_of(device.new_cpu(), 3 + number % 5, graph=number % 8 != 4)
            while True:
                if net.unfinished_at:
                    net.discard_step()
                train(net, number)
        except KeyboardInterrupt:
            came += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    assert came == INTERRUPTED
    if net.unfinished_at:
        net.discard_step()
    x, y = data(11)
    net.train_one_batch(x, y)


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    faulthandler.enable()
    faulthandler.dump_traceback_later(300 * SLOWER, exit=True)
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.randrange(2**32)
    print(f"seed {seed}", flush=True)
    signal.signal(signal.SIGALRM, interrupt)
    for each in (copies, forked, threads_with_nets, threads_with_one_net, failing_callbacks):
        each()
    interrupts(random.Random(seed))
    print("whole", flush=True)


if __name__ == "__main__":
    main()
