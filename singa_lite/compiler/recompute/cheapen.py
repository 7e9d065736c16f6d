"""Cheapen: from a choice that keeps a limit at any cost towards one that costs little, within the limit all the way.

Near the least that there is, greedy steps from nothing dropped come to an end above the limit: what they have dropped
already stands in the way of what would have to be dropped together. A choice of a low floor is easily found, but it
makes long chains again for each reader. Between the two lies what is wanted: most values may be held as in the cheap
one, but for those around the peak.
"""

from __future__ import annotations

from collections.abc import Mapping

from singa_lite.compiler.recompute.local_search import LocalSearch
from singa_lite.compiler.recompute.repeats import KEPT

#: How often values are gone over, how many of the costliest, and by how much a round must lower the cost for another.
ROUNDS, COSTLIEST, WORTH_ANOTHER = 2, 32, 0.99


def approach_levels(descent: LocalSearch, levels: Mapping[int, int], limit: int) -> None:
    """Hold values as in `levels` where the limit holds then too and the cost is lower: all, or halves of what failed.

    Halves are neighbours in the order of the program, as what is on the way to each other goes together.
    """
    now, writers = descent.sketch.levels, descent.repeater.writers
    differ = [b for b in descent.repeater.candidates if now.get(b, KEPT) != levels.get(b, KEPT)]
    must = descent.must_drop(limit)
    differ = [b for b in differ if levels.get(b, KEPT) != KEPT or b not in must]
    groups = [sorted(differ, key=lambda block: (writers[block][0], block))]
    while groups:
        halves = list[list[int]]()
        for group in groups:
            if not descent.cheaper({block: levels.get(block, KEPT) for block in group}, limit) and len(group) > 1:
                middle = len(group) // 2
                halves += [group[:middle], group[middle:]]
        groups = halves


def held_otherwise(descent: LocalSearch, limit: int) -> None:
    """Hold the costliest values, one after the other, in each way that is cheaper within the limit."""
    for _ in range(ROUNDS):
        before = descent.sketch.cost
        for block in descent.by_cost()[:COSTLIEST]:
            descent.held_cheaper(block, limit)
        if descent.sketch.cost > WORTH_ANOTHER * before:
            return
