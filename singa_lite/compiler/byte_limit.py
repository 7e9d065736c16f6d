"""ByteLimit: bytes that a step may take in all, what others have of them, and what is left for an arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from singa_lite.runtime.pool_numbers import arena_within, least_total, overhead


@dataclass(frozen=True)
class ByteLimit:
    """A budget, or a device's limit. nbytes: in all; taken: of these, held beside the step; device: whose limit it is,
    "" for a budget that was asked for; process: what the process takes beside the pool, which a budget counts.
    """

    nbytes: int
    taken: int = 0
    device: str = ""
    process: int = 0

    @property
    def left(self) -> int:
        """Bytes for the step."""
        return self.nbytes - self.taken

    def beside(self, nbytes: int) -> ByteLimit:
        """The same of a budget, where the process takes so much; of a device's limit, which counts its pool alone, it
        itself.
        """
        return self if self.device or not nbytes else replace(self, process=nbytes)

    def arena(self, held: Sequence[int], alignment: int) -> int:
        """The most bytes that the step's arena may have. held: of each block outside it; alignment: of the pool's."""
        return arena_within(self.nbytes - self.process, self._with_taken(held), alignment)

    def total(self, held: Sequence[int], arena: int, alignment: int) -> int:
        """All that is held with an arena of so many bytes: the step, what the pool adds, and what others hold."""
        everything = self._with_taken(held)
        return sum(everything) + arena + overhead(everything, arena, alignment) + self.process

    def leaves(self, held: Sequence[int], arena: int, alignment: int) -> bool:
        """Whether a step has room beside an arena of so many bytes, which others may have made larger than it needs."""
        return least_total(self._with_taken(held), arena, alignment) <= self.nbytes - self.process

    def may_hold(self, held: Sequence[int], arena: int, alignment: int) -> bool:
        """Whether a pool with this limit holds the step where regions lie in its segments without a gap."""
        regions = (nbytes + -nbytes % alignment for nbytes in (*held, arena))
        return bool(self.device) and sum(regions) + self.taken <= self.nbytes

    def _with_taken(self, held: Sequence[int]) -> list[int]:
        return [*held, self.taken] if self.taken else list(held)
