"""Fusions by laws (`ir/laws.py`): one call in the place of several, or the same calls in an order that keeps less.

A pass of these says where its laws are worth it, and where the right side stands; all else is `by_law.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from singa_lite.compiler.ir.laws import (
    ACTIVATED,
    ADDED_BY_ROWS,
    LINEAR_GRADIENT,
    MASK_OF_NORM,
    POOL_FIRST,
    POOL_FIRST_BOTH_WAYS,
    SGD_BY_ROWS,
    SUM_OF_DERIVATIVES,
    SUMS_OF_NORMS,
)
from singa_lite.compiler.ir.operation import Instruction, Phase, over_blocks
from singa_lite.compiler.ir.program import Program, floor
from singa_lite.compiler.rewrite.by_law import CallPosition, Place, Replacing, is_whole_block
from singa_lite.compiler.share.in_place import in_place

#: Where a right side of one call stands: in the place of the first or the second of the left side.
AT_FIRST, AT_SECOND = [CallPosition(0, 0)], [CallPosition(1, 1)]
#: Where the sum that a normalisation takes in stands, with the normalisation's number, phase and layer.
AT_SUM = [CallPosition(1, 0)]
#: Where the pooling and the activation behind it go, and the derivatives of both.
FORWARD, BACKWARD = [CallPosition(0, 0), CallPosition(0, 1)], [CallPosition(3, 3), CallPosition(3, 2)]
#: The gradient of a table, whose rows are added to what is there.
ADDED = "embedding_gradient_add"
#: What a kernel set does in one go: the product x^T @ dy, and the sums of dy over its rows.
PAIR = ("matmul", "bias_gradient")
NORM, NORM_DERIVATIVE = "batch_norm", "batch_norm_derivative"
#: The option of both by which they take in a sum, in the place of an activation in `Target.fusions`.
SUM = "other"


def fused(program: Program) -> Program:
    """Give each operation that an activation follows the activation, if the kernel set does the two in one go.

    The result of the first must be a whole intermediate block that nothing but the activation reads.
    """
    fusions = program.target.fusions
    laws = [law for law in ACTIVATED if law.left[0].kernel in {kernel for kernel, _ in fusions}]
    if not laws:
        return program
    replacing = Replacing(program)
    found = (p for p in replacing.places(*laws) if (p.law.left[0].kernel, p.activation) in fusions)
    return _replaced(replacing, ((place, AT_FIRST) for place in found))


def pool_first(program: Program) -> Program:
    """Exchange each ReLU, and its derivative, with the max pooling behind it, if nothing else uses its result.

    max(relu(a), relu(b)) = relu(max(a, b)), to the bit. Going back, a window whose maximum is not above 0 passes
    nothing on either way, and in any other the winner is the same element. What the derivative of the ReLU reads is
    then the pooled tensor, which the layer behind keeps anyway, so the one before pooling, often four times as large,
    dies at once.
    """
    if "max_pool2d" not in {instruction.kernel for instruction in program.instructions}:
        return program
    replacing = Replacing(program)
    found = [(place, FORWARD) for place in replacing.places(POOL_FIRST)]
    found += [(place, FORWARD + BACKWARD) for place in replacing.places(POOL_FIRST_BOTH_WAYS)]
    return _replaced(replacing, sorted(found, key=lambda one: one[0].steps))


def joined(program: Program) -> Program:
    """Replace each product for a linear layer's weight, and the sums for its bias, by `linear_gradient`.

    That is done if the kernel set has it: it reads the derivative once. It stands at the step of the first.
    """
    if PAIR not in program.target.fusions:
        return program
    replacing = Replacing(program)
    last = {place.steps[1]: place for place in replacing.places(LINEAR_GRADIENT)}  # of several products of one dy
    found = (place for _, place in sorted(last.items()))
    return _replaced(replacing, ((p, [CallPosition(p.steps.index(min(p.steps)), 0)]) for p in found))


def applied_by_rows(program: Program) -> Program:
    """Put `sgd_rows` in the place of each `embedding_gradient` and the `sgd` that it is for.

    The gradient of a table is applied to the rows that occur, and never exists. That holds where the gradient is a
    whole intermediate block that nothing else uses, and the update has neither momentum nor decay, which would move the
    other rows too.
    """
    replacing = Replacing(program)
    return _replaced(replacing, ((place, AT_SECOND) for place in replacing.places(SGD_BY_ROWS)))


def added_by_rows(program: Program) -> Program:
    """Put `embedding_gradient_add` in the place of each `embedding_gradient` and of the sum that it is for.

        recorded:   g = d^T @ x;  e = gradient of the rows by ids and dy;  s = g + e;  update by s
        here:       g = d^T @ x;  g += the sums of dy for the rows that occur;  update by g

    So an embedding and a head that share a table (`layers.TiedDense`) need one gradient of its size, and no other.
    Both terms must be whole intermediate blocks that nothing else uses behind the sum, and lie alike.
    """
    replacing = Replacing(program)
    result: list[Instruction | None] = list(program.instructions)
    renamed = dict[int, int]()
    for place in replacing.places(*ADDED_BY_ROWS):
        (step, later), named = place.steps, place.named
        if result[step] is not program.instructions[step] or not _may_add_rows(replacing, place):
            continue
        instruction, term, total = program.instructions[step], named["t"], named["s"]
        operands, number = (named["ids"], named["dy"], term), program.instructions[later].number
        result[step] = None
        result[later] = program.target.call(instruction, ADDED, operands, instruction.settings, number)
        renamed[total.block] = renamed.get(term.block, term.block)
    return program.with_instructions([over_blocks(i, renamed) for i in result if i is not None]) if renamed else program


def _may_add_rows(replacing: Replacing, place: Place) -> bool:
    """Whether the rows are for this sum alone, the other term ends there, and what they are made of is there still."""
    (step, later), rows, term, total = place.steps, *(place.named[word] for word in ("e", "t", "s"))
    uses = replacing.uses
    if step > later or not replacing.is_local(place, "e"):
        return False
    if not all(operand[1:] == rows[1:] and is_whole_block(replacing.program, operand) for operand in (term, total)):
        return False
    alone = uses.steps[term.block][-1] == later == uses.steps[total.block][0] and term.block != total.block
    changed = any(uses.is_changed(place.named[word].block, step + 1, later) for word in ("ids", "dy"))
    return alone and not changed and term.block != rows.block


def masked_within(program: Program) -> Program:
    """Apply the derivative of an activation within that of the batch normalisation before it.

    That is done where the kernel set does both in one and `fused` has joined the forward part, at the step of the
    second.

        recorded:   dz = relu'(dy, y);  dx, dgamma, dbeta = batch_norm'(dz, x, ...)
        here:       dx, dgamma, dbeta = (both at once)(dy, x, beta, ...)

    What the activation was given is worked out again from x, by the same arithmetic, so that y need not be kept. That
    is done where nothing else of the backward part reads y. Where a convolution's gradient does, y is there anyway, and
    the mask is made again only where the kernel set saves a pass over memory by it. The activation's derivative must be
    a whole intermediate block that nothing but the normalisation's reads. Kernels may normalise tensors that lie
    otherwise by other arithmetic, so all must lie alike.
    """
    fusions = program.target.fusions
    if not any(kernel == NORM_DERIVATIVE and option != SUM for kernel, option in fusions):
        return program
    replacing = Replacing(program)

    def only_masks(place: Place) -> bool:
        """Whether nothing behind the forward part reads the activation's result but as this mask."""
        users = (step for step in replacing.uses.steps[place.named["y"].block] if step != place.steps[0])
        return all(program.instructions[step].phase == Phase.FORWARD for step in users)

    def saves_a_pass(place: Place) -> bool:
        call = program.instructions[place.steps[1]]
        return program.target.in_one_pass(call.kernel, call.operands, call.settings)

    found = (p for p in replacing.places(MASK_OF_NORM) if (NORM_DERIVATIVE, p.activation) in fusions)
    found = (place for place in found if only_masks(place) or saves_a_pass(place))
    return _replaced(replacing, ((p, AT_SECOND) for p in found if p.lie_equal("x", "y", "dy", "d", "dx")))


