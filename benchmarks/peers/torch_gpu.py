"""PyTorch's side of `gpu.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from .gpu_task import GpuTask, measured
from .process import read_batch, read_weights
from .torch_nets import parameters_by_our_names
from .torch_side import OPTIMIZERS, built


def run(task: GpuTask) -> dict[str, Any]:
    """Train and measure. The batch lies on the GPU beforehand."""
    torch.cuda.set_device(task.gpu)
    torch.backends.cuda.matmul.allow_tf32 = task.tf32
    torch.backends.cudnn.allow_tf32 = task.tf32
    step = stepper(task)
    torch.cuda.reset_peak_memory_stats()
    result = measured(task, step, lambda loss: loss.item(), mark, lambda a, b: a.elapsed_time(b))
    memory = {"peak": torch.cuda.max_memory_allocated(), "held": torch.cuda.max_memory_reserved()}
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return {**result, **memory, "versions": versions}


def stepper(task: GpuTask, place: str = "cuda") -> Callable[[], torch.Tensor]:
    """A function that does a step and returns its loss. place: where; tests have no GPU."""
    x, y = (torch.from_numpy(array).to(place) for array in read_batch(task.folder))
    net = built(task.net)
    read_weights(task.folder, ((name, _as_ours(p, turned)) for name, p, turned in parameters_by_our_names(net)))
    net = net.to(place)
    if task.way != "torch" and x.ndim == 4:  # what PyTorch is fastest with, compiled or not
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    forward = torch.compile(net, mode="reduce-overhead") if task.way == "torch-compile" else net
    optimizer = OPTIMIZERS[task.optimizer](net.parameters(), task.lr)

    def step() -> torch.Tensor:
        loss = cross_entropy(forward(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def mark() -> torch.cuda.Event:
    """An event on the current stream."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _as_ours(parameter: torch.nn.Parameter, turned: bool) -> Any:
    array = parameter.detach().numpy()
    return array.T if turned else array
