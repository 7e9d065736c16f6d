"""The nouns of placement: requests for bytes over steps, the plan that answers them, and the floor below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import gcd
from operator import index


class PlanError(ValueError):
    """A request makes no sense, a plan breaks a rule, or no plan was found within a capacity.

    >>> net = Sequential([layers.Dense(300, input_shape=(200,)), layers.Dense(3)])
    >>> net.compile("sgd", "mse")
    >>> net.plan_batch(64, memory_budget="10 KB")
    Traceback (most recent call last):
        ...
    singa_lite.graph.budget_error.BudgetError: memory_budget: wanted at most 10,000 bytes in all, ...
    """


@dataclass(frozen=True, slots=True)
class Request:
    """`size` bytes, wanted from step `start` until before step `stop`, at an offset that is a multiple of `alignment`.

    Steps count from 0 and lifespans are half-open: a request that ends at a step and one that starts there
    may share bytes. A size of 0 is allowed and conflicts with nothing. PlanError for a lifespan that is empty
    or starts before 0, a negative size, or an alignment below 1; TypeError for numbers that are not whole.
    """

    id: str
    start: int
    stop: int
    size: int
    alignment: int = 1

    def __post_init__(self) -> None:
        for name in ("start", "stop", "size", "alignment"):
            value = getattr(self, name)
            if type(value) is not int:  # NumPy's whole numbers become Python's, which cannot overflow
                object.__setattr__(self, name, index(value))
        if not 0 <= self.start < self.stop:
            raise PlanError(
                f"request {self.id!r}: wanted a lifespan of at least one step, from step 0 on, "
                f"received steps {self.start} to {self.stop}"
            )
        if self.size < 0 or self.alignment < 1:
            raise PlanError(
                f"request {self.id!r}: wanted a size of 0 bytes or more and an alignment of 1 or more, "
                f"received size {self.size}, alignment {self.alignment}"
            )


@dataclass(frozen=True, slots=True)
class Plan:
    """The offset of each request.

    offsets: by id, in the order of the requests, in bytes from the start of the arena.
    arena: bytes, the largest offset + size.
    floor: bytes that no placement can do without, see `floor`.
    proved: no placement has a smaller arena, either since arena = floor or since the search was exhausted.
    seconds: time taken to plan.
    method: what found the offsets, such as "greedy by size" or "search".
    """

    offsets: dict[str, int]
    arena: int
    floor: int
    proved: bool
    seconds: float
    method: str


class CapacityError(PlanError):
    """No placement within a capacity was found.

    capacity: bytes. proved: there is none; otherwise the nodes or the time did not suffice to tell.
    best: the plan with the smallest arena that was found instead.
    """

    def __init__(self, capacity: int, proved: bool, best: Plan) -> None:
        self.capacity, self.proved, self.best = capacity, proved, best
        said = "proved that there is none" if proved else "found none within the limit, though there may be one"
        super().__init__(
            f"wanted a placement within {capacity} bytes, {said}: "
            f"the floor is {best.floor} bytes, the best placement found takes {best.arena}"
        )


def check_ids(requests: Sequence[Request]) -> None:
    """PlanError that names the ids which are not unique."""
    if len({request.id for request in requests}) < len(requests):
        counts = Counter(request.id for request in requests)
        repeated = [name for name, count in counts.items() if count > 1]
        raise PlanError(f"wanted one request for each id, received several for {', '.join(map(repr, repeated[:5]))}")


def granule(requests: Sequence[Request]) -> int:
    """The greatest number of bytes that divides all alignments, and with them all offsets; 1 for no requests."""
    return gcd(*{request.alignment for request in requests}) or 1


def floor(requests: Sequence[Request]) -> int:
    """The most bytes that the requests of one step need: no arena can be smaller, though it may have to be larger.

    All offsets are multiples of the granule. So of the requests alive at a step, each but the topmost occupies
    its size rounded up to the granule, and the topmost, at best the one that rounding adds most to, occupies
    its size. With alignment 1, or sizes that are multiples of one alignment, this is the largest sum of live
    bytes. Where alignments differ, only what all have in common counts: the bound is valid, but less sharp.
    """
    unit = granule(requests)
    ending = sorted(requests, key=lambda request: request.stop)
    load = best = ended = 0
    slacks: list[tuple[int, int]] = []  # (-bytes that rounding adds, stop) of the live, the most added first
    for request in sorted(requests, key=lambda request: request.start):
        while ending[ended].stop <= request.start:
            load -= -(-ending[ended].size // unit) * unit
            ended += 1
        slack = -request.size % unit
        load += request.size + slack
        heappush(slacks, (-slack, request.stop))
        while slacks[0][1] <= request.start:
            heappop(slacks)
        best = max(best, load + slacks[0][0])
    return best
