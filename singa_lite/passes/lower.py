"""From a record to a placed program: passes, placement, check and proof."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from singa_lite.memory.check import check
from singa_lite.memory.planner import plan
from singa_lite.memory.problem import Plan, PlanError
from singa_lite.passes.budget import NAMED, Searches, total_seconds
from singa_lite.passes.carry import Chosen, carried
from singa_lite.passes.descent import Choice
from singa_lite.passes.in_place import in_place
from singa_lite.passes.parallel import conflicts
from singa_lite.passes.pipeline import parted, planning, rewriting, searching, through
from singa_lite.passes.program import Program, floor, host_requests, requests
from singa_lite.passes.read_from import check_reads

#: Tries of the exact placement, and how many of many blocks, each of which takes longer. A few tenths of a second.
MOST_NODES, NODES_TIMES_BLOCKS = 8000, 4_000_000
#: How often the limit is tightened where the placement leaves a gap.
MOST_LIMITS = 4
#: Moves of single instructions lower a floor by less than what is beyond this share of it.
LEAST_MOVED = 0.75
#: A plan that takes longer than any that was seen ends here, at the cost of depending on the machine.
MOST_SECONDS = 20.0


class Sketched(NamedTuple):
    """What a plan within a limit would be, neither placed nor proved. slowdown: see `MemoryPlan.estimated_slowdown`;
    chosen: None where nothing has to be dropped.
    """

    slowdown: float
    chosen: Chosen | None


class LimitError(PlanError):
    """No plan within the limit was found. limit: bytes of the arena; least: the plan of the smallest arena found."""

    def __init__(self, limit: int, least: Placed) -> None:
        self.limit, self.least = limit, least
        super().__init__(f"wanted an arena of at most {limit:,} bytes, the least found is {least.arena_bytes:,}")


@dataclass(frozen=True)
class Placed:
    """A program with an offset for each block, and the two programs that it was made from.

    recorded: the step as it was recorded, before any pass.
    rewritten: the program behind the passes that rewrite. The proof begins here and not at the record: other calls
    stand in it, which compute the same by other arithmetic, so no byte of theirs can be traced to a write of the
    record. That these agree in value is tested, pass by pass.
    planned: the program behind all passes, as it runs.
    offsets: {block: offset in the arena}. scratch: {number of an instruction: offset of its scratch}.
    recorded_floor: the floor of `recorded`. gains: {pass: bytes by which it lowered the floor}.
    seconds: {stage: time it took}. host_offsets: {block of host memory: offset there}; host_bytes: of host memory.
    chosen: how values are held so that the limit is kept, and free: the program without one; None where nothing is.
    """

    recorded: Program
    rewritten: Program
    planned: Program
    plan: Plan
    offsets: dict[int, int]
    scratch: dict[int, int]
    recorded_floor: int
    gains: dict[str, int]
    seconds: dict[str, float]
    host_offsets: dict[int, int] = field(default_factory=dict)
    host_bytes: int = 0
    chosen: Chosen | None = None
    free: Program | None = None

    @classmethod
    def of(
        cls,
        recorded: Program,
        rewritten: Program,
        planned: Program,
        plan: Plan,
        gains: dict[str, int],
        seconds: dict[str, float],
        host: Plan | None = None,
    ) -> Placed:
        """By the offsets of a plan of `requests(planned)`, and of one of `host_requests(planned)`."""
        offsets = {int(key[1:]): offset for key, offset in plan.offsets.items() if key[0] == "b"}
        scratch = {int(key[1:]): offset for key, offset in plan.offsets.items() if key[0] == "s"}
        on_host = {} if host is None else {int(key[1:]): offset for key, offset in host.offsets.items()}
        nbytes = 0 if host is None else host.arena
        return cls(
            recorded, rewritten, planned, plan, offsets, scratch, floor(recorded), gains, seconds, on_host, nbytes
        )

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena."""
        return self.plan.arena

    @property
    def order(self) -> str:
        """Name of the order chosen."""
        return self.planned.order


def lower(recorded: Program, *, fuse: bool = True, parallel: bool = False, search: bool = True) -> Placed:
    """Plan a record so that it needs as little memory as the passes can reach, and check that nothing overlaps.

    fuse: through the passes that rewrite too. parallel: two blocks share bytes only if every use of one comes before
    every use of the other by dependencies, so instructions may run in any order that keeps these. search: for an exact
    placement, if the first ones leave a gap; by a number of tries, so that every run of a script, on any machine, gets
    the same plan.

    LimitError where the target limits the arena and no plan within was found; the instructions may not be reordered
    then, so `parallel` is refused.
    """
    if parallel and recorded.target.limit is not None:
        raise PlanError("a plan for any order of running: wanted no limit of the arena, whose repeats want one order")
    return Lowering(recorded, fuse=fuse, parallel=parallel).within(recorded.target.limit, search)


