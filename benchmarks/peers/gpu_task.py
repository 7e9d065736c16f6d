"""What both sides of `gpu.py` share: the task, and how steps are timed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .process import Task


@dataclass(frozen=True)
class GpuTask(Task):
    """A task on GPU number `gpu`. tf32: products and convolutions may round float32 factors to 10 bits.

    channels_last: how images lie on our side.
    """

    gpu: int = 0
    tf32: bool = False
    channels_last: bool = True

    @staticmethod
    def from_json(text: str) -> GpuTask:
        """The task that `to_json` wrote."""
        return GpuTask(**json.loads(text))


def measured(
    task: GpuTask,
    step: Callable[[], Any],
    loss: Callable[[Any], float],
    mark: Callable[[], Any],
    between: Callable[[Any, Any], float],
) -> dict[str, Any]:
    """Do the steps; losses of the warm-up, seconds of the others.

    loss: the number that a step's result is, which waits for it: asked in the warm-up alone. mark: records an event
    and returns it; between: milliseconds from one event to another one, once all have happened.
    """
    losses = [loss(step()) for _ in range(task.warmup)]
    events = [mark()]
    for _ in range(task.steps):
        result = step()
        events.append(mark())
    loss(result)
    return {"losses": losses, "seconds": milliseconds_to_seconds([between(a, b) for a, b in pairwise(events)])}


def milliseconds_to_seconds(times: Sequence[float]) -> list[float]:
    """CUDA counts milliseconds."""
    return [time / 1e3 for time in times]
