"""Classes of a step's bytes: parameters, gradients, the optimizer's state, running statistics, and all else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from singa_lite.compiler.ir.operation import Phase, Role
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.report.rows.placed_row import PlacedRow

#: The end of the name of a tensor in which gradients of several batches are added up.
SUM = " sum of gradients"

#: In the order in which they are told. The first four are what other frameworks report.
CLASSES = (
    *("parameters", "gradients", "optimizer state", "running statistics"),
    *("inputs", "outputs", "activations", "derivatives", "scratch"),
)

#: Classes of blocks outside the arena, by their role; state is told apart by who writes it.
_HELD = {Role.PARAMETER: "parameters", Role.INPUT: "inputs", Role.OUTPUT: "outputs"}
#: Classes of what lies in the arena, by `PlacedRow.kind`; what is made again is an activation or a derivative.
_PLACED = {"forward": "activations", "again": "activations", "derivative": "derivatives", "gradient": "gradients"}

#: (name, role, bytes, number) of a block outside the arena.
Held = tuple[str, Role, int, int]


def bytes_by_class(held: Iterable[Held], rows: Sequence[PlacedRow], program: Program) -> dict[str, int]:
    """{class: bytes}. Blocks outside the arena count as they are; of those within, which share bytes, counts the most
    that live at a time. So classes within the arena do not add up to it.
    """
    found = dict.fromkeys(CLASSES, 0)
    updated = {o.block for i in program.instructions if i.phase is Phase.UPDATE for o in i.writes}
    for name, role, nbytes, number in held:
        found[_class_of(name, role, number in updated)] += nbytes
    for kind in sorted({_PLACED.get(row.kind, "scratch") for row in rows}):
        found[kind] += _most_live([row for row in rows if _PLACED.get(row.kind, "scratch") == kind])
    return found


def _class_of(name: str, role: Role, is_updated: bool) -> str:
    if role is not Role.STATE:
        return _HELD[role]
    if name.endswith(SUM):
        return "gradients"
    return "optimizer state" if is_updated else "running statistics"


def _most_live(rows: Iterable[PlacedRow]) -> int:
    """The largest sum of bytes that live at a time."""
    changes: dict[int, int] = {}
    for row in rows:
        changes[row.lower] = changes.get(row.lower, 0) + row.nbytes
        changes[row.upper] = changes.get(row.upper, 0) - row.nbytes
    level = most = 0
    for step in sorted(changes):
        level += changes[step]
        most = max(most, level)
    return most


def check_limits(found: Mapping[str, int], limits: Mapping[str, int]) -> None:
    """PlanError for the first class that takes more than its limit."""
    for name, limit in limits.items():
        if found[name] > limit:
            raise PlanError(
                f"compile limits: wanted at most {limit:,} bytes of class {name!r}, the step takes {found[name]:,}"
            )
