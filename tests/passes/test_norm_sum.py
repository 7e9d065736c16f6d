"""A sum within the normalisation before it: which are joined, and what stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from programs import Call, add, assert_same, call, clip, copy, double, fill, permuted, program, relu, whole
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.operation import Operand
from singa_lite.passes.fuse import fused
from singa_lite.passes.in_place import in_place
from singa_lite.passes.norm_sum import summed_within
from singa_lite.passes.program import Program, floor
from singa_lite.passes.read_from import check_reads
from singa_lite.passes.repeats import ONCE, Repeater
from singa_lite.passes.schedule import Schedule

SHAPE, C = (5, 3, 4, 2), 3
X, OTHER, SECOND = (whole(block, *SHAPE) for block in (0, 1, 2))
GAMMA, BETA, RUNNING, RUNNING_VAR = (whole(block, C) for block in (3, 4, 5, 6))
Z, Y, ELSE = (whole(block, *SHAPE) for block in (10, 11, 12))
MEAN, INV_STD, MEAN_2, INV_STD_2 = (whole(block, C) for block in (14, 15, 16, 17))
OUT, OUT_2 = whole(20, *SHAPE), whole(21, *SHAPE)
HELD = [0, 1, 2, 3, 4, 5, 6, 20, 21]
#: NumPy's, and the sum with its activation.
FUSIONS = NUMPY.fusions | {("add", "relu")}


def norm(y: Operand = Z, x: Operand = X, statistics: tuple[Operand, Operand] = (MEAN, INV_STD)) -> Call:
    return call("batch_norm", x, GAMMA, BETA, RUNNING, RUNNING_VAR, y, *statistics, momentum=0.1, epsilon=1e-3)


def after(*calls: Call, fusions: frozenset[tuple[str, str]] = FUSIONS) -> Program:
    made = program(*calls, held=HELD)
    return summed_within(fused(replace(made, target=replace(made.target, fusions=fusions))))


def kernels(*calls: Call) -> list[str]:
    return [i.kernel for i in after(*calls).instructions]


@pytest.mark.parametrize("turned", [False, True])
def test_a_sum_and_its_activation_go_into_the_normalisation(turned):
    operands = (OTHER, Z) if turned else (Z, OTHER)
    calls = norm(), fill(SECOND), add(*operands, Y), relu(Y, ELSE), copy(ELSE, OUT)
    first, one, last = after(*calls).instructions
    assert [first.kernel, one.kernel, last.kernel] == ["fill", "batch_norm_add", "copy"]
    assert one.operands == (X, GAMMA, BETA, RUNNING, RUNNING_VAR, OTHER, ELSE, MEAN, INV_STD)
    assert one.settings == {"momentum": 0.1, "epsilon": 1e-3, "activation": "relu"}
    assert one.scratch_bytes == NUMPY.scratch_bytes(one.kernel, one.operands, one.settings)
    assert_same(program(*calls, held=HELD), after(*calls))


def test_a_sum_alone_goes_into_it_too():
    calls = norm(), add(Z, OTHER, Y), copy(Y, OUT)
    one = after(*calls).instructions[0]
    assert (one.kernel, one.settings["activation"]) == ("batch_norm_add", "")
    assert_same(program(*calls, held=HELD), after(*calls))


def test_of_two_normalisations_the_later_one_takes_the_sum():
    second = norm(ELSE, SECOND, (MEAN_2, INV_STD_2))
    made = after(norm(), second, add(Z, ELSE, Y), copy(Y, OUT))
    # Both move the same running statistics here, so the first one could not go behind the second.
    assert [i.kernel for i in made.instructions] == ["batch_norm", "batch_norm_add", "copy"]
    assert made.instructions[1].by_name["other"] == Z


def test_running_statistics_move_in_their_order():
    again = norm(ELSE, SECOND, (MEAN_2, INV_STD_2))
    assert kernels(norm(), again, add(Z, OTHER, Y), copy(Y, OUT), copy(ELSE, OUT_2))[:3] == [
        "batch_norm",
        "batch_norm",
        "add",
    ]


@pytest.mark.parametrize(
    "calls",
    [
        [norm(), copy(Z, OUT_2), add(Z, OTHER, Y)],  # somebody else reads what is normalised
        [norm(), add(Z, Z, Y)],
        [norm(), clip(X), add(Z, OTHER, Y)],  # x has changed
        [norm(), clip(BETA), add(Z, OTHER, Y)],
        [norm(), copy(MEAN, MEAN_2), add(Z, OTHER, Y)],  # the statistics are wanted before
        [norm(), add(Z, permuted(1, SHAPE, (0, 2, 3, 1)), Y)],  # it lies otherwise
        [norm(), add(Z, whole(1, 3, 1, 1), Y)],  # it broadcasts
        [norm(), add(Z, OTHER, X), copy(X, Y)],  # over x
    ],
    ids=["read", "twice", "x", "beta", "mean", "strides", "broadcast", "over x"],
)
def test_what_stays_apart(calls):
    assert "batch_norm_add" not in kernels(*calls, copy(Y, OUT))


def test_without_the_sets_kernels_nothing_changes():
    made = program(norm(), add(Z, OTHER, Y), copy(Y, OUT), held=HELD)
    made = replace(made, target=replace(made.target, fusions=frozenset()))
    assert summed_within(made) is made
    only = frozenset({("batch_norm_add", "relu")})
    assert [i.kernel for i in after(norm(), add(Z, OTHER, Y), fusions=only).instructions] == ["batch_norm", "add"]


def test_where_the_floor_would_rise_they_stay_apart():
    """Scratch that the call wants behind another tensor's making, at the peak."""
    made = program(norm(), double(X, ELSE), add(Z, ELSE, Y), copy(Y, OUT), held=HELD)
    assert len(summed_within(made).instructions) == 3
    costly = replace(made, target=replace(made.target, scratch_bytes=lambda *call: 1 << 20))
    assert summed_within(costly) is costly
    assert floor(in_place(summed_within(made))) <= floor(in_place(made))


def test_it_is_repeated_from_kept_statistics_with_its_sum(monkeypatch):
    monkeypatch.setattr("singa_lite.passes.repeats.LEAST_GAP", 1)
    calls = norm(), add(Z, OTHER, Y), relu(Y, ELSE), copy(ELSE, OUT), fill(OUT_2), fill(OUT_2), copy(ELSE, OUT_2)
    made = after(*calls)
    schedule = Schedule(Repeater(made))
    assert schedule.changed({ELSE.block: ONCE}) is not None
    repeated = schedule.program()
    (one,) = (i for i in repeated.instructions if i.repeats is not None)
    assert (one.kernel, one.settings) == ("batch_normalize_add", {"activation": "relu"})
    assert one.operands[:6] == (X, GAMMA, BETA, MEAN, INV_STD, OTHER)
    check_reads(made, repeated, {})
    assert_same(made, repeated)
