"""Placed: a program with an offset for each block, as it runs; and the proof that it may."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

from singa_lite.common.packed import Packed
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program, floor
from singa_lite.compiler.placement.problem import Plan, PlanError
from singa_lite.compiler.proof.check_rewrites import check_rewrites
from singa_lite.compiler.proof.errors import NO_NAMES, BlockNames
from singa_lite.compiler.proof.races import check_races
from singa_lite.compiler.proof.read_from import check_reads
from singa_lite.compiler.recompute.budget import HeldLevels


class Least(NamedTuple):
    """The plan of the smallest arena of a form, which is searched for when `find` is called. at_least: bytes that no
    arena of the form is below.
    """

    at_least: int
    find: Callable[[], Placed]

    @classmethod
    def joined(cls, forms: Sequence[Least]) -> Least:
        """Returns the least of several forms; those that cannot be it are not searched."""
        return cls(min(form.at_least for form in forms), partial(_smallest, forms))


def _smallest(forms: Sequence[Least]) -> Placed:
    first, *others = sorted(forms, key=lambda form: form.at_least)
    best = first.find()
    for form in others:
        if form.at_least < best.arena_bytes:
            best = min(best, form.find(), key=lambda placed: placed.arena_bytes)
    return best


class LimitError(PlanError):
    """No plan within the limit was found. limit: bytes of the arena; least: the plan of the smallest arena found."""

    def __init__(self, limit: int, found: Least) -> None:
        super().__init__(limit, found)
        self.limit, self.found = limit, found

    @cached_property
    def least(self) -> Placed:
        """The plan of the smallest arena found; it is searched for when it is first asked for."""
        return self.found.find()

    def __str__(self) -> str:
        """What was wanted, and what the least is."""
        return f"wanted an arena of at most {self.limit:,} bytes, the least found is {self.least.arena_bytes:,}"


@dataclass(frozen=True)
class Placed:
    """A program with an offset for each block, and the two programs that it was made from.

    recorded: the step as it was recorded, before any pass.
    rewritten: the program behind the passes that rewrite. The proof begins here and not at the record: other calls
    stand in it, which compute the same by other arithmetic, so no byte of theirs can be traced to a write of the
    record. That these agree in value is tested, pass by pass.
    planned: the program behind all passes, as it runs.
    plan: of `requests(planned)`. gains: {pass: bytes by which it lowered the floor}. seconds: {stage: time it took}.
    host: the plan of `host_requests(planned)`; None where no host memory is planned.
    chosen: how values are held so that the limit is kept, and free: the program without one; None where nothing is.
    form: of the record, in words, where it is another one than the recorded.
    """

    recorded: Program
    rewritten: Program
    planned: Program
    plan: Plan
    gains: dict[str, int]
    seconds: dict[str, float]
    host: Plan | None = None
    chosen: HeldLevels | None = None
    free: Program | None = None
    form: str = ""

    @cached_property
    def offsets(self) -> dict[int, int]:
        """{block: offset in the arena}."""
        return _numbered(self.plan, "b")

    @cached_property
    def scratch(self) -> dict[int, int]:
        """{number of an instruction: offset of its scratch in the arena}."""
        return _numbered(self.plan, "s")

    @cached_property
    def host_offsets(self) -> dict[int, int]:
        """{block of host memory: offset there}."""
        return {} if self.host is None else _numbered(self.host, "h")

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory."""
        return 0 if self.host is None else self.host.arena

    @cached_property
    def recorded_floor(self) -> int:
        """The floor of `recorded`."""
        return floor(self.recorded)

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena."""
        return self.plan.arena

    @property
    def order(self) -> str:
        """Name of the order chosen."""
        return self.planned.order

    def compared_with(self, free: Program, form: str = "") -> Placed:
        """The same plan of another form of the record, whose time is compared with that of `free`, without a limit."""
        return replace(self, planned=replace(self.planned, free=()), free=free, form=form)

    def packed(self) -> Packed[Placed]:
        """The same, to be kept as bytes."""
        return Packed(self, (Placed, Program, Plan, HeldLevels, Instruction, Operand))


def _numbered(plan: Plan, kind: str) -> dict[int, int]:
    """{number: offset} of the requests of a kind, whose ids are the kind and the number."""
    return {int(key[1:]): offset for key, offset in plan.offsets.items() if key[0] == kind}


@contextmanager
def collector_paused() -> Iterator[None]:
    """No garbage collection inside: passes make many objects and no cycles, and walks over them cost a third."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def prove(placed: Placed, names: BlockNames = NO_NAMES) -> None:
    """Raises PlanError unless every read of the planned program gets the same bytes as in the rewritten one. That
    includes instructions that run at the same time.

    Wanted before it runs. The time goes with the number of pieces that differ in writer or spacing, as a rule not
    with the batch, see `read_from`. names: of blocks, for the message.
    """
    start = time.perf_counter()
    with collector_paused():
        check_rewrites(placed.recorded, placed.rewritten, names)
        check_reads(placed.rewritten, placed.planned, placed.offsets, placed.host_offsets, names)
        check_races(placed.planned, placed.offsets, placed.scratch)
    placed.seconds["proof"] = time.perf_counter() - start