class Lowering:
    """What a record is lowered by, for one limit of its arena after the other; each gives what `lower` gives for it.

    What does not depend on the limit is done once, and what was searched for is remembered, as long as this lives.
    """

    def __init__(self, recorded: Program, *, fuse: bool = True, parallel: bool = False) -> None:
        start = time.perf_counter()
        self._recorded = recorded
        self._parallel = parallel
        self._gains: dict[str, int] = {}
        shared, limited = parted(parallel)
        with _collector_paused():
            self.rewritten = through(recorded, rewriting(fuse), self._gains)
            self._program = through(self.rewritten, shared, self._gains)
        self._searches = Searches(self._program)
        self._limited = searching(limited, self._searches)
        self._least: dict[bool, Placed] = {}
        self._free: dict[bool, Placed] = {}
        self._floor: int | None = None
        self._seconds = time.perf_counter() - start

    def within(self, limit: int | None, search: bool = True) -> Placed:
        """The plan of an arena of at most `limit` bytes; None: of as many as it takes. LimitError as for `lower`."""
        with _collector_paused():
            return self._unlimited(search) if limit is None else self._within(limit, search)

    def _unlimited(self, search: bool) -> Placed:
        if search not in self._free:
            self._free[search] = self._placed(None, search)
        return self._free[search]

    def _may_do_as_it_is(self, limit: int) -> bool:
        """Whether moves behind the limited passes might bring the program within, with nothing made again."""
        if self._floor is None:
            self._floor = floor(in_place(self._program))
        return limit >= LEAST_MOVED * self._floor

    def rung(self, limit: int) -> int:
        """A limit not above this one, for which a search takes half as long."""
        return self._searches.of(self._program).rung(limit) if self._program.sizes else limit

    def sketched(self, limit: int, start: Chosen | None, thrifty: bool = True) -> Sketched | None:
        """What a plan within a limit would be, without copies to host memory; None where none was found.

        start: levels of another size of the batch, from which few moves are made; None: as a plan's are searched for.
        thrifty: whether the cost is of interest, and not only that there is a plan.
        """
        with _collector_paused():
            unlimited = self._without_limit()
            if floor(in_place(unlimited)) <= limit:
                return Sketched(0.0, None)
            found = []
            for form in (self._program, *self._program.rivals):
                search = self._searches.of(form)
                if start is None:
                    choice: Choice | None = search.within(limit)
                else:
                    choice = search.from_levels(carried(start, form), limit, thrifty)
                if choice is not None and choice.floor <= limit:
                    found.append((choice.seconds + total_seconds(form), Chosen(form, choice.levels)))
            free = total_seconds(unlimited)
        if not found:
            return None
        took, chosen = min(found, key=lambda entry: entry[0])
        return Sketched(took / free - 1, chosen)

    def _without_limit(self) -> Program:
        """What it is without a limit, but for moves within it."""
        return through(_limited(self._program, None), (one for one in self._limited if one.limited))

    def _within(self, limit: int, search: bool) -> Placed:
        """A placement may miss the floor by some bytes: then the passes are given as many less."""
        if self._may_do_as_it_is(limit) and self._unlimited(search).arena_bytes <= limit:
            return self._unlimited(search)
        aim = limit
        for _ in range(MOST_LIMITS):
            placed = self._placed(aim, search)
            if placed.arena_bytes <= limit:
                return placed
            if placed.plan.floor > aim:
                break
            aim = min(aim, placed.plan.floor) - (placed.arena_bytes - limit)
        if search not in self._least:
            self._least[search] = self._lowest(search)
        if self._least[search].arena_bytes <= limit:
            return self._least[search]
        raise LimitError(limit, self._least[search])

    def _lowest(self, search: bool) -> Placed:
        """The plan of the smallest arena found: no limit is kept that is a little lower.

        Floors are compared before the passes behind the search, which lower one program's and not another's.
        """
        least = self._placed(0, search)
        while least.arena_bytes:
            chosen, limit = self._searches.chosen, int(NAMED * least.arena_bytes)
            lower = self._placed(limit, search)
            if lower.arena_bytes > limit:
                self._searches.chosen = chosen
                break
            least = lower
        return least

    def _placed(self, limit: int | None, search: bool) -> Placed:
        """The plan of what the passes make of a limit, whether the arena keeps it or not."""
        gains = dict(self._gains)
        start = time.perf_counter()
        program = through(_limited(self._program, limit), self._limited, gains)
        chosen = self._searches.chosen
        free = None if chosen is None else self._without_limit()
        passed = time.perf_counter()
        wanted = requests(program)
        pairs = conflicts(program, wanted) if self._parallel else None
        nodes = min(MOST_NODES, NODES_TIMES_BLOCKS // max(1, len(wanted))) if search else 0
        placed = plan(wanted, seconds=MOST_SECONDS, nodes=nodes, conflicts=pairs)
        on_host = host_requests(program)
        host = plan(on_host, nodes=0)
        planned = time.perf_counter()
        check(wanted, placed.offsets, placed.arena, conflicts=pairs)
        check(on_host, host.offsets, host.arena)
        checked = time.perf_counter()
        seconds = {"passes": self._seconds + passed - start, "placement": planned - passed, "check": checked - planned}
        made = Placed.of(self._recorded, self.rewritten, program, placed, gains, seconds, host)
        return replace(made, chosen=chosen, free=free)


def _limited(program: Program, limit: int | None) -> Program:
    if program.target.limit == limit:
        return program
    return replace(program, target=replace(program.target, limit=limit))


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


def prove(placed: Placed) -> None:
    """PlanError unless every read of the planned program gets what it got in the rewritten one, byte for byte.

    Wanted before it runs. The time goes with the number of pieces that differ in writer or spacing, as a rule not
    with the batch, see `read_from`.
    """
    start = time.perf_counter()
    with _collector_paused():
        check_reads(placed.rewritten, placed.planned, placed.offsets, placed.host_offsets)
    placed.seconds["proof"] = time.perf_counter() - start


def unshared(recorded: Program, *, fuse: bool = True) -> Placed:
    """The rewritten program, in order, with bytes of its own for every block: what sharing is compared with."""
    gains: dict[str, int] = {}
    rewritten = through(recorded, rewriting(fuse), gains)
    program = through(rewritten, (one for one in planning() if one.name == "dead"), gains)
    offsets, top = {}, 0
    for request in requests(program):
        offsets[request.id] = top
        top += program.rounded(request.size)
    apart = Plan(offsets, top, floor(program), False, 0.0, "unshared")
    return Placed.of(recorded, rewritten, program, apart, gains, {})
