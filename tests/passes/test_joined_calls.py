"""Passes that make one call of two: which are joined, to equal bits, what stays apart, and how the call is repeated.

The gradients of weight and bias; the derivative of an activation within that of the normalisation before it; a sum
within the normalisation before it; a sum of derivatives within the normalisation's that is one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given

from programs import (
    Call,
    add,
    assert_same,
    call,
    changed,
    clip,
    copy,
    double,
    fill,
    kernels,
    part,
    permuted,
    program,
    random_programs,
    relu,
    thorough,
    update,
    whole,
    with_options,
)
from singa_lite.compiler.ir.laws import ACTIVATED
from singa_lite.compiler.ir.operation import Operand
from singa_lite.compiler.ir.program import Program, floor, live_bytes
from singa_lite.compiler.order.updates import updated_together
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.proof.races import check_joined
from singa_lite.compiler.proof.read_from import check_reads
from singa_lite.compiler.recompute.repeats import ONCE, Repeater
from singa_lite.compiler.recompute.schedule import Schedule
from singa_lite.compiler.rewrite.by_law import CallPosition, Replacing
from singa_lite.compiler.rewrite.fusions import (
    PAIR,
    added_within,
    fused,
    joined,
    masked_within,
    pool_first,
    summed_within,
)
from singa_lite.compiler.share.in_place import in_place
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.numpy_kernels import NUMPY

SHAPE, C = (5, 3, 4, 2), 3
LAST = (0, 2, 3, 1)
HELD = [*range(20)]
X, DY, OTHER, SECOND, OUT, OUT_2 = (whole(block, *SHAPE) for block in range(6))
GAMMA, BETA, RUNNING, RUNNING_VAR, MEAN, INV_STD, DGAMMA, DBETA = (whole(block, C) for block in range(6, 14))
ROWS, DROWS, DWEIGHT, DBIAS = whole(14, 7, 5), whole(15, 7, 3), whole(16, 5, 3), whole(17, 3)
Z, Y, DZ, DX, TOTAL = (whole(block, *SHAPE) for block in range(20, 25))
MEAN_2, INV_STD_2 = whole(25, C), whole(26, C)
#: Some channels of a larger derivative.
PIECE = part(whole(18, 5, 8, 4, 2), 1, 2, 5)


def norm(y: Operand = Z, x: Operand = X, statistics: tuple[Operand, Operand] = (MEAN, INV_STD)) -> Call:
    return call("batch_norm", x, GAMMA, BETA, RUNNING, RUNNING_VAR, None, y, *statistics, momentum=0.1, epsilon=1e-3)


def masked(kernel: str = "relu", dy: Operand = DY, y: Operand = Y, dx: Operand = DZ) -> Call:
    return call(f"{kernel}_derivative", dy, y, dx)


def back(dy: Operand = DZ, x: Operand = X, gamma: Operand = GAMMA, dx: Operand = DX) -> Call:
    return call("batch_norm_derivative", dy, x, gamma, None, MEAN, INV_STD, None, dx, DGAMMA, DBETA)


def product(x: Operand = ROWS, dy: Operand = DROWS, y: Operand = DWEIGHT, transpose_b: bool = False) -> Call:
    return call("matmul", x, dy, y, transpose_a=True, transpose_b=transpose_b)


def sums(dy: Operand = DROWS, y: Operand = DBIAS, axis: int = 1) -> Call:
    return call("bias_gradient", dy, y, axis=axis)


class Pass(NamedTuple):
    run: Callable[[Program], Program]
    fusions: frozenset[tuple[str, str]]

    def before(self, *calls: Call, fusions: frozenset[tuple[str, str]] | None = None) -> Program:
        """The calls, fused as they are for the pass."""
        given = program(*calls, held=HELD)
        return fused(replace(given, target=replace(given.target, fusions=self.fusions if fusions is None else fusions)))


GRADIENT = Pass(joined, frozenset({PAIR}))
MASK = Pass(masked_within, NUMPY.fusions)
SUM = Pass(summed_within, NUMPY.fusions | {("add", "relu")})
DERIVATIVES = Pass(added_within, NUMPY.fusions)
FORTH = norm(), relu(Z, Y)
LEAVES = copy(DX, OUT)
END = copy(TOTAL, OUT)
BACK = back(DY)

#: (pass, calls, kernels behind it).
JOINED: dict[str, tuple[Pass, tuple[Call, ...], str]] = {
    "gradients": (GRADIENT, (product(), sums()), "linear_gradient"),
    "gradients, bias first": (GRADIENT, (sums(), product()), "linear_gradient"),
    "gradients, last axis": (GRADIENT, (product(), sums(axis=-1)), "linear_gradient"),
    "gradients, others between": (
        GRADIENT,
        (relu(X, OUT), product(), relu(DWEIGHT, whole(27, 5, 3)), sums(), relu(DBIAS, whole(28, 3))),
        "relu linear_gradient relu relu",
    ),
    "gradients of two layers": (
        GRADIENT,
        (product(), product(whole(18, 7, 4), whole(19, 7, 6), whole(31, 4, 6)),
         sums(whole(19, 7, 6), whole(32, 6)), sums()),
        "linear_gradient linear_gradient",
    ),
    "one product takes one bias": (
        GRADIENT, (product(), sums(), sums(y=whole(27, 3))), "linear_gradient bias_gradient",
    ),
    "mask": (
        MASK, (*FORTH, masked(), back(), LEAVES), "batch_norm+relu batch_norm_derivative+relu copy",
    ),
    "mask of relu6": (
        MASK,
        (norm(), call("relu6", Z, Y), masked("relu6"), back(), LEAVES),
        "batch_norm+relu6 batch_norm_derivative+relu6 copy",
    ),
    "mask, others between": (
        MASK,
        (fill(OTHER), *FORTH, copy(Y, OTHER), masked(), clip(OTHER), back(), LEAVES),
        "fill batch_norm+relu copy clip_elements batch_norm_derivative+relu copy",
    ),
    "sum and activation": (
        SUM, (norm(), fill(SECOND), add(Z, OTHER, Y), relu(Y, DZ), copy(DZ, OUT)), "fill batch_norm+other+relu copy",
    ),
    "sum, the other way round": (
        SUM, (norm(), fill(SECOND), add(OTHER, Z, Y), relu(Y, DZ), copy(DZ, OUT)), "fill batch_norm+other+relu copy",
    ),
    "sum alone": (SUM, (norm(), add(Z, OTHER, Y), copy(Y, OUT)), "batch_norm+other copy"),
    # Both move the same running statistics, so the first one cannot go behind the second.
    "the later of two": (
        SUM,
        (norm(), norm(DZ, SECOND, (MEAN_2, INV_STD_2)), add(Z, DZ, Y), copy(Y, OUT)),
        "batch_norm batch_norm+other copy",
    ),
    **{
        f"derivatives, {name}": (
            DERIVATIVES,
            (BACK, update(DGAMMA, GAMMA), add(*operands, TOTAL), END),
            "batch_norm_derivative+other add_scaled copy",
        )
        for name, operands in {
            "first": (DX, OTHER), "second": (OTHER, DX), "piece first": (PIECE, DX), "piece second": (DX, PIECE),
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize(("one", "calls", "wanted"), JOINED.values(), ids=JOINED)
def test_two_calls_become_one_to_equal_bits(one: Pass, calls, wanted):
    before = one.before(*calls)
    after = one.run(before)
    assert kernels(after) == wanted.split()
    assert_same(program(*calls, held=HELD), after)
    for made in after.instructions:
        assert made.scratch_bytes == NUMPY.scratch_bytes(made.kernel, made.operands, made.settings)


TURNED = permuted(21, SHAPE, LAST)
APART: dict[str, tuple[Pass, list[Call]]] = {
    "gradients, dy transposed": (GRADIENT, [product(transpose_b=True, y=whole(27, 5, 7)), sums()]),
    "gradients, x as it is": (
        GRADIENT,
        [
            call("matmul", ROWS, whole(15, 5, 3), whole(27, 7, 3), transpose_a=False, transpose_b=False),
            sums(whole(15, 5, 3)),
        ],
    ),
    "gradients, other axis": (GRADIENT, [product(), sums(axis=0, y=whole(27, 7))]),
    "gradients, other dy": (GRADIENT, [product(), sums(whole(19, 7, 3))]),
    "gradients, other rows": (
        GRADIENT,
        [product(dy=part(whole(15, 9, 3), 0, 0, 7)), sums(part(whole(15, 9, 3), 0, 2, 9))],
    ),
    "gradients, dy changed": (GRADIENT, [product(), clip(DROWS), sums()]),
    "gradients, x changed": (GRADIENT, [sums(), clip(ROWS), product()]),
    "gradients, db used": (GRADIENT, [product(), fill(DBIAS), relu(DBIAS, whole(28, 3)), sums()]),
    "mask read besides": (MASK, [*FORTH, masked(), copy(DZ, OTHER), back()]),
    "mask of another x": (MASK, [*FORTH, masked(), back(x=OTHER)]),
    "mask of another gamma": (MASK, [*FORTH, masked(), back(gamma=BETA)]),
    "mask, x changed": (MASK, [*FORTH, clip(X), masked(), back()]),
    "mask, beta changed": (MASK, [*FORTH, masked(), clip(BETA), back()]),
    "mask, mean changed": (MASK, [*FORTH, masked(), clip(MEAN), back()]),
    "mask, dy changed": (MASK, [*FORTH, masked(), clip(DY), back()]),
    "mask of something else": (MASK, [*FORTH, clip(Y), masked(), back()]),
    "mask, other strides": (MASK, [*FORTH, masked(), back(dx=permuted(23, SHAPE, LAST))]),
    "mask of another activation": (MASK, [*FORTH, masked("tanh"), back()]),
    "mask of what is read before": (MASK, [norm(), relu(Z, Y), copy(Z, OTHER), masked(), back()]),
    "sum, read besides": (SUM, [norm(), copy(Z, OUT_2), add(Z, OTHER, Y), copy(Y, OUT)]),
    "sum with itself": (SUM, [norm(), add(Z, Z, Y), copy(Y, OUT)]),
    "sum, x changed": (SUM, [norm(), clip(X), add(Z, OTHER, Y), copy(Y, OUT)]),
    "sum, beta changed": (SUM, [norm(), clip(BETA), add(Z, OTHER, Y), copy(Y, OUT)]),
    "sum, statistics wanted before": (SUM, [norm(), copy(MEAN, MEAN_2), add(Z, OTHER, Y), copy(Y, OUT)]),
    "sum, other strides": (SUM, [norm(), add(Z, permuted(2, SHAPE, LAST), Y), copy(Y, OUT)]),
    "sum that broadcasts": (SUM, [norm(), add(Z, whole(2, 3, 1, 1), Y), copy(Y, OUT)]),
    "sum over x": (SUM, [norm(), add(Z, OTHER, X), copy(X, Y), copy(Y, OUT)]),
    "sum, running statistics keep their order": (
        SUM,
        [norm(), norm(DZ, SECOND, (MEAN_2, INV_STD_2)), add(Z, OTHER, Y), copy(Y, OUT), copy(DZ, OUT_2)],
    ),
    "derivatives, read besides": (DERIVATIVES, [BACK, copy(DX, OUT_2), add(OTHER, DX, TOTAL), END]),
    "derivatives, twice": (DERIVATIVES, [BACK, add(DX, DX, TOTAL), END]),
    "derivatives, the other changed": (DERIVATIVES, [BACK, clip(OTHER), add(OTHER, DX, TOTAL), END]),
    "derivatives, the other later": (DERIVATIVES, [BACK, fill(OTHER), add(DX, OTHER, TOTAL), END]),
    "derivatives, other strides": (DERIVATIVES, [BACK, add(OTHER, DX, TURNED), copy(TURNED, OUT)]),
    "derivatives that broadcast": (DERIVATIVES, [BACK, add(whole(2, 3, 1, 1), DX, TOTAL), END]),
    "derivatives into a block in use": (
        DERIVATIVES,
        [fill(TOTAL), copy(TOTAL, OUT_2), BACK, add(OTHER, DX, TOTAL), END],
    ),
    "derivatives into a held block": (DERIVATIVES, [BACK, add(OTHER, DX, OUT)]),
}


@pytest.mark.parametrize(("one", "calls"), APART.values(), ids=APART)
def test_what_stays_apart(one: Pass, calls):
    before = one.before(*calls)
    assert kernels(one.run(before)) == kernels(before)


@pytest.mark.parametrize(
    ("name", "fusions"),
    [
        *((name, set()) for name in ("gradients", "mask", "sum alone", "derivatives, first")),
        ("gradients", {("linear", "relu")}),
        ("mask", {("batch_norm", "relu"), ("batch_norm_derivative", "relu6")}),
        ("sum alone", {("batch_norm", "relu"), ("batch_norm_derivative", "other")}),
    ],
)
def test_without_the_sets_kernels_nothing_changes(name, fusions):
    one, calls, _ = JOINED[name]
    before = one.before(*calls, fusions=frozenset(fusions))
    assert one.run(before).instructions == before.instructions


@pytest.mark.parametrize("name", ["sum alone", "derivatives, first"])
def test_where_the_floor_would_rise_they_stay_apart(name):
    """Scratch that the call wants at the peak."""
    one, calls, _ = JOINED[name]
    before = one.before(*calls)
    assert floor(in_place(one.run(before))) <= floor(in_place(before))
    costly = replace(before, target=replace(before.target, scratch_bytes=lambda *call: 1 << 20))
    assert one.run(costly) is costly


# --- repeats of the joined call -----------------------------------------------------------------------------


def repeated(monkeypatch, one: Pass, value: Operand, *calls: Call) -> tuple[Program, Program, int]:
    """A program behind the pass, the same with a value made again where it is read last, and where that is."""
    monkeypatch.setattr("singa_lite.compiler.recompute.repeats.LEAST_GAP", 1)
    made = one.run(one.before(*calls, copy(value, OTHER), fill(OUT_2), fill(OUT_2), copy(value, OUT)))
    schedule = Schedule(Repeater(made))
    assert schedule.changed({value.block: ONCE}) is not None
    found = schedule.program()
    (at,) = (at for at, i in enumerate(found.instructions) if i.repeats is not None)
    return made, found, at


@pytest.mark.parametrize(
    ("one", "value", "calls", "kernel"),
    [
        (MASK, Y, FORTH, "batch_normalize+relu"),
        (SUM, DZ, (norm(), add(Z, SECOND, Y), relu(Y, DZ)), "batch_normalize+other+relu"),
    ],
    ids=["activation", "sum"],
)
def test_it_is_repeated_from_kept_statistics(monkeypatch, one, value, calls, kernel):
    made, found, at = repeated(monkeypatch, one, value, *calls)
    again = found.instructions[at]
    assert (with_options(again), again.settings) == (kernel, {"activation": "relu"})
    assert again.scratch_bytes == NUMPY.scratch_bytes(again.kernel, again.operands, again.settings)
    check_reads(made, found, {})
    assert_same(made, found)


def test_the_proof_finds_planted_faults_of_a_repeat(monkeypatch):
    made, found, at = repeated(monkeypatch, MASK, Y, *FORTH)
    x, gamma, beta, mean, inv_std, _, y = found.instructions[at].operands
    original = next(i for i in made.instructions if i.number == found.instructions[at].repeats)
    faults = [
        {"settings": {"activation": "relu6"}},  # another activation
        {"settings": {}},  # none
        {"operands": (x, beta, gamma, mean, inv_std, None, y)},  # vectors exchanged
        {"operands": (x, gamma, beta, RUNNING, RUNNING_VAR, None, y)},  # other statistics
        {"operands": (x, gamma, beta, mean, inv_std, SECOND, y)},  # a sum
        {"operands": (SECOND, gamma, beta, mean, inv_std, None, y)},  # another x
        {"kernel": original.kernel, "operands": original.operands, "settings": original.settings},  # they move twice
    ]
    for fault in faults:
        with pytest.raises(PlanError):
            check_reads(made, changed(found, at, lambda i, fault=fault: replace(i, **fault)), {})


# --- where the right side of a law may stand

A, B, RESULT = (whole(block, 5, 3) for block in (0, 1, 2))
U, V, W = (whole(block, 5, 3) for block in (10, 11, 12))
KEPT = [0, 1, 2, 20, 21, 22]
ACTIVATED_SUM = next(one for one in ACTIVATED if one.left[0].kernel == "add")
AT_FIRST, AT_LAST = [CallPosition(0, 0)], [CallPosition(1, 0)]


def put(given: Program, at: list[CallPosition]) -> list[str]:
    """The kernels behind it, once all places have the right side that may have it."""
    replacing = Replacing(given)
    for place in replacing.places(ACTIVATED_SUM):
        if replacing.may_put(place, at):
            replacing.put(place, at)
    made = replacing.result()
    assert_same(given, made)
    return kernels(made)


@pytest.mark.parametrize(
    ("calls", "first", "last"),
    [
        ([add(A, B, U), copy(U, W), relu(U, V), copy(W, RESULT)], False, False),  # somebody else reads U
        ([add(A, B, U), relu(U, V), copy(U, RESULT)], False, False),  # later, too
        ([add(A, B, U), clip(U), relu(U, V)], False, False),  # U has changed
        ([relu(U, V), add(A, B, U)], False, False),  # the activation is of what was there before
        ([add(A, B, U), clip(A), relu(U, V)], True, False),  # an input changes in between
        ([add(A, B, U), fill(V), copy(V, RESULT), relu(U, V)], False, True),  # the result's block is in use in between
        ([add(A, B, U), relu(U, A)], False, False),  # over an input
        ([add(A, B, RESULT), relu(RESULT, V)], False, False),  # what is held stays
    ],
    ids=["read", "read later", "z", "before", "input", "result", "over", "held"],
)
def test_nothing_comes_too_late_or_too_early(calls: list[Call], first: bool, last: bool):
    given = program(*calls, copy(V, whole(20, 5, 3)), held=KEPT)
    assert ("add+relu" in put(given, AT_FIRST), "add+relu" in put(given, AT_LAST)) == (first, last)


@pytest.mark.parametrize("offset", [0, 96])
@pytest.mark.parametrize("shape", [(2, 3, 1, 4), (2, 3, 4), (6, 4)])
def test_what_the_activation_saw_in_another_shape_is_pooled_as_an_image(shape, offset):
    """Of a part of a block that is only where nothing changes for it."""
    window = {"window": Window((1, 2), (1, 2))}
    images, pooled = (2, 3, 1, 4), (2, 3, 1, 2)
    x, y = whole(0, *shape)._replace(offset=offset), whole(10, *shape)
    p, out = whole(11, *pooled), whole(2, *pooled)
    given = program(relu(x, y), call("max_pool2d", whole(10, *images), p, None, **window), copy(p, out), held=[0, 2])
    after = pool_first(given)
    first, second, _copy = after.instructions
    if offset and shape != images:
        assert first.kernel == "relu"
    else:
        assert (first.kernel, first.operands[0]) == ("max_pool2d", whole(0, *images)._replace(offset=offset))
        assert (second.kernel, second.operands) == ("relu", (first.operands[1], p))
        assert y.block not in after.sizes
    assert_same(given, after)


# --- small updates wait for others of their kind

#: Held: parameters and an input; intermediates: gradients.
P1, P2, P3, P4 = whole(0, 3, 4), whole(1, 3, 4), whole(2, 3, 4), whole(3, 3, 4)
G1, G2, G3, G4, G5, G6 = (whole(number, 3, 4) for number in range(10, 16))
PARAMETERS = [0, 1, 2, 3]


def joining(*calls: Call, most: int = 3, held: list[int] = PARAMETERS) -> Program:
    """The calls for kernels that do at most so many updates at once."""
    one = program(*calls, held=held)
    return replace(one, target=replace(one.target, most_joined=joins(most)))


def joins(most: int):
    return lambda kernel, operands, settings: most if kernel in ("add_scaled", "clip_elements", "sgd") else 0


def together(*calls: Call, most: int = 3, held: list[int] = PARAMETERS) -> Program:
    """The calls behind the pass, which changed no bit and did not raise the floor; and the proof holds."""
    before = joining(*calls, most=most, held=held)
    after = updated_together(before)
    assert_same(before, after)
    assert floor(after) <= floor(before)
    check_reads(before, after, {})
    return after


#: Room for one more gradient, at a step of its own.
PEAK = (relu(P3, G1), relu(G1, G2), call("add", G1, G2, G3), copy(G3, P4))
TIGHT = (relu(P3, G2), relu(G2, G3), relu(G3, G4), call("add", G3, G4, G3), call("add", G2, G3, G2), copy(G2, P4))
VALUES = [whole(number, 3, 4) for number in range(20, 27)]
#: (calls, kernels behind the pass, from a place on).
WAITING: dict[str, tuple[list[Call], int, str]] = {
    "the first waits for the second": (
        [*PEAK, relu(P3, G1), update(G1, P1), double(P3, G2), update(G2, P2)], 4, "relu scale add_scaled*2",
    ),
    "read meanwhile": (
        [*PEAK, relu(P3, G1), update(G1, P1), relu(P1, G2), update(G2, P2)], 4, "relu add_scaled relu add_scaled",
    ),
    "written meanwhile": (
        [*PEAK, relu(P3, G1), update(G1, P1), double(P3, G1), update(G1, P2)], 4, "relu add_scaled scale add_scaled",
    ),
    "two updates of one value": (
        [*PEAK, relu(P3, G1), double(P3, G2), update(G1, P1), update(G2, P1)], 4, "relu scale add_scaled add_scaled",
    ),
    "what lives anyway costs nothing": ([update(P3, P1), relu(P3, G1), copy(G1, P4), update(P3, P2)], 0,
                                        "relu copy add_scaled*2"),
    "a group ends where there is no room and another begins": (
        [relu(P3, G1), update(G1, P1), *TIGHT, double(P3, G5), update(G5, P2), relu(P3, G6), update(G6, P4)], 8,
        "scale relu add_scaled*2",
    ),
    "at most as many as the kernels do": (
        [update(P3, value) for value in VALUES], 0, "add_scaled*3 add_scaled*3 add_scaled",
    ),
    "other kernels are other groups": (
        [update(P3, P1), clip(P2), update(P3, P4), clip(whole(4, 2))], 0, "add_scaled*2 clip_elements*2",
    ),
    "other settings are other groups": (
        [update(P3, P1), call("add_scaled", P3, P4, alpha=2.0)], 0, "add_scaled add_scaled",
    ),
    # The one that is not its last user may not wait as if it cost nothing.
    "a gradient of two groups": (
        [relu(P3, G1), update(G1, P1), call("add_scaled", G1, P2, alpha=2.0),
         *PEAK[1:3], relu(P3, G4), update(G4, P4)], 5,
        "add_scaled*2",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("calls", "start", "wanted"), WAITING.values(), ids=WAITING)
def test_small_updates_wait_for_others(calls, start, wanted):
    assert kernels(together(*calls, held=[*PARAMETERS, 4, *range(20, 27)]))[start:] == wanted.split()


def test_no_step_holds_more_than_the_floor():
    """Without a peak elsewhere the first gradient may not live beside the second."""
    calls = relu(P3, G1), update(G1, P1), double(P3, G2), update(G2, P2)
    before = joining(*calls)
    assert updated_together(before) is before
    assert floor(before) == 128, "a gradient and scratch"


@thorough
@given(random_programs)
def test_random_programs(given_: Program):
    """Whatever stands between: equal bits, no larger floor, no step above it, and a proof that holds."""
    before = in_place(replace(given_, target=replace(given_.target, most_joined=joins(3))))
    after = updated_together(before)
    assert_same(before, after)
    assert max(live_bytes(after)) <= floor(before)
    check_reads(before, after, {})
    assert sum(len(i.joins) or 1 for i in after.instructions) == len(before.instructions)


# ---- the proof


TWO_UPDATES = (update(P3, P1), relu(P3, G1), copy(G1, P4), update(P3, P2))


def spoilt(change) -> tuple[Program, Program]:
    before = joining(*TWO_UPDATES)
    after = updated_together(before)
    return before, changed(after, len(after.instructions) - 1, change)


@pytest.mark.parametrize(
    "change",
    [
        lambda i: replace(i, joins=(0, 0)),
        lambda i: replace(i, joins=(3, 0)),
        lambda i: replace(i, joins=(0,)),
        lambda i: replace(i, joins=(0, 1)),
        lambda i: replace(i, joins=()),
        lambda i: replace(i, kernel="add_scaled*1", operands=i.operands[:2]),
        lambda i: replace(i, operands=(*i.operands[2:], *i.operands[:2])),
        lambda i: replace(i, operands=(*i.operands[:3], i.operands[1])),
        lambda i: replace(i, settings={"alpha": 3.0}),
    ],
    ids=["one twice", "exchanged", "fewer", "another", "none", "a call less", "values", "one value", "settings"],
)
def test_a_wrong_joined_call_is_told(change):
    before, after = spoilt(change)
    with pytest.raises(PlanError):
        check_reads(before, after, {})


def test_calls_that_meet_in_the_arena_are_told():
    """Two values that lie over each other there, which one after the other might be right."""
    before = joining(relu(P3, G1), relu(P3, G2), update(P3, G1), update(P3, G2), copy(G1, P1), copy(G2, P2))
    after = updated_together(before)
    assert "add_scaled*2" in kernels(after)
    check_joined(after, {10: 0, 11: 64})
    with pytest.raises(PlanError, match="wanted calls apart"):
        check_joined(after, {10: 0, 11: 16})