def summed_within(program: Program) -> Program:
    """Make a sum behind a batch normalisation within its call, with the activation that `fused` put into the sum.

    That is done at the step of the sum, if the kernel set does both in one, unless the floor rises.

        recorded:   z, mean, inv_std = batch_norm(x, ...);  y = relu(z + other)
        here:       y, mean, inv_std = (both at once)(x, ..., other)

    That is how each block of a residual net ends. z is never stored, and the repeat by kept statistics gives y itself.
    z must be a whole intermediate block that nothing but the sum reads; of two whose results are added the later one
    takes the sum. Kernels may normalise tensors that lie otherwise by other arithmetic, so all must lie alike.
    """
    if (NORM, SUM) not in program.target.fusions:
        return program
    replacing = Replacing(program)
    found: dict[int, Place] = {}  # by the step of the sum
    for place in replacing.places(*SUMS_OF_NORMS):
        step = place.steps[1]
        activation = program.instructions[step].settings.get("activation", SUM)
        if (
            (NORM, activation) in program.target.fusions
            and place.lie_equal("x", "z", "other", "y")
            and replacing.may_put(place, AT_SUM)
        ):
            found[step] = max(place, found.get(step, place), key=lambda place: place.steps)
    joins = [Join(step, place.steps[0], *replacing.calls_of(place, AT_SUM)) for step, place in sorted(found.items())]
    return _joined_below_floor(program, joins)


