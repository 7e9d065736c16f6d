"""PyTorch's side of `budget.py`: the usual loop, checkpoints in segments, and the compiler's own memory budget."""

from __future__ import annotations

from typing import TextIO

import torch
from torch.nn.functional import cross_entropy

from peak_memory import high_water

from .budget_task import BudgetTask, batch, serve
from .process import read_weights
from .torch_segments import built
from .torch_side import as_ours, use_once


def run(task: BudgetTask, told: TextIO) -> None:
    """Train and measure. The compiler's work is done in the warm-up: `steps_peak` is without it."""
    torch.set_num_threads(task.threads)
    use_once(task.way)
    if task.way == "torch-compile":
        from torch._functorch import config

        config.activation_memory_budget = task.value
    level = high_water()
    arrays = batch(task)
    level += sum(array.nbytes for array in arrays)
    x, y = map(torch.from_numpy, arrays)
    del arrays
    torch.manual_seed(0)
    net = built(task.net, int(task.value) if task.way == "torch-segments" else 0)
    if task.folder:
        read_weights(task.folder, ((name, as_ours(value, turned)) for name, value, turned in net.by_our_names()))
    if task.channels_last and x.ndim == 4:
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    forward = torch.compile(net) if task.way == "torch-compile" else net
    optimizer = torch.optim.SGD(net.parameters(), task.lr, momentum=task.momentum)

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=task.precision == "bfloat16"):
            scores = forward(x)
        loss = cross_entropy(scores.float(), y.flatten() if scores.ndim == 2 else y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    serve(task, level, step, told)
