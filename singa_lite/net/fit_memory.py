"""FitNeeds: what `fit` takes beside a training step, by the size of its batch: evaluation, and a shorter last batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeVar

from singa_lite.common.errors import ShapeError
from singa_lite.graph.graph import Graph
from singa_lite.runtime.pool import SEGMENT_BYTES
from singa_lite.runtime.pool_numbers import overhead

Answer = TypeVar("Answer")


class Record(Protocol):
    """Records a step, "train", "evaluate" or "predict", for batches of a size, and asks something of the record."""

    def __call__(self, kind: str, size: int, ask: Callable[[Graph], Answer], budget: int | None = None, /) -> Answer:
        """The answer. Nothing runs. budget: bytes that the step is planned within, see `Steps.look`.

        kind: also "begins", the training step of a batch that begins a group.
        """


class Need(NamedTuple):
    """Bytes of a training step alone, from its rough plan. least, most: between which its arena is.

    held: of each block outside the arena. without_scratch: of the arena if no kernel needed any; scratch: of each
    operation. eager: as each operation is done at once. repeats: whether the plan repeats any.
    apart: what counts beside these and the pool's own, `process_bytes` and `unused_bytes` of a `MemoryPlan`.
    """

    least: int
    most: int
    held: list[int]
    without_scratch: int
    scratch: list[int]
    eager: int
    repeats: bool
    apart: int


class FitNeeds:
    """The needs of steps of one net as it is now, without a budget; each size is recorded once.

    alignment: bytes, of the pool's regions; samples: how many there are to train with, which says how many are left
    for the last batch; None: any number may be. kinds: {what `fit` does beside it with batches of the same size: kind
    of step}. known: of the sizes that were asked for, None where there are more bytes than can be counted.
    """

    def __init__(self, record: Record, alignment: int, samples: int | None, kinds: Mapping[str, str]) -> None:
        self._record = record
        self._alignment = alignment
        self._samples = samples
        self.kinds = kinds
        self.known: dict[int, Need | None] = {}
        self._arenas: dict[int, int] = {}
        self._others: dict[tuple[str, int], int] = {}
        self._eagers: dict[int, int] = {}

    def of(self, size: int) -> Need | None:
        """Of a training step; None where it has more bytes than can be counted."""
        if size not in self.known:
            try:
                self.known[size] = self._record("train", size, _measured)
            except ShapeError:
                self.known[size] = None
        return self.known[size]

    def total(self, held: list[int], arena: int) -> int:
        """Bytes of blocks, an arena and what the pool adds."""
        return sum(held) + arena + self.overhead(held, arena)

    def overhead(self, held: list[int], arena: int) -> int:
        """Bytes that the pool adds."""
        return overhead(held, arena, self._alignment)

    def beside(
        self, size: int, arena: int, scratch: list[int], bound: int | None = None, repeats: bool = False
    ) -> dict[str, int]:
        """What other steps of `fit` need of the arena. arena, scratch: what the training step of this size needs.

        bound: of the arena, by a budget. Within one a shorter batch may take more than this one, as it repeats less, up
        to what the budget leaves. repeats: whether this one repeats something: without a bound a shorter one may
        repeat others, and so is planned.
        """
        needs = {name: self._other(kind, size) for name, kind in self.kinds.items()}
        for shorter in self._shorter(size):
            most = self._eager(shorter)
            if most <= arena:
                continue
            if bound is not None:
                needs[f"last batch of {shorter}"] = min(most, bound)
            elif repeats or _exceeds(self._scratch(shorter), scratch):
                need = self.of(shorter)
                if need is not None and need.most > arena:
                    needs[f"last batch of {shorter}"] = self._arena(shorter, need)
        return needs

    def doubtful(self, size: int, scratch: list[int], most: int) -> list[int]:
        """Returns sizes of last batches that need more scratch and may not fit into `most` bytes of the arena. None
        unless the number of samples is known. scratch: as for `beside`.
        """
        shorter = [] if self._samples is None else self._shorter(size)
        return [one for one in shorter if self._eager(one) > most and _exceeds(self._scratch(one), scratch)]

    def fits_alone(self, size: int, nbytes: int) -> bool:
        """Whether the training step fits. It is placed exactly only where the rough plan leaves a doubt."""
        need = self.of(size)
        if need is None:
            return False
        at_least, at_most = (self.total(need.held, arena) <= nbytes - need.apart for arena in (need.least, need.most))
        if at_least == at_most and need.least >= SEGMENT_BYTES:  # else the pool may make up for a larger arena
            return at_most
        return self.total(need.held, self._arena(size, need)) <= nbytes - need.apart

    def fits(self, size: int, nbytes: int) -> bool:
        """Whether all that `fit` does with this size fits: the total of its plan."""
        need = self.of(size)
        if need is None or not self.fits_alone(size, nbytes):
            return False
        arena = self._arena(size, need)
        most = max(arena, *self.beside(size, arena, need.scratch, None, need.repeats).values())
        return self.total(need.held, most) <= nbytes - need.apart

    def may_fit(self, size: int, nbytes: int) -> bool:
        """Whether this size or a larger one would fit without scratch: what is left then grows with the batch."""
        need = self.of(size)
        return need is not None and sum(need.held) + need.without_scratch <= nbytes - need.apart

    def _arena(self, size: int, need: Need) -> int:
        """Bytes of the training step's arena."""
        if need.least == need.most:
            return need.least
        if size not in self._arenas:
            self._arenas[size] = self._record("train", size, lambda graph: graph.memory_plan.arena_bytes)
        return self._arenas[size]

    def _eager(self, size: int) -> int:
        """Bytes of a training step whose operations are done at once, above which no arena is.

        0 of a batch that a layer refuses, as one does that keeps a state of each sample: `fit` takes none of that size.
        """
        need = self.known.get(size)
        if need is not None:
            return need.eager
        if size not in self._eagers:
            try:
                self._eagers[size] = self._record("train", size, lambda graph: graph.eager_bytes)
            except ShapeError:
                self._eagers[size] = 0
        return self._eagers[size]

    def _scratch(self, size: int) -> list[int]:
        """Bytes of scratch of each operation of a training step."""
        need = self.known.get(size)
        return self._record("train", size, lambda graph: graph.scratch_bytes()) if need is None else need.scratch

    def _other(self, kind: str, size: int) -> int:
        """Bytes of the arena of a step of another kind that nothing bounds."""
        if (kind, size) not in self._others:
            self._others[kind, size] = self._record(kind, size, lambda graph: graph.memory_plan.arena_bytes)
        return self._others[kind, size]

    def _shorter(self, size: int) -> list[int]:
        """Sizes that the last batch of an epoch may have."""
        if self._samples is not None:
            left = self._samples % size
            return [left] if left else []
        return sorted({*_nearby_sizes(size)} | {*_halves(size)}, reverse=True)


def _measured(graph: Graph) -> Need:
    plan = graph.rough_plan()
    sizes = plan.floor_bytes, plan.arena_bytes, plan.held_blocks
    repeats = plan.recomputed > 0
    without = plan.floor_without_scratch_bytes
    apart = plan.process_bytes + graph.unused_bytes
    return Need(*sizes, without, graph.scratch_bytes(), graph.eager_bytes, repeats, apart)


def _nearby_sizes(size: int) -> Iterator[int]:
    below = 1
    while below < size:
        yield size - below
        below *= 2


def _halves(size: int) -> Iterator[int]:
    while size > 1:
        size //= 2
        yield size


def _exceeds(scratch: list[int], known: list[int]) -> bool:
    """Whether an operation needs more scratch than the same one of the larger batch."""
    return len(scratch) != len(known) or any(one > other for one, other in zip(scratch, known, strict=True))
