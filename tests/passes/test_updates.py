"""Small updates wait for others of their kind, where nobody sees it and no step then holds more bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from programs import (
    Call,
    assert_same,
    call,
    changed,
    clip,
    copy,
    double,
    kernels,
    program,
    random_programs,
    relu,
    thorough,
    update,
    whole,
)
from singa_lite.memory.problem import PlanError
from singa_lite.passes.in_place import in_place
from singa_lite.passes.program import Program, floor, live_bytes
from singa_lite.passes.read_from import check_reads
from singa_lite.passes.taken_apart import taken_apart
from singa_lite.passes.updates import updated_together

#: Held: parameters and an input; intermediates: gradients.
V, W, X, R = whole(0, 3, 4), whole(1, 3, 4), whole(2, 3, 4), whole(3, 3, 4)
A, B, C, D, E, F = (whole(number, 3, 4) for number in range(10, 16))
HELD = [0, 1, 2, 3]


def made(*calls: Call, most: int = 3, held: list[int] = HELD) -> Program:
    """The calls for kernels that do at most so many updates at once."""
    one = program(*calls, held=held)
    return replace(one, target=replace(one.target, most_joined=joins(most)))


def joins(most: int):
    return lambda kernel, operands, settings: most if kernel in ("add_scaled", "clip_elements", "sgd") else 0


def together(*calls: Call, most: int = 3, held: list[int] = HELD) -> Program:
    """The calls behind the pass, which changed no bit and did not raise the floor; and the proof holds."""
    before = made(*calls, most=most, held=held)
    after = updated_together(before)
    assert_same(before, after)
    assert floor(after) <= floor(before)
    check_reads(before, after, {})
    return after


#: Room for one more gradient, at a step of its own.
PEAK = (relu(X, A), relu(A, B), call("add", A, B, C), copy(C, R))
TIGHT = (relu(X, B), relu(B, C), relu(C, D), call("add", C, D, C), call("add", B, C, B), copy(B, R))
VALUES = [whole(number, 3, 4) for number in range(20, 27)]
#: (calls, kernels behind the pass, from a place on).
CASES: dict[str, tuple[list[Call], int, str]] = {
    "the first waits for the second": (
        [*PEAK, relu(X, A), update(A, V), double(X, B), update(B, W)], 4, "relu scale add_scaled*2",
    ),
    "read meanwhile": (
        [*PEAK, relu(X, A), update(A, V), relu(V, B), update(B, W)], 4, "relu add_scaled relu add_scaled",
    ),
    "written meanwhile": (
        [*PEAK, relu(X, A), update(A, V), double(X, A), update(A, W)], 4, "relu add_scaled scale add_scaled",
    ),
    "two updates of one value": (
        [*PEAK, relu(X, A), double(X, B), update(A, V), update(B, V)], 4, "relu scale add_scaled add_scaled",
    ),
    "what lives anyway costs nothing": ([update(X, V), relu(X, A), copy(A, R), update(X, W)], 0,
                                        "relu copy add_scaled*2"),
    "a group ends where there is no room and another begins": (
        [relu(X, A), update(A, V), *TIGHT, double(X, E), update(E, W), relu(X, F), update(F, R)], 8,
        "scale relu add_scaled*2",
    ),
    "at most as many as the kernels do": (
        [update(X, value) for value in VALUES], 0, "add_scaled*3 add_scaled*3 add_scaled",
    ),
    "other kernels are other groups": (
        [update(X, V), clip(W), update(X, R), clip(whole(4, 2))], 0, "add_scaled*2 clip_elements*2",
    ),
    "other settings are other groups": (
        [update(X, V), call("add_scaled", X, R, alpha=2.0)], 0, "add_scaled add_scaled",
    ),
    # The one that is not its last user may not wait as if it cost nothing.
    "a gradient of two groups": (
        [relu(X, A), update(A, V), call("add_scaled", A, W, alpha=2.0), *PEAK[1:3], relu(X, D), update(D, R)], 5,
        "add_scaled*2",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("calls", "start", "wanted"), CASES.values(), ids=CASES)
def test_small_updates_wait_for_others(calls, start, wanted):
    assert kernels(together(*calls, held=[*HELD, 4, *range(20, 27)]))[start:] == wanted.split()


def test_no_step_holds_more_than_the_floor():
    """Without a peak elsewhere the first gradient may not live beside the second."""
    calls = relu(X, A), update(A, V), double(X, B), update(B, W)
    before = made(*calls)
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


PAIR = (update(X, V), relu(X, A), copy(A, R), update(X, W))


def spoilt(change) -> tuple[Program, Program]:
    before = made(*PAIR)
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
    before = made(relu(X, A), relu(X, B), update(X, A), update(X, B), copy(A, V), copy(B, W))
    after = updated_together(before)
    assert "add_scaled*2" in kernels(after)
    taken_apart(after, {10: 0, 11: 64})
    with pytest.raises(PlanError, match="wanted calls apart"):
        taken_apart(after, {10: 0, 11: 16})
