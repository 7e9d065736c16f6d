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
    instructions,
    program,
    random_programs,
    relu,
    thorough,
    update,
    whole,
)
from singa_lite.kernels.interface import SIGNATURES, joined_name, joined_of
from singa_lite.kernels.interface.update import SgdHyper
from singa_lite.memory.problem import PlanError
from singa_lite.operation import Operand
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


def kernels(found: Program) -> list[str]:
    return [instruction.kernel for instruction in found.instructions]


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


def test_the_first_waits_for_the_second():
    found = together(*PEAK, relu(X, A), update(A, V), double(X, B), update(B, W))
    assert kernels(found)[4:] == ["relu", "scale", "add_scaled*2"]
    assert found.instructions[-1].joins == (5, 7)
    assert found.instructions[-1].operands == (A, V, B, W)


def test_what_is_read_meanwhile_is_not_waited_with():
    found = together(*PEAK, relu(X, A), update(A, V), relu(V, B), update(B, W))
    assert "add_scaled*2" not in kernels(found)


def test_what_is_written_meanwhile_is_not_waited_with():
    second = (double(X, A), update(A, W))  # over the gradient of the first
    found = together(*PEAK, relu(X, A), update(A, V), *second)
    assert "add_scaled*2" not in kernels(found)


def test_two_updates_of_one_value_stay_apart():
    found = together(*PEAK, relu(X, A), double(X, B), update(A, V), update(B, V))
    assert "add_scaled*2" not in kernels(found)


def test_no_step_holds_more_than_the_floor():
    """Without a peak elsewhere the first gradient may not live beside the second."""
    calls = relu(X, A), update(A, V), double(X, B), update(B, W)
    before = made(*calls)
    assert updated_together(before) is before
    assert floor(before) == 128, "a gradient and scratch"


def test_what_lives_anyway_costs_nothing():
    """Gradients that lie outside the arena."""
    found = together(update(X, V), relu(X, A), copy(A, R), update(X, W))
    assert kernels(found) == ["relu", "copy", "add_scaled*2"]


def test_a_group_ends_where_there_is_no_room_and_another_begins():
    first = (relu(X, A), update(A, V))
    tight = (relu(X, B), relu(B, C), relu(C, D), call("add", C, D, C), call("add", B, C, B), copy(B, R))
    found = together(*first, *tight, double(X, E), update(E, W), relu(X, F), update(F, R))
    assert kernels(found)[1] == "add_scaled"
    assert kernels(found)[8:] == ["scale", "relu", "add_scaled*2"]


def test_a_gradient_of_two_groups_lives_as_long_as_the_longer_one():
    """The one that is not its last user may not wait as if it cost nothing."""
    calls = relu(X, A), update(A, V), call("add_scaled", A, W, alpha=2.0), *PEAK[1:3], relu(X, D), update(D, R)
    before = made(*calls)
    assert floor(updated_together(before)) <= floor(before)


def test_at_most_as_many_as_the_kernels_do():
    values = [whole(number, 3, 4) for number in range(20, 27)]
    found = together(*(update(X, value) for value in values), held=[*HELD, *range(20, 27)])
    assert kernels(found) == ["add_scaled*3", "add_scaled*3", "add_scaled"]


def test_other_settings_and_kernels_are_other_groups():
    found = together(update(X, V), clip(W), call("add_scaled", X, R, alpha=2.0), most=9)
    assert sorted(kernels(found)) == ["add_scaled", "add_scaled", "clip_elements"]
    found = together(update(X, V), clip(W), update(X, R), clip(whole(4, 2)), most=9, held=[*HELD, 4])
    assert kernels(found) == ["add_scaled*2", "clip_elements*2"]


def sgd(gradient: Operand, rate: Operand, value: Operand, count: Operand) -> Call:
    hyper = SgdHyper(momentum=0.0, dampening=0.0, nesterov=False, weight_decay=0.0, lr_mult=1.0)
    return call("sgd", gradient, rate, value, None, count, hyper=hyper)


def test_updates_of_two_rates_are_two_groups():
    one, other = whole(30, dtype="f8"), whole(31, dtype="f8")
    counts = [whole(number, dtype="i8") for number in (32, 33, 34)]
    rates = one, other, one
    calls = [sgd(X, *given) for given in zip(rates, (V, W, R), counts, strict=True)]
    found = updated_together(made(*calls, held=[*HELD, *range(30, 35)]))
    assert kernels(found) == ["sgd", "sgd*2"]
    assert found.instructions[-1].joins == (0, 2)


def test_the_layers_are_told():
    before = made(update(X, V), update(X, W))
    named = [replace(i, layer=layer) for i, layer in zip(before.instructions, ("head", "stem"), strict=True)]
    assert updated_together(before.with_instructions(named)).instructions[0].layer == "head to stem"
    named = [replace(i, layer="stem") for i in before.instructions]
    assert updated_together(before.with_instructions(named)).instructions[0].layer == "stem"


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


# ---- names, and the proof


def test_the_signature_of_joined_calls_follows_from_that_of_one():
    one, three = SIGNATURES["sgd"], SIGNATURES[joined_name("sgd", 3)]
    assert three.tensors[:6] == ("gradient_1", "rate_1", "value_1", "velocity_1", "count_1", "gradient_2")
    assert three.roles == one.roles * 3
    assert three.optional == {"velocity_1", "velocity_2", "velocity_3"}
    assert three.settings == one.settings
    assert joined_of("sgd*3") == ("sgd", 3)
    assert joined_of("sgd") == ("", 0)
    assert "sgd*3" not in [*SIGNATURES]
    with pytest.raises(KeyError, match="none"):
        SIGNATURES["none*3"]


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


def test_taken_apart_is_what_it_was():
    before = made(*PAIR)
    found = taken_apart(updated_together(before))
    assert [(i.number, i.kernel, i.operands) for i in found.instructions] == [
        (i.number, i.kernel, i.operands) for i in (before.instructions[n] for n in (1, 2, 0, 3))
    ]
    assert taken_apart(before) is before
    assert instructions(*PAIR)[0].joins == ()
