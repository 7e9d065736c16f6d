"""RuleOn: a rule for one device, in all the variants in which its pattern may stand in a record there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from singa_lite.autograd.rewriting.proof import Claim
from singa_lite.autograd.rewriting.traced import (
    Function,
    Needs,
    Stated,
    check_sides,
    fits,
    is_connected,
    lie_alike,
    makes_results,
    paired,
    traced,
    trials,
)
from singa_lite.common.array_types import DType
from singa_lite.common.errors import RuleError
from singa_lite.common.unique import Unique
from singa_lite.compiler.ir.matching import Side, Sides
from singa_lite.compiler.ir.operation import Operand
from singa_lite.device import Device
from singa_lite.tensor import contiguous_strides

#: Of more inputs than these derivatives are looked for by all, by each alone, and by none.
MOST_SUBSETS = 3


class RuleOn(Unique):
    """See `RecordRule`. forms: (shapes, by which inputs there are derivatives) of all that the rule says.

    stated: alternatives of the inputs' shapes; is_stated: whether the user gave them, else those that the pattern does
    not take are left out. A variant stands for all forms whose patterns have the same operations on the same tensors;
    those with more derivatives come first, as they have operations of the others.
    """

    def __init__(
        self,
        claim: Claim,
        stated: Sequence[Stated],
        is_stated: bool,
        dtypes: Sequence[DType],
        derivatives: bool,
        device: Device,
    ) -> None:
        self.name = claim.name
        self.forms: list[tuple[Stated, Needs]] = []
        self._claim, self._dtypes, self._device = claim, dtypes, device
        self._known: dict[tuple[object, ...], Sides | None] = {}
        self._variants: dict[object, list[tuple[Stated, Needs]]] = {}
        self.examples: list[Sides] = []
        taken = [one for one in stated if is_stated or self._takes(one)] or stated[:1]
        for one in taken:  # what is wrong already there is told without derivatives
            needs = (False,) * len(one)
            check_sides(self._claim.where, self._both(_forms(one, dtypes[0]), needs), claim.names)
        for needs in _subsets(len(claim.names), derivatives):
            for one in taken:
                self._add(one, needs)

    def sides(self, variant: int, inputs: Sequence[Operand]) -> Sides | None:
        """Both sides of a variant for inputs of these forms; None for those that the rule is not stated for."""
        key = variant, *(operand[1:4] for operand in inputs)
        if key not in self._known:
            self._known[key] = self._sides_for(variant, inputs)
        return self._known[key]

    def _sides_for(self, variant: int, inputs: Sequence[Operand]) -> Sides | None:
        count = len(self._claim.names)
        if any(operand.dtype not in self._dtypes for operand in inputs):
            return None
        for stated, needs in [*self._variants.values()][variant]:
            if fits(stated, [operand.shape for operand in inputs[:count]]):
                found = self._both(inputs, needs)
                return found if lie_alike(found) else None
        return None

    def _takes(self, stated: Stated) -> bool:
        """Whether the pattern takes inputs of these shapes."""
        try:
            self._side(self._claim.pattern, _forms(stated, self._dtypes[0]), (False,) * len(stated))
        except RuleError:
            raise
        except (ValueError, TypeError, IndexError):
            return False
        return True

    def _add(self, stated: Stated, needs: Needs) -> None:
        """Note what the rule says for some shapes and derivatives."""
        try:
            sides = self._both(_forms(stated, self._dtypes[0]), needs)
        except (RuleError, TypeError) as error:
            if any(needs):
                by = [name for name, needed in zip(self._claim.names, needs, strict=True) if needed]
                error.add_note(f"for derivatives by {by}; with derivatives=False none are asked for")
            raise
        if any(needs) and not (is_connected(sides.pattern) and all(map(makes_results, sides))):
            return  # the way back needs nothing of the way there, or is no operation: the way there is rewritten alone
        self.forms.append((stated, needs))
        key = _structure(sides.pattern)
        if key not in self._variants:
            self.examples.append(sides)
        self._variants.setdefault(key, []).append((stated, needs))

    def _both(self, forms: Sequence[Operand], needs: Needs) -> Sides:
        pattern = self._side(self._claim.pattern, forms, needs)
        replacement = self._side(self._claim.replacement, pattern.inputs, needs)
        return paired(self._claim.where, pattern, replacement)

    def _side(self, function: Function, forms: Sequence[Operand], needs: Needs) -> Side:
        return traced(self._claim.where, function, forms, needs, self._device)


def _subsets(count: int, derivatives: bool) -> Iterator[Needs]:
    """By which inputs derivatives may be needed; most of them first."""
    if derivatives:
        every = sorted(product((True, False), repeat=count), key=sum, reverse=True)
        some = every if count <= MOST_SUBSETS else [one for one in every if sum(one) in (1, count)]
        yield from (needs for needs in some if any(needs))
    yield (False,) * count


def _forms(stated: Stated, dtype: DType) -> list[Operand]:
    shapes = next(iter(trials(stated)))
    return [Operand(-1, shape, dtype, contiguous_strides(shape, dtype), 0) for shape in shapes]


def _structure(side: Side) -> object:
    """What the matcher goes by."""
    numbers: dict[int, int] = {}
    operands = [*side.inputs, *side.outputs, *(o for i in side.instructions for o in i.operands)]
    kernels = tuple(instruction.kernel for instruction in side.instructions)
    return kernels, tuple(None if o is None else numbers.setdefault(o.block, len(numbers)) for o in operands)
