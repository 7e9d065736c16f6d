"""What the tests of going on share: nets, data, runs that are killed, and the same run in a process of its own.

As a script: `resume_run.py FOLDER RESULT [SIGNAL STEP]` goes on with the run of FOLDER and writes what comes out of it
to RESULT; the process sends itself SIGNAL at STEP.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nets import state_of
from singa_lite import FeedForwardNet, device, layers, loss, metric
from singa_lite.fit import Callback, History, Training
from singa_lite.snapshots import Checkpoint
from singa_lite.snapshots.checkpoints.folder import checkpoints, step_of
from snapshot_nets import make_net

EPOCHS, BATCH, SAMPLES = 3, 5, 23
STEPS = EPOCHS * -(-SAMPLES // BATCH)


def images(compiled: str) -> FeedForwardNet:
    """Convolution, batch normalization, dropout, shared parameters."""
    return make_net(compiled, on=device.new_cpu())


def doubles(compiled: str) -> FeedForwardNet:
    """The same in float64, by the NumPy kernels, not recorded."""
    net = make_net(compiled, dtype="float64", on=device.new_cpu(kernels="numpy"))
    net.compile(net.optimizer, metric=metric.Accuracy(), graph=False)
    return net


def two_outputs(compiled: str) -> FeedForwardNet:
    """Two inputs and outputs, dropout twice; metrics by name."""
    net = FeedForwardNet(device=device.new_cpu(), seed=2)
    net.add(layers.Dense("a", 4, input_sample_shape=(5,)))
    net.add(layers.Dropout("drop a", 0.4))
    net.add(layers.Dense("b", 4, input_sample_shape=(2,)), src=[])
    net.add(layers.Dropout("drop b", 0.2))
    net.add(layers.Merge("sum"), src=["drop a", "drop b"])
    net.add(layers.Dense("scores", 6))
    net.add(layers.Dense("number", 1), src="sum")
    net.compile(
        make_net(compiled).optimizer,
        {"scores": loss.SoftmaxCrossEntropy(), "number": loss.SquaredError()},
        {"scores": metric.Accuracy()},
    )
    return net


NETS: dict[str, Callable[[str], FeedForwardNet]] = {"images": images, "doubles": doubles, "two outputs": two_outputs}


def data(kind: str) -> tuple[Any, Any]:
    """Samples and targets for the net of this name."""
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 6, SAMPLES)
    if kind != "two outputs":
        return rng.normal(size=(SAMPLES, 2, 5, 4)).astype("d" if kind == "doubles" else "f"), labels
    x = rng.normal(size=(SAMPLES, 5)).astype("f")
    return {"a": x, "b": x[:, :2]}, {"scores": labels, "number": x[:, 3:4]}


def fit(net: FeedForwardNet, kind: str, *callbacks: Callback, **options: Any) -> History:
    """The run that all are compared with, but for the callbacks."""
    x, y = data(kind)
    settings = {"batch_size": BATCH, "epochs": EPOCHS, "validation_data": (x, y), "verbose": False, **options}
    return net.fit(x, y, callbacks=callbacks, **settings)


def steps(folder: Path) -> list[int]:
    """Those of the checkpoints in a folder, the newest first."""
    return [step_of(file) for file in checkpoints(folder)]


def outcome(net: FeedForwardNet, history: History) -> dict[str, Any]:
    """All that must be equal: state, seeds, and the history but for what is measured of the machine."""
    measured = ("samples_per_second", "high_water")
    told = {name: values for name, values in history.history.items() if name not in measured}
    return {**state_of(net), "history": told, "seeds": net.device.seeds_given}


def act(**given: Callable[[Training], object]) -> Callback:
    """A callback of these functions: `on_batch`, `on_epoch`, `on_validation_batch`."""
    methods = {name: lambda self, training, do=do: do(training) for name, do in given.items()}
    return type("Act", (Callback,), methods)()


class Killed(Exception):
    """The run's end, as a kill is."""


class Kill(Callback):
    """Ends the run at a step, after what the callbacks before it do there."""

    def __init__(self, step: int, how: Callable[[], None] | None = None) -> None:
        self.step, self.how = step, how

    def on_batch(self, training: Training) -> None:
        if training.net.optimizer.step == self.step:
            if self.how is None:
                raise Killed
            self.how()


def main(folder: str, result: str, number: str = "0", step: str = "-1") -> None:
    """One process of a run."""
    net = NETS["images"]("Adam")
    last = Kill(int(step), lambda: os.kill(os.getpid(), int(number)))
    checkpoint = Checkpoint(folder, every_steps=2, background=int(step) % 2 == 1)
    history = fit(net, "images", checkpoint, last, resume="auto", prefetch=2)
    found = {name: str(value) for name, value in outcome(net, history).items()}
    Path(result).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
