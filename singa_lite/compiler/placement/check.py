"""The check that runs on every plan: slow, plain, and sharing nothing with the planner but the nouns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from singa_lite.compiler.placement.problem import PlanError, Request


class OverlapError(PlanError):
    """Two requests that are alive together share bytes. ids: theirs."""

    def __init__(self, message: str, ids: tuple[str, str]) -> None:
        super().__init__(message)
        self.ids = ids


def check(
    requests: Sequence[Request],
    offsets: Mapping[str, int],
    arena: int,
    told: Callable[[str], str] | None = None,
) -> None:
    """PlanError unless each request has one offset, aligned and in the arena, and no byte is used twice at a step.

    offsets: by id, in bytes. arena: bytes. The message names the rule, and the request or the pair that breaks it;
    told: what is to be said of an id beside.
    """
    _check_ids(requests, offsets)
    for request in requests:
        _check_offset(request, offsets[request.id], arena)
    try:
        _check_steps(requests, offsets)
    except OverlapError as error:
        if told is None:
            raise
        raise OverlapError(f"{error}. {told(error.ids[0])}; {told(error.ids[1])}", error.ids) from None


def _check_ids(requests: Sequence[Request], offsets: Mapping[str, int]) -> None:
    wanted: set[str] = set()
    for request in requests:
        if request.id in wanted:
            raise PlanError(f"ids: wanted one request for each id, received several for {request.id!r}")
        wanted.add(request.id)
    if missing := [request.id for request in requests if request.id not in offsets]:
        raise PlanError(f"ids: wanted an offset for each request, received none for {_named(missing)}")
    if extra := [name for name in offsets if name not in wanted]:
        raise PlanError(f"ids: wanted offsets of requests only, received one for {_named(extra)}")


def _named(ids: list[str]) -> str:
    return ", ".join(map(repr, ids[:3])) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")


def _check_offset(request: Request, offset: int, arena: int) -> None:
    if offset < 0 or offset + request.size > arena:
        raise PlanError(
            f"bounds: wanted {request.id!r} within the arena of {arena} bytes, "
            f"received bytes {offset} to {offset + request.size}"
        )
    if offset % request.alignment:
        raise PlanError(
            f"alignment: wanted {request.id!r} at a multiple of {request.alignment} bytes, received offset {offset}"
        )


def _check_steps(requests: Sequence[Request], offsets: Mapping[str, int]) -> None:
    """Go through the steps with the live requests in the order of their offsets.

    As long as those share no byte, one that starts can meet only its neighbors in that order, if it meets any.
    """
    starts = [(request.start, 1, number) for number, request in enumerate(requests) if request.size]
    ends = [(request.stop, 0, number) for number, request in enumerate(requests) if request.size]
    live: list[tuple[int, int]] = []  # offset, number of the request
    for _, starting, number in sorted(starts + ends):  # at a step, those that end go first
        entry = offsets[requests[number].id], number
        at = bisect_left(live, entry)
        if not starting:
            del live[at]
            continue
        for _, other in live[max(at - 1, 0) : at + 1]:
            _check_pair(requests[other], requests[number], offsets)
        live.insert(at, entry)


def _check_pair(a: Request, b: Request, offsets: Mapping[str, int]) -> None:
    """PlanError if two requests that are alive together share a byte."""
    start = max(offsets[a.id], offsets[b.id])
    stop = min(offsets[a.id] + a.size, offsets[b.id] + b.size)
    if start < stop and a.size and b.size:
        raise OverlapError(
            f"overlap: wanted {a.id!r} and {b.id!r} apart, received both at bytes {start} to {stop}; "
            f"{_described(a, offsets)}, {_described(b, offsets)}",
            (a.id, b.id),
        )


def _described(request: Request, offsets: Mapping[str, int]) -> str:
    start = offsets[request.id]
    return f"{request.id!r} has bytes {start} to {start + request.size} in steps {request.start} to {request.stop}"
