"""From a record to a placed program: passes, the order of least floor, placement, check and proof."""

from __future__ import annotations

import gc
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from singa_lite.kernels.interface import INNER_STRIDES_MATTER, STRIDES_MATTER
from singa_lite.memory.check import check
from singa_lite.memory.planner import plan
from singa_lite.memory.problem import Plan
from singa_lite.operation import Instruction
from singa_lite.passes.concat import assembled_in_place
from singa_lite.passes.dead import without_dead
from singa_lite.passes.improve import improved
from singa_lite.passes.in_place import in_place
from singa_lite.passes.order import orders
from singa_lite.passes.parallel import conflicts, ready_order
from singa_lite.passes.program import ALIGNMENT, Program, floor, requests
from singa_lite.passes.read_from import check_reads

#: Names of kernels that depend on strides: on that of axis 0, and on any, see `concat.assembled_in_place`.
StridesMatter = tuple[Collection[str], Collection[str]]

#: Tries of the exact placement, and how many of many blocks, each of which takes longer. A few tenths of a second.
MOST_NODES, NODES_TIMES_BLOCKS = 8000, 4_000_000
#: A plan that takes longer than any that was seen ends here, at the cost of depending on the machine.
MOST_SECONDS = 20.0


@dataclass(frozen=True)
class Placed:
    """A program with a place for each block.

    recorded: the instructions as they were recorded, dead ones left out; places: {block: offset in the arena};
    scratch: {number of an instruction: offset of its scratch}; order: name of the order chosen; recorded_floor:
    the floor of the record as it was; seconds: {stage: time it took}.
    """

    recorded: Program
    program: Program
    plan: Plan
    places: dict[int, int]
    scratch: dict[int, int]
    order: str
    recorded_floor: int
    seconds: dict[str, float]

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena."""
        return self.plan.arena


def lower(
    instructions: Sequence[Instruction],
    sizes: dict[int, int],
    *,
    search: bool = True,
    parallel: bool = False,
    strides_matter: StridesMatter = (STRIDES_MATTER, INNER_STRIDES_MATTER),
    alignment: int = ALIGNMENT,
) -> Placed:
    """Plan a record so that it needs as little memory as the passes can reach, and check that nothing overlaps.

    sizes: {intermediate block: bytes}; blocks that are not in it are held elsewhere. search: for an exact
    placement, if the first ones leave a gap; by a number of tries, so that every run of a script, on any machine, gets
    the same plan. parallel: two blocks share bytes only if every use of one comes
    before every use of the other by dependencies, so instructions may run in any order that keeps these.
    strides_matter: the kernels whose operands keep their strides, and those that keep all but that of axis 0, as the
    kernel set has them. alignment: bytes, of all places in the arena.
    """
    with _collector_paused():
        recorded = without_dead(Program(tuple(instructions), sizes, alignment))
        return _lower(recorded, search, parallel, strides_matter)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No garbage collection inside: passes make many objects and no cycles, and walks over them cost a third."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _lower(recorded: Program, search: bool, parallel: bool, strides_matter: StridesMatter) -> Placed:
    start = time.perf_counter()
    views = assembled_in_place(recorded, *strides_matter)
    name, program = _parallel(views) if parallel else _best(recorded, views)
    passed = time.perf_counter()
    wanted = requests(program)
    pairs = conflicts(program, wanted) if parallel else None
    nodes = min(MOST_NODES, NODES_TIMES_BLOCKS // max(1, len(wanted))) if search else 0
    placed = plan(wanted, seconds=MOST_SECONDS, nodes=nodes, conflicts=pairs)
    planned = time.perf_counter()
    check(wanted, placed.offsets, placed.arena, conflicts=pairs)
    places = {int(key[1:]): offset for key, offset in placed.offsets.items() if key[0] == "b"}
    scratch = {int(key[1:]): offset for key, offset in placed.offsets.items() if key[0] == "s"}
    seconds = {
        "passes": passed - start,
        "placement": planned - passed,
        "check": time.perf_counter() - planned,
    }
    return Placed(recorded, program, placed, places, scratch, name, floor(recorded), seconds)


def prove(placed: Placed) -> None:
    """PlanError unless every read of the placed program gets what it got in the record, byte for byte.

    Wanted before it runs. The time goes with the number of pieces that differ in writer or spacing, as a rule not
    with the batch, see `read_from`.
    """
    start = time.perf_counter()
    with _collector_paused():
        check_reads(placed.recorded, placed.program, placed.places)
    placed.seconds["proof"] = time.perf_counter() - start


def unshared(instructions: Sequence[Instruction], sizes: dict[int, int], alignment: int = ALIGNMENT) -> Placed:
    """The same record with bytes of its own for every block: what sharing is compared with."""
    recorded = without_dead(Program(tuple(instructions), sizes, alignment))
    wanted, offsets, top = requests(recorded), {}, 0
    for request in wanted:
        offsets[request.id] = top
        top += recorded.rounded(request.size)
    placed = Plan(offsets, top, floor(recorded), False, 0.0, "unshared")
    places = {int(key[1:]): offset for key, offset in offsets.items() if key[0] == "b"}
    scratch = {int(key[1:]): offset for key, offset in offsets.items() if key[0] == "s"}
    return Placed(recorded, recorded, placed, places, scratch, "recorded", floor(recorded), {})


def _best(recorded: Program, views: Program) -> tuple[str, Program]:
    """The order whose floor, after in-place writing, is lowest, improved; the recorded one where others only tie."""
    competing = list(orders(views))
    if views is not recorded:  # a whole that is there from its first piece on may cost more than the copies
        competing.append(("recorded, with copies", recorded))
    candidates = [(name, candidate, in_place(candidate)) for name, candidate in competing]
    name, candidate, program = min(candidates, key=lambda entry: floor(entry[2]))
    improvement = improved(candidate)
    if improvement is candidate:
        return name, program
    return f"{name}, improved", in_place(improvement)


def _parallel(views: Program) -> tuple[str, Program]:
    """In dependency order; writing in place only where that order cannot change who reads last."""
    return "dependencies", views.with_instructions(ready_order(views.instructions))
