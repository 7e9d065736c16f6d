"""Our side of a comparison."""

from __future__ import annotations

from typing import Any

import numpy as np

import singa_lite
from flops import step_flops
from nets import batch, entry
from peak_memory import high_water
from singa_lite import FeedForwardNet, layers, loss, optimizer, tensor

from .process import WITHIN, Task, measured, read_batch, read_weights, write_batch, write_weights

OPTIMIZERS = {
    "sgd": lambda lr: optimizer.SGD(lr),
    "momentum": lambda lr: optimizer.SGD(lr, momentum=0.9),
    "adam": lambda lr: optimizer.Adam(lr),
    "adamw": lambda lr: optimizer.AdamW(lr),
}


def built(name: str, init: Any) -> FeedForwardNet:
    """The net on the default device, without dropout, whose random numbers no two frameworks share."""
    found = entry(name)
    net = found.build(init=init) if found.begins else found.build()
    for layer in net.layers.values():
        if isinstance(layer, layers.Dropout):
            layer.p = 0.0
    return net


def write(task: Task) -> dict[str, Any]:
    """Write what both sides start from: weights by He's initialization, biases 0, and a batch."""
    net = built(task.net, "he_normal")
    write_weights(task.folder, ((name, tensor.to_numpy(value)) for name, value in net.parameters().items()))
    write_batch(task.folder, *batch(task.net, task.batch))
    return {}


def run(task: Task) -> dict[str, Any]:
    """Train and measure."""
    use_once()
    level = high_water()
    x, y = read_batch(task.folder)
    net = built(task.net, 0.0)
    arrays = ((name, net.device.array(value)) for name, value in net.parameters().items())
    read_weights(task.folder, arrays)
    budget = task.way.removeprefix(WITHIN) if task.way.startswith(WITHIN) else None
    net.compile(OPTIMIZERS[task.optimizer](task.lr), memory_budget=budget)
    result = measured(task, level, lambda: float(net.train_one_batch(x, y)[0]))
    counted = step_flops(net.training_graph.operations)
    versions = {"singa_lite": singa_lite.__version__, "numpy": np.__version__, "kernels": net.device.kernels.name}
    planned = net.memory_plan.total_bytes
    return {**result, "flops": counted, "planned": planned, "versions": versions}


def use_once() -> None:
    """What loads at first use belongs to the import: the kernels' libraries."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy())
    net.add(layers.Conv2D("conv", 4, 3, border_mode="valid", use_bias=False, input_sample_shape=(2, 6, 8)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("relu"))
    net.add(layers.MaxPooling2D("pool", 2, 2, "valid"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 2))
    net.compile(optimizer.SGD())
    net.train_one_batch(np.zeros((4, 2, 6, 8), np.float32), np.zeros(4, np.int64))
