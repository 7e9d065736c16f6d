"""Which settings of each system `budget.py` measures on a net, and which of them run side by side."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from peers.budget_task import BudgetTask

BATCHES = {"resnet50": 16, "mobilenet_v2": 32, "unet": 8, "densenet121": 16, "lenet": 64}
USUAL = tuple(BATCHES)[:4]
#: Estimated slowdowns near which our plans are wanted; beside them the free plan and the least are measured. The last
#: lies beyond what is told, as measured slowdowns may be below the estimated ones.
TARGETS, FEW_TARGETS = (0.05, 0.10, 0.15, 0.25), (0.05, 0.15)
#: Numbers of segments; of a U-Net's stages.
SEGMENTS, FEW_SEGMENTS, STAGES, FEW_STAGES = (4, 8), (8,), (4, 7), (7,)
#: Shares of PyTorch's `activation_memory_budget`.
COMPILED, FEW_COMPILED = (1.0, 0.5, 0.2), (0.5,)


@dataclass
class Case:
    """A setting of a system on a net. point: of our plans; turns: what was measured, in the order it was (`turns.py`);
    why: why there are none, or no more.
    """

    task: BudgetTask
    setting: str
    point: dict[str, Any] = field(default_factory=dict)
    turns: list[dict[str, Any]] = field(default_factory=list)
    why: str = ""

    @property
    def ours(self) -> bool:
        """Whether it is one of our plans."""
        return self.task.way == "singa_lite"

    @property
    def able(self) -> bool:
        """Whether it can run (again)."""
        return not self.why or self.why == NO_TIME


#: Of a case that a later run can go on with.
NO_TIME = "no time was left"


def cases(task: BudgetTask, points: Sequence[dict[str, Any]], quick: bool) -> list[Case]:
    """All cases of a net: ours, the free plan before all others, then PyTorch's."""
    return [*(_ours(task, point) for point in points), *_peers(task, quick)]


def _ours(task: BudgetTask, point: dict[str, Any]) -> Case:
    name = "free" if not point["budget"] else f"{point['share']:.2f} of free"
    name += ", the least" if point.get("least") and point["budget"] else ""
    return Case(replace(task, way="singa_lite", value=float(point["budget"] or 0)), name, point=point)


def _peers(task: BudgetTask, quick: bool) -> Iterator[Case]:
    stages = task.net == "unet"
    segments = (FEW_STAGES if quick else STAGES) if stages else FEW_SEGMENTS if quick else SEGMENTS
    word = "stages" if stages else "segments"
    settings = [("torch", 0.0, "the usual loop")]
    settings += [("torch-segments", float(n), f"checkpoint, {n} {word}") for n in segments]
    settings += [("torch-compile", b, f"compiled, budget {b:g}") for b in (FEW_COMPILED if quick else COMPILED)]
    for way, value, name in settings:
        why = obstacle(way)
        if way == "torch":
            yield Case(replace(task, way=way), f"{name}, contiguous", why=why)
        yield Case(replace(task, way=way, value=value, channels_last=True), f"{name}, channels last", why=why)


def obstacle(way: str) -> str:
    """Why the peer cannot run here; "" if it can."""
    if importlib.util.find_spec("torch") is None:
        return "not installed"
    if way == "torch-compile" and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
        return "no C++ compiler, which the compiler's default backend needs"
    return ""


def groups(found: Sequence[Case]) -> list[list[Case]]:
    """Cases whose processes are there at once, our free plan in each group: few enough for the memory."""
    free, parts = found[0], (("singa_lite",), ("torch", "torch-segments"), ("torch-compile",))
    grouped = [[case for case in found[1:] if case.task.way in ways and case.able] for ways in parts]
    return [[free, *group] for group in grouped if group] or [[free]]
