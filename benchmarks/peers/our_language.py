"""A language model with adapters: our side of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from singa_lite import FeedForwardNet, models, optimizer

from . import singa_side
from .process import Task

use_once = singa_side.use_once


def load(task: Task, length: int, **options: Any) -> FeedForwardNet:
    """The net over the mapped file, with adapters and compiled if it will train."""
    net = models.load(Path(task.folder) / "model.gguf", length=length, seed=0)
    if task.batch:
        net.load_adapter(Path(task.folder) / "adapter")
        net.compile(optimizer.AdamW(lr=task.lr, weight_decay=0.01), **options)
    return net


def training(net: FeedForwardNet, x: np.ndarray, y: np.ndarray, task: Task) -> Callable[[], float]:
    """A step of the adapters."""
    return lambda: float(net.train_one_batch(x, y)[0])


def writing(net: FeedForwardNet, prompt: np.ndarray, count: int) -> Callable[[], Any]:
    """A text that goes on from the prompt by the largest scores."""
    return lambda: net.generate(prompt, count, temperature=0.0)


def facts(net: FeedForwardNet, runs: int) -> dict[str, Any]:
    """Planned bytes, and seconds of a step: of each kernel, and of what makes numbers of blocks for products.

    The latter are those of one kernel that does nothing else, for as many numbers.
    """
    from quantized import FORMATS, NUMBERS, blocks, least

    plan, profile = net.memory_plan, net.training_graph.profile(runs, peaks=False)
    found = {cost.name: cost.seconds for cost in profile.by_kernel()}
    y, rates, seconds = np.empty(NUMBERS, np.float32), dict[str, float](), 0.0
    for call in plan.placed.planned.instructions:
        if not call.kernel.startswith("quantized_linear"):
            continue
        form, packed = call.settings["format"], call.by_name["blocks"]
        if form not in rates:
            rates[form] = least(20, "dequantize", blocks(*NUMBERS, form), y, format=form) / y.size
        seconds += rates[form] * packed.shape[0] * FORMATS[form].columns(packed.shape[1])
    return {"planned": plan.total_bytes, "shares": {**found, "blocks to numbers": seconds, "all": profile.seconds}}
