"""From a record to a placed program: passes, placement, check and proof."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import NamedTuple

from singa_lite.compiler.ir.program import Program, floor, host_requests, requests
from singa_lite.compiler.order.workspace import has_levels, with_target_scratch, with_workspaces
from singa_lite.compiler.pipeline import parted, planning, rewriting, run_passes
from singa_lite.compiler.placed import Least, LimitError, Placed, collector_paused
from singa_lite.compiler.placement.check import check
from singa_lite.compiler.placement.planner import plan
from singa_lite.compiler.placement.problem import CapacityError, Plan, PlanError, Request
from singa_lite.compiler.proof.errors import request_labels
from singa_lite.compiler.recompute.budget import HeldLevels, Searches, matched_levels, total_seconds
from singa_lite.compiler.recompute.search import NAMED
from singa_lite.compiler.recompute.time_bound import least_repeat_seconds
from singa_lite.compiler.share.in_place import in_place

#: Tries of the exact placement, and how many of many blocks, each of which takes longer. A few tenths of a second.
MOST_NODES, NODES_TIMES_BLOCKS = 8000, 4_000_000
#: How often the limit is tightened where the placement leaves a gap.
MOST_LIMITS = 4
#: How many of the choices that keep a limit are placed, the cheapest first, before it is tightened.
RANKS = 4
#: Moves of single instructions lower a floor by less than what is beyond this share of it.
LEAST_MOVED = 0.75


class Sketched(NamedTuple):
    """An estimate of a plan within a limit, neither placed nor proved. slowdown: see `MemoryPlan.estimated_slowdown`;
    chosen: None where nothing has to be dropped.
    """

    slowdown: float
    chosen: HeldLevels | None


def lower(recorded: Program, *, fuse: bool = True, parallel: bool = False, search: bool = True) -> Placed:
    """Plan a record so that it needs as little memory as the passes can reach, and check that nothing overlaps.

    fuse: through the passes that rewrite too. parallel: in waves, whose lanes may run at the same time (`parallel.py`).
    search: see `Lowering.unlimited`; plans within a limit are always searched for.

    LimitError where the target limits the arena and no plan within was found; the instructions may not be reordered
    then, so `parallel` is refused.
    """
    limit = recorded.target.limit
    if parallel and limit is not None:
        raise PlanError("a plan for any order of running: wanted no limit of the arena, whose repeats want one order")
    lowering = Lowering(recorded, fuse=fuse, parallel=parallel)
    return lowering.unlimited(search) if limit is None else lowering.within(limit)


class Lowering:
    """What a record is lowered by, for one limit of its arena after the other; each gives what `lower` gives for it.

    What does not depend on the limit is done once, and what was searched for is remembered, as long as this lives.
    """

    def __init__(self, recorded: Program, *, fuse: bool = True, parallel: bool = False) -> None:
        start = time.perf_counter()
        self._recorded = recorded = recorded.numbered()
        self._fuse = fuse
        self._gains: dict[str, int] = {}
        shared, self._limited = parted(parallel)
        with collector_paused():
            self.rewritten = run_passes(recorded, rewriting(fuse), self._gains).numbered()
            self._program = run_passes(self.rewritten, shared, self._gains)
        self._searches = Searches(self._program)
        self._choices = 0
        self._seconds = time.perf_counter() - start

    def unlimited(self, search: bool = True) -> Placed:
        """The plan of an arena of as many bytes as it takes.

        search: for an exact placement, if the first ones leave a gap; by a number of tries, so that every run of a
        script, on any machine, gets the same plan.
        """
        with collector_paused():
            return with_workspaces(self._free if search else self._placed(None, search=False), None)

    def within(self, limit: int) -> Placed:
        """The plan of an arena of at most `limit` bytes. LimitError as for `lower`.

        Calls that do with less scratch, by slower engines, are planned with the least of it only where the limit is not
        kept otherwise: such an engine may take twenty times as long. Then they get what there is room for.
        """
        with collector_paused():
            return with_workspaces(self._usual_or_thrifty_plan(limit), limit)

    def _usual_or_thrifty_plan(self, limit: int) -> Placed:
        try:
            return self._limited_plan(limit)
        except LimitError:
            if self._thrifty is None:
                raise
        return self._thrifty._limited_plan(limit)

    def free_within(self, limit: int) -> Placed | None:
        """The plan without a limit, where it keeps this one; it is made only where its floor may come within."""
        with collector_paused():
            if LEAST_MOVED * self._free_floor > limit or self._free.arena_bytes > limit:
                return None
            return with_workspaces(self._free, limit)

    @cached_property
    def _free(self) -> Placed:
        """The plan without a limit, before workspaces grow."""
        return self._placed(None)

    @cached_property
    def _free_floor(self) -> int:
        return floor(in_place(self.without_limit()))

    @cached_property
    def _floor(self) -> int:
        return floor(in_place(self._program))

    def _keeps(self, limit: int) -> bool:
        """Whether the plan without a limit keeps this one.

        Moves behind the limited passes may bring the program within, with nothing made again.
        """
        return limit >= LEAST_MOVED * self._floor and self._free.arena_bytes <= limit

    @cached_property
    def _thrifty(self) -> Lowering | None:
        """That of calls with the least scratch that they do with; None where it is what they have."""
        if self._recorded.target.thrifty or not has_levels(self._program):
            return None
        target = replace(self._recorded.target, thrifty=True)
        return Lowering(with_target_scratch(replace(self._recorded, target=target)), fuse=self._fuse)

    def rung(self, limit: int) -> int:
        """A limit not above this one, for which a search takes half as long."""
        return self._searches.search_of(self._program).rung(limit) if self._program.sizes else limit

    def sketched(self, limit: int, start: HeldLevels | None, thrifty: bool = True) -> Sketched | None:
        """What a plan within a limit would be, without copies to host memory; None where none was found.

        start: levels of another size of the batch, from which few moves are made; None: as a plan's are searched for.
        thrifty: whether the cost is of interest, and not only that there is a plan.
        """
        with collector_paused():
            unlimited = self.without_limit() if thrifty else self._program
            if floor(in_place(unlimited)) <= limit:
                return Sketched(0.0, None)
            found = []
            for form in (self._program, *self._program.rivals):
                search = self._searches.search_of(form)
                if start is None:
                    choice = search.cheapest(limit)
                else:
                    choice = search.from_levels(matched_levels(start, form), limit, thrifty)
                if choice is not None and choice.floor <= limit:
                    found.append((choice.seconds + total_seconds(form), HeldLevels(form, choice.levels)))
                if found and not thrifty:
                    break
            free = total_seconds(unlimited)
        if not found:
            return None
        took, chosen = min(found, key=lambda entry: entry[0])
        return Sketched(took / free - 1, chosen)

    def least_seconds(self, limit: int) -> float:
        """Returns a lower bound on the seconds of any schedule of the calls, in their order, within a limit.

        0 where values may be copied to host memory, which no bound is known for; infinite where no schedule keeps it.
        """
        if self._recorded.target.link is not None:
            return 0.0
        frugal = self._thrifty or self
        found = [inf]
        for form in (frugal._program, *frugal._program.rivals):
            repeats = least_repeat_seconds(form, limit)
            found.append(inf if repeats is None else total_seconds(form) + repeats)
        return min(found)

    def without_limit(self) -> Program:
        """What it is without a limit, but for moves within it."""
        passes = [one for one in self._limited if one.limited]
        return run_passes(_limited(self._program, None), passes, searches=self._searches)

    def _limited_plan(self, limit: int) -> Placed:
        """A placement may miss the floor by some bytes: then the passes are given as many less."""
        if self._keeps(limit):
            return self._free
        if self._at_least(limit) > limit:
            raise self._limit_error(limit)
        aim, found = limit, list[Placed]()
        for _ in range(MOST_LIMITS):
            placements = self._placements(aim, limit)
            found += [placed for placed in placements if placed.arena_bytes <= limit]
            # Where a dearer choice keeps the limit, the cheapest one may do so with a lower aim, and be cheaper still.
            missed = placements[0] if found else min(placements, key=lambda one: one.arena_bytes)
            if missed.arena_bytes <= limit or missed.plan.floor > aim:
                break
            aim = min(aim, missed.plan.floor) - (missed.arena_bytes - limit)
        if found:
            return min(found, key=lambda one: total_seconds(one.planned))
        if self._least.arena_bytes <= limit:
            return self._least
        raise self._limit_error(limit)

    def _limit_error(self, limit: int) -> LimitError:
        return LimitError(limit, Least(self._at_least(), lambda: self._least))

    def _at_least(self, limit: int = -1) -> int:
        """Bytes that no arena is below, as moves and copies are; or any below `limit`, if they are not above it."""
        least = inf
        for form in (self._program, *self._program.rivals) if self._recorded.target.link is None else ():
            least = min(least, LEAST_MOVED * self._searches.search_of(form).bound)
            if least <= limit:
                break
        return int(least) if least < inf else 0

    def _placements(self, aim: int, limit: int) -> list[Placed]:
        """Placements of what is found for an aim, the cheapest first, up to the first whose arena keeps the limit."""
        made = [self._placed(aim, within=limit)]
        while made[-1].arena_bytes > limit and len(made) < min(RANKS, self._choices):
            made.append(self._placed(aim, len(made), limit))
        return made

    @cached_property
    def _least(self) -> Placed:
        """The plan of the smallest arena found: no limit is kept that is a little lower.

        Floors are compared before the passes behind the search, which lower one program's and not another's.
        """
        with collector_paused():
            least = self._placed(0)
            while least.arena_bytes:
                limit = int(NAMED * least.arena_bytes)
                lower = self._placed(limit)
                if lower.arena_bytes > limit:
                    break
                least = lower
        return least

    def _placed(self, limit: int | None, rank: int = 0, within: int | None = None, search: bool = True) -> Placed:
        """The plan of what the passes make of a limit, whether the arena keeps it or not. rank: see `Searches`;
        within: an arena that is small enough, by default none is; search: see `unlimited`.
        """
        gains = dict(self._gains)
        self._searches.rank = rank
        start = time.perf_counter()
        program = run_passes(_limited(self._program, limit), self._limited, gains, self._searches)
        chosen, self._choices = self._searches.chosen, self._searches.count
        free = None if chosen is None else self.without_limit()
        passed = time.perf_counter()
        wanted = requests(program)
        nodes = min(MOST_NODES, NODES_TIMES_BLOCKS // max(1, len(wanted))) if search else 0
        placed = _offsets(wanted, nodes, within)
        on_host = host_requests(program)
        host = plan(on_host, seconds=inf, nodes=0)
        planned = time.perf_counter()
        check(wanted, placed.offsets, placed.arena, told=request_labels(program))
        check(on_host, host.offsets, host.arena)
        checked = time.perf_counter()
        seconds = {"passes": self._seconds + passed - start, "placement": planned - passed, "check": checked - planned}
        return Placed(self._recorded, self.rewritten, program, placed, gains, seconds, host, chosen, free)


def _offsets(wanted: Sequence[Request], nodes: int, within: int | None) -> Plan:
    """Where all lies, in the smallest arena that is found, or in the first one that is small enough.

    Bounded by counts of tries, not by seconds: processes that plan the same step get equal plans.
    """
    try:
        return plan(wanted, capacity=within, seconds=inf, nodes=nodes)
    except CapacityError as error:
        return error.best


def _limited(program: Program, limit: int | None) -> Program:
    if program.target.limit == limit:
        return program
    return replace(program, target=replace(program.target, limit=limit))


def unshared(recorded: Program, *, fuse: bool = True) -> Placed:
    """The rewritten program, in order, with bytes of its own for every block: what sharing is compared with."""
    gains: dict[str, int] = {}
    rewritten = run_passes(recorded, rewriting(fuse), gains)
    program = run_passes(rewritten, (one for one in planning() if one.name == "dead"), gains)
    offsets, top = {}, 0
    for request in requests(program):
        offsets[request.id] = top
        top += program.rounded(request.size)
    apart = Plan(offsets, top, floor(program), False, 0.0, "unshared")
    return Placed(recorded, rewritten, program, apart, gains, {})
