"""The two forms of a record that may be planned within a limit: with large scores by rows alone, or by classes too.

The second (`head_classes.py`) makes a product once more and needs less, before anything else is made again. So without
a limit it is the first; within one that of less time, and the second alone where the first cannot keep it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial

from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.lower import Lowering, Sketched
from singa_lite.compiler.placed import Least, LimitError, Placed
from singa_lite.compiler.recompute.budget import HeldLevels, total_seconds, waiting
from singa_lite.compiler.rewrite.head_classes import AGAIN
from singa_lite.compiler.rewrite.scores import LOSS

#: Of scores that may be worth it, bytes, in times of the target's `tile_bytes`.
LEAST = 4


class PlanVariants:
    """Plans of either form within limits. usual: the lowering of the first, which all other questions are asked of."""

    def __init__(self, recorded: Program, *, fuse: bool = True) -> None:
        self._recorded, self._fuse = recorded, fuse
        self.usual = Lowering(recorded, fuse=fuse)

    def within(self, limit: int) -> Placed:
        """As `Lowering.within`. A limit that the plan without one keeps takes no more time than that."""
        free = self.usual.free_within(limit)
        try:
            found = self._quickest(limit)
        except LimitError:
            if free is None:
                raise
            return free
        return found if free is None or not has_more(found) else min(free, found, key=seconds_of)

    def _quickest(self, limit: int) -> Placed:
        """The plan of the form that takes less time; the least of both where neither keeps the limit."""
        found, least = list[Placed](), list[Least]()  # no errors: their frames would keep what the callers hold
        for form in self._forms():
            try:
                found.append(self._of_form(form, form.within(limit)))
            except LimitError as error:
                least.append(error.found._replace(find=partial(self._least, form, error.found)))
            if found and not has_more(found[0]):
                break
        if not found:
            raise LimitError(limit, Least.joined(least))
        return min(found, key=seconds_of) if found[1:] else found[0]

    def _least(self, form: Lowering, found: Least) -> Placed:
        return self._of_form(form, found.find())

    def _of_form(self, form: Lowering, placed: Placed) -> Placed:
        return placed if form is self.usual else placed.compared_with(self.usual.without_limit())

    def sketched(self, limit: int, start: HeldLevels | None, thrifty: bool = True) -> Sketched | None:
        """As `Lowering.sketched`."""
        found = self.usual.sketched(limit, start, thrifty)
        if (found is not None and (found.slowdown == 0 or not thrifty)) or self._other is None:
            return found
        other = self._other.sketched(limit, start, thrifty)
        if other is None:
            return found
        slowdown = (1 + other.slowdown) * self._share - 1
        return other._replace(slowdown=slowdown) if found is None or slowdown < found.slowdown else found

    def least_seconds(self, limit: int) -> float:
        """As `Lowering.least_seconds`, of both forms."""
        return min(form.least_seconds(limit) for form in self._forms())

    def _forms(self) -> Iterator[Lowering]:
        yield self.usual
        if self._other is not None:
            yield self._other

    @cached_property
    def _other(self) -> Lowering | None:
        """The second form; None where the record has no such scores."""
        target = self._recorded.target
        if not self._fuse or not any(_is_large_loss(i, LEAST * target.tile_bytes) for i in self._recorded.instructions):
            return None
        made = Lowering(replace(self._recorded, target=replace(target, class_tiles=True)))
        return made if any(i.kernel == AGAIN for i in made.rewritten.instructions) else None

    @cached_property
    def _share(self) -> float:
        """The time of the second form without a limit, in times of that of the first."""
        other = self.usual if self._other is None else self._other
        return total_seconds(other.without_limit()) / total_seconds(self.usual.without_limit())


def has_more(placed: Placed) -> bool:
    """Whether something is made again, or copied, for a limit."""
    return placed.chosen is not None or bool(placed.planned.host_sizes)


def seconds_of(placed: Placed) -> float:
    """Of all its calls, and of waiting for copies."""
    return total_seconds(placed.planned) + waiting(placed.planned)


def _is_large_loss(instruction: Instruction, nbytes: int) -> bool:
    x = instruction.by_name["x"] if instruction.kernel == LOSS else None
    return x is not None and x.nbytes >= nbytes
