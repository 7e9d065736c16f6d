"""StepOptions: how a net's steps are recorded and planned, as `compile` was asked for, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from singa_lite.autograd.rewriting import Rule
from singa_lite.compiler.ir.target import Narrow


@dataclass(frozen=True, eq=False)
class StepOptions:
    """Options of how steps are recorded and planned. graph: record and replay, or do each operation at once; fuse,
    budget, order, workers: see `Graph`; offload: see `Arena`; profiled: whether repeats are chosen by measured seconds;
    narrow: how activations are stored, None: in the net's dtype; limits: {class of `MemoryPlan.by_class`: most bytes},
    of training steps; rules: by which records are rewritten; tf32: whether factors are rounded.
    """

    graph: bool
    fuse: bool = True
    budget: int | None = None
    offload: str = ""
    profiled: bool = False
    narrow: Narrow | None = None
    order: str = "recorded"
    workers: int = 1
    limits: Mapping[str, int] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    tf32: bool = False

    @property
    def of_records(self) -> list[str]:
        """The options of `compile` that are asked for and kept by recorded steps alone."""
        asked = {
            "memory_budget": self.budget is not None,
            "offload": self.offload,
            "precision": self.narrow is not None or self.tf32,
            "order": self.order != "recorded",
            "limits": self.limits,
            "rules": self.rules,
        }
        return [name for name, wanted in asked.items() if wanted]
