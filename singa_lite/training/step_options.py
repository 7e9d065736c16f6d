"""StepOptions: how a net's steps are recorded and planned, as `compile` was asked for, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from singa_lite.autograd.rewriting import Rule
from singa_lite.compiler.ir.target import Narrow


@dataclass(frozen=True, eq=False)
class StepOptions:
    """Options of how steps are recorded and planned. graph: record and replay, or do each operation at once; fuse,
    budget, order, workers: see `Graph`; offloads: see `Arena`;
    narrow: how activations are stored, None: in the net's dtype; limits: {class of `MemoryPlan.by_class`: most bytes},
    of training steps; rules: by which records are rewritten; tf32: whether factors are rounded.
    """

    graph: bool
    fuse: bool = True
    budget: int | None = None
    offloads: bool = False
    narrow: Narrow | None = None
    order: str = "recorded"
    workers: int = 1
    limits: Mapping[str, int] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    tf32: bool = False
