"""Our side of `gpu.py`."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

import singa_lite
from nets import NETS
from singa_lite import FeedForwardNet, device, layers, tensor
from singa_lite.device.cuda_libraries import found

from .gpu_task import GpuTask, measured
from .process import read_batch, read_weights
from .singa_side import OPTIMIZERS


def built(name: str, on: Any) -> FeedForwardNet:
    """The net on a device, without dropout, whose random numbers no two frameworks share."""
    net = NETS[name].build(on, init=0.0)
    for layer in net.layers.values():
        if isinstance(layer, layers.Dropout):
            layer.p = 0.0
    return net


def run(task: GpuTask) -> dict[str, Any]:
    """Train and measure. The batch lies on the GPU beforehand; a step copies it into its own tensors."""
    gpu = device.new_cuda(task.gpu, allow_tf32=task.tf32, channels_last=task.channels_last)
    net = built(task.net, gpu)
    values = net.parameters()
    arrays = {name: np.empty(value.shape, np.float32) for name, value in values.items()}
    read_weights(task.folder, arrays.items())
    for name, value in values.items():
        value.copy_from_numpy(arrays[name])
    net.compile(OPTIMIZERS[task.optimizer](task.lr))
    x, y = (tensor.from_numpy(array, gpu) for array in read_batch(task.folder))
    stream = gpu.runtime.stream

    def mark() -> Any:
        with gpu.runtime.here():
            event = cupy.cuda.Event()
            event.record(stream)
        return event

    result = measured(
        task, lambda: net.train_one_batch(x, y)[0], float, mark, lambda a, b: float(cupy.cuda.get_elapsed_time(a, b))
    )
    pool = {"peak": gpu.pool.high_water, "held": gpu.pool.total, "planned": net.memory_plan.total_bytes}
    return {**result, **pool, "versions": {"singa_lite": singa_lite.__version__, **dict(found())}}
