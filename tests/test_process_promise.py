"""What Linux counts of a process, within a budget and what is promised beside it: of a net of many calls."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from in_process import output
from kernel_sets import kernel_sets
from singa_lite.passes.launch_bytes import A_FORM, BESIDE, FURTHER

#: Dense layers with activations, of which no two are alike: each call has code of its own.
DEPTH = 75

TRAIN = f"""
import numpy as np
from singa_lite import FeedForwardNet, layers, loss, metric, optimizer

def resident(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))

def deep(depth, budget=None):
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), seed=2)
    for number in range(depth):
        net.add(layers.Dense(f"dense{{number}}", 40 + number, input_sample_shape=None if number else (30,)))
        net.add(layers.Activation(f"act{{number}}", "tanh"))
    net.add(layers.Dense("scores", 7))
    net.compile(optimizer.SGD(lr=0.01, momentum=0.9), memory_budget=budget)
    return net

rng = np.random.default_rng(1)
x, y = rng.standard_normal((19, 30), np.float32), rng.integers(0, 7, 19)
deep(1).train_one_batch(x, y)  # what loads at first use belongs to the import
level = resident("VmRSS")
net = deep({DEPTH})
plan = net.plan_batch(8)
budget = plan.total_bytes
net.compile(optimizer.SGD(lr=0.01, momentum=0.9), memory_budget=budget)
for step in range(2):
    net.train_one_batch(x[:8], y[:8])
step = resident("VmHWM") - level
net.fit(x, y, 8, validation_data=(x[:11], y[:11]), verbose=False)
print(plan.process_bytes, budget, step, resident("VmHWM") - level)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="this system does not say what a process took at most")
@pytest.mark.parametrize("kernels", [one.name for one in kernel_sets()])
def test_a_step_and_fit_of_many_calls_take_no_more_than_is_promised(kernels: Any):
    """fit has three forms of record beside the step: a shorter batch, and an evaluation of both sizes."""
    counted, budget, step, fitted = map(int, output(TRAIN, SINGA_LITE_KERNELS=kernels, OMP_NUM_THREADS=1).split())
    assert (counted > 0) == (kernels == "onednn"), "so many calls count where they have code"
    assert step <= budget + BESIDE
    assert fitted <= budget + BESIDE + FURTHER * A_FORM
    print(f"{counted / 2**20:.1f} counted, {(step - budget) / 2**20:.1f} and {(fitted - budget) / 2**20:.1f} above")
