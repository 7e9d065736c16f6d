"""A run of `fit` by several processes that ends before its time: how is the first argument, where its checkpoints are
the second.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from singa_lite import FeedForwardNet, device, layers, loss, optimizer, parallel
from singa_lite.fit import Callback, Training
from singa_lite.snapshots import Checkpoint
from singa_lite.snapshots import sharded_state as apart

RNG = np.random.default_rng(5)
X, Y = RNG.standard_normal((64, 5)).astype("f"), RNG.integers(0, 3, 64)


def net_for(ranks: Any) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), seed=2)
    net.add(layers.Dense("hidden", 7, input_sample_shape=(5,)))
    net.add(layers.Activation(mode="tanh"))
    net.add(layers.Dense("out", 3))
    net.compile(optimizer.SGD(lr=0.1, momentum=0.5), parallel=ranks)
    return net


class Ends(Callback):
    """Does on rank 1, or on rank 0 that writes, behind ten batches what ends the run."""

    def __init__(self, how: str) -> None:
        self.how = how

    def on_batch(self, training: Training) -> None:
        if training.net.optimizer.step == 10:  # type: ignore[union-attr]  # it is compiled
            if self.how == "ctrl-c" and training.is_first:
                print("ready", flush=True)
            if self.how == "ctrl-c":
                time.sleep(0.3)
            if training.ranks is not None and training.ranks.rank == (self.how != "killed writing"):
                self.end()

    def end(self) -> None:
        if self.how == "killed":
            kill()
        if self.how == "killed writing":  # the checkpoint of this step, with some of its entries there
            h5py.Group.create_dataset = killing_at_third(h5py.Group.create_dataset)
        if self.how == "killed giving":  # what rank 0 asks for while it writes
            apart._rank_part = kill
        if self.how == "hangs":
            time.sleep(600)
        if self.how == "raises":
            raise OSError("the disk of rank 1 is full")


def kill(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killing_at_third(create: Any) -> Any:
    calls = iter(range(100))
    return lambda *given, **options: kill() if next(calls) == 2 else create(*given, **options)


def main(how: str, folder: Path) -> None:
    shard = "state" if how == "killed giving" else None
    if how == "comes late" and {os.environ.get(name) for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK")} & {"1"}:
        time.sleep(600)
    ranks = parallel.mpi(timeout=3 if how in ("hangs", "comes late") else 60, shard=shard)
    net = net_for(ranks)
    x, y = (X[:2], Y[:2]) if how == "short" else (X, Y)
    epochs = 100000 if how == "ctrl-c" else 5
    spoilt = (lambda sample, random: sample * np.float32(np.nan if ranks.rank else 1)) if how == "nan" else None
    keeping = [Ends(how), Checkpoint(folder, every_steps=1)]
    net.fit(x, y, 8, epochs, verbose=how.startswith("killed"), callbacks=keeping, transform=spoilt)
    print("came to its end", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
