"""Steps with checkpoints leave nothing behind: what is resident after step 10 stays what it is."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from in_process import output

STATUS = Path("/proc/self/status")
KINDS = list(itertools.product([False, True], [5, 100]))

TRAIN = """
import ctypes, gc, sys, time
import numpy as np
from singa_lite import FeedForwardNet, layers, loss, optimizer
from singa_lite.fit import Callback
from singa_lite.snapshots import Checkpoint

class Look(Callback):
    "Prints the growth; the first steps wait for the thread, so that it has been at work before."
    def on_batch(self, training):
        step = training.net.optimizer.step
        while step <= 10 and checkpoint._saver.busy:
            time.sleep(0.001)
        if step == 10:
            self.before = resident()
        if step == steps:
            print(resident() - self.before)

def resident():
    "In MiB, without what is freed but not yet given back: garbage in cycles, and pages that malloc keeps."
    gc.collect()
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024

folder, steps, background, every = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True", int(sys.argv[4])
net = FeedForwardNet(loss.SoftmaxCrossEntropy())
net.add(layers.Dense("dense", 8, input_sample_shape=(5,)))
net.add(layers.BatchNormalization("norm"))
net.add(layers.Dropout("drop", 0.3))
net.add(layers.Dense("out", 3))
net.compile(optimizer.Adam())
rng = np.random.default_rng(8)
x, y = rng.normal(size=(1000, 5)).astype("f"), rng.integers(0, 3, 1000)
checkpoint = Checkpoint(folder, every_steps=every, background=background)
net.fit(x, y, batch_size=10, epochs=steps // 100, verbose=False, callbacks=[checkpoint, Look()])
"""


@pytest.mark.skipif(not STATUS.exists(), reason="this system has no /proc/self/status")
@pytest.mark.parametrize(
    ("background", "every", "steps"),
    [(True, 5, 300), (False, 100, 300), *(pytest.param(*each, 5000, marks=pytest.mark.nightly) for each in KINDS)],
)
def test_memory_stays_as_it_is(tmp_path, background, every, steps):
    """Also if the first checkpoint comes after step 10: what writing takes is taken at the first step."""
    grown = float(output(TRAIN, str(tmp_path), str(steps), str(background), str(every)))
    assert grown < 1, f"grew by {grown} MiB in {steps} steps"
    assert len(list(tmp_path.iterdir())) == 3
