"""Why a capacity does not suffice: a smallest set of requests that cannot live together in it."""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from singa_lite.compiler.placement.planner import plan
from singa_lite.compiler.placement.problem import CapacityError, PlanError, Request, floor, granule

TEST_NODES = 20_000  # of each decision that a reduction takes


@dataclass(frozen=True, slots=True)
class ConflictSet:
    """Requests that have no placement within a capacity, in the order in which they were given.

    irreducible: without any one of them there is a placement, proved for each. step: one at which all are alive,
    in bytes more than the capacity; None if it is not the load of one step that is too much.
    """

    requests: tuple[Request, ...]
    irreducible: bool
    step: int | None


def conflict_set(
    requests: Sequence[Request],
    capacity: int,
    *,
    proved: bool = False,
    seconds: float = 5.0,
    nodes: float = TEST_NODES,
) -> ConflictSet:
    """An irreducible set of requests that cannot be placed within `capacity` bytes together.

    Where the load of a step is too much, the fewest requests of one step that are. Else what is left of all
    when each request has been tried for removal (deletion filter), with `nodes` of the search for each try and
    as many `seconds` for all. `proved`: the caller knows that the capacity does not suffice.

    PlanError if it does suffice; CapacityError, with `proved` unset, if that is not known within the limits.
    """
    end = time.perf_counter() + seconds
    if floor(requests) > capacity:
        step, members = _overload(requests, capacity)
    else:
        step, members = None, list(requests)
        if not proved:
            _refute(members, capacity, seconds)
    kept, irreducible = _reduce(members, capacity, end, nodes)
    chosen = {request.id for request in kept}
    return ConflictSet(tuple(request for request in requests if request.id in chosen), irreducible, step)


def _refute(requests: Sequence[Request], capacity: int, seconds: float) -> None:
    """PlanError if there is a placement, CapacityError if it is not known whether there is."""
    try:
        arena = plan(requests, capacity=capacity, seconds=seconds).arena
    except CapacityError as error:
        if not error.proved:
            raise
    else:
        raise PlanError(f"wanted a capacity that does not suffice, received {capacity} bytes: {arena} are enough")


def _overload(requests: Sequence[Request], capacity: int) -> tuple[int, list[Request]]:
    """A step, and the fewest of its requests that need more than `capacity` bytes: its largest, as many as it takes."""
    unit = granule(requests)
    keys = [(-request.size // unit * unit, row) for row, request in enumerate(requests)]  # the largest first
    starting = sorted(range(len(requests)), key=lambda row: requests[row].start)
    ending = sorted(range(len(requests)), key=lambda row: requests[row].stop)
    live: list[tuple[int, int]] = []
    step, rows, most, ended = 0, starting, len(requests), 0
    for row in starting:
        start = requests[row].start
        while requests[ending[ended]].stop <= start:
            del live[bisect_left(live, keys[ending[ended]])]
            ended += 1
        insort(live, keys[row])
        needed = slack = 0
        for count, (negative, other) in enumerate(live[:most], 1):
            needed -= negative
            slack = max(slack, -negative - requests[other].size)
            if needed - slack > capacity:  # as in `floor`
                step, rows, most = start, [other for _, other in live[:count]], count - 1
                break
    return step, [requests[row] for row in rows]


def _reduce(requests: Sequence[Request], capacity: int, end: float, nodes: float) -> tuple[tuple[Request, ...], bool]:
    """What is left once all that can go has gone, in ever smaller groups; and whether each last try had an answer."""
    members = sorted(requests, key=lambda request: request.size * (request.stop - request.start))
    group, irreducible = len(members), True
    while group > 1:
        group = (group + 1) // 2
        irreducible, at = True, 0
        while at < len(members):
            rest = members[:at] + members[at + group :]
            infeasible = _infeasible(rest, capacity, end, nodes)
            if infeasible:
                members = rest
            else:
                irreducible &= infeasible is not None
                at += group
    return tuple(members), irreducible


def _infeasible(requests: Sequence[Request], capacity: int, end: float, nodes: float) -> bool | None:
    """Whether there is no placement; None if the nodes or the time do not suffice to tell."""
    try:
        plan(requests, capacity=capacity, seconds=max(end - time.perf_counter(), 0.0), nodes=nodes)
    except CapacityError as error:
        return True if error.proved else None
    return False
