"""The pipeline is one table: each pass of it can be left out by name, and says what it gains."""

from __future__ import annotations

import pytest

from programs import add, assert_same, copy, double, fill, part, program, relu, tanh, whole
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.lower import lower, unshared
from singa_lite.compiler.pipeline import PASSES
from singa_lite.compiler.proof.read_from import check_reads

NAMES = [one.name for one in PASSES]
SWITCH = "SINGA_LITE_PASSES"


def some() -> Program:
    """What several passes gain from: nobody uses 11, 13 is a concatenation, and 14 may lie where 13 was."""
    start, result = whole(0, 3, 40), whole(1, 3, 80)
    joined = whole(13, 3, 80)
    return program(
        double(start, whole(10, 3, 40)),
        fill(whole(11, 30, 40)),
        tanh(whole(10, 3, 40), whole(12, 3, 40)),
        copy(whole(10, 3, 40), part(joined, 1, 0, 40)),
        copy(whole(12, 3, 40), part(joined, 1, 40, 80)),
        relu(joined, whole(14, 3, 80)),
        add(joined, whole(14, 3, 80), whole(15, 3, 80)),
        copy(whole(15, 3, 80), result),
        held=[0, 1],
    )


@pytest.mark.parametrize("name", NAMES)
def test_each_pass_can_be_left_out(name, monkeypatch):
    whole_gains = lower(some()).gains | lower(some(), parallel=True).gains
    monkeypatch.setenv(SWITCH, f" -{name} ")
    for parallel in (False, True):
        placed = lower(some(), parallel=parallel)
        assert name not in placed.gains
        assert placed.gains.keys() < whole_gains.keys()
        assert_same(some(), placed.planned, placed.offsets)
        check_reads(placed.rewritten, placed.planned, placed.offsets)


def test_several_passes_can_be_left_out(monkeypatch):
    monkeypatch.setenv(SWITCH, ",".join(f"-{name}" for name in NAMES))
    placed = lower(some())
    assert placed.gains == {}
    assert placed.planned is placed.rewritten is placed.recorded
    assert placed.plan.floor == placed.recorded_floor
    assert unshared(some()).planned.instructions == some().instructions


@pytest.mark.parametrize("text", ["concat", "-concatenation", "-concat;-in_place", "+concat", "off", "-"])
def test_anything_else_is_refused(text, monkeypatch):
    monkeypatch.setenv(SWITCH, text)
    with pytest.raises(ValueError, match=SWITCH) as error:
        lower(some())
    assert repr(text) in str(error.value)