def added_within(program: Program) -> Program:
    """Make a sum of two derivatives within the derivative of the normalisation that makes one of them.

    That is done at the step of the first, if the kernel set does both, unless the floor rises.

        recorded:   d, dgamma, dbeta = batch_norm'(dy, x, ...);  dx = other + d
        here:       dx, dgamma, dbeta = (both at once)(dy, x, ..., other)

    In a densely connected net each normalisation's derivative is added so to what came from the layers behind. The
    normalisation's result must be a whole intermediate block that nothing but the sum reads, and the sum's one that is
    new there. The other derivative may have gaps, as a piece of a larger one has.
    """
    if (NORM_DERIVATIVE, SUM) not in program.target.fusions:
        return program
    replacing = Replacing(program)

    def fits(place: Place) -> bool:
        """Whether all have one shape, and the sum's block is a whole one that is new there."""
        dx, other, total = (place.named[word] for word in ("d", "other", "dx"))
        alike = total[1:4] == dx[1:4] and other[1:3] == dx[1:3]
        return alike and is_whole_block(program, total) and replacing.uses.steps[total.block][0] == place.steps[1]

    joins = [
        Join(place.steps[0], place.steps[1], *replacing.calls_of(place, AT_FIRST))
        for place in sorted(replacing.places(*SUM_OF_DERIVATIVES), key=lambda place: place.steps)
        if fits(place) and replacing.may_put(place, AT_FIRST)
    ]
    return _joined_below_floor(program, joins)


def _replaced(replacing: Replacing, found: Iterable[tuple[Place, Sequence[CallPosition]]]) -> Program:
    """The program with the right side at each of these places that may have it."""
    for place, at in found:
        if replacing.may_put(place, at):
            replacing.put(place, at)
    return replacing.result()


class Join(NamedTuple):
    """One instruction in the place of that at step `at`, which does what that at step `gone` did as well."""

    at: int
    gone: int
    made: Instruction


def _joined_below_floor(program: Program, joins: Sequence[Join]) -> Program:
    """The program with all joins that leave its floor where it was: halves of those that together would raise it.

    The scratch of a joined call may be wanted where more lives than at either of the two.
    """
    if not joins:
        return program
    level, kept, groups = floor(in_place(program)), list[Join](), [list(joins)]
    while groups:
        group = groups.pop()
        if floor(in_place(_with_joins(program, [*kept, *group]))) <= level:
            kept += group
        elif len(group) > 1:
            middle = len(group) // 2
            groups += [group[middle:], group[:middle]]
    return _with_joins(program, kept) if kept else program


def _with_joins(program: Program, joins: Sequence[Join]) -> Program:
    made = {join.at: join.made for join in joins}
    gone = {join.gone for join in joins}
    return program.with_instructions([made.get(s, i) for s, i in enumerate(program.instructions) if s not in gone])
