"""What a function's code reads, and what it does no more to than count on: from the bytecode of this Python."""

from __future__ import annotations

from typing import Any

import pytest

from singa_lite import Layer
from singa_lite.autograd.watching.reached import counted_by, reached
from singa_lite.autograd.watching.read_names import moved_names, read_names, stored_names

TOTAL = 0


def counting(this: Any) -> None:
    global TOTAL
    TOTAL += 1
    this.calls += 1
    this.rate *= 0.9
    this.other = this.other + 1
    this.log.append(this)


def comparing(this: Any) -> bool:
    return bool(this.calls > 3)


def adding_up(this: Any, value: float) -> None:
    this.total += value


def reading_too(this: Any) -> Any:
    this.calls += 1
    return this.calls


def within(this: Any) -> Any:
    return [each * this.share for each in this.several]


def closing(limit: int) -> Any:
    calls = 0

    def function() -> bool:
        nonlocal calls
        calls += 1
        return calls > limit

    return function


@pytest.mark.parametrize(
    ("function", "read", "moved", "stored"),
    [
        (counting, set(), {"TOTAL", "calls", "rate", "other"}, {"TOTAL", "calls", "rate", "other"}),
        (comparing, {"bool", "calls"}, set(), set()),
        (adding_up, {"total"}, set(), {"total"}),
        (reading_too, {"calls"}, {"calls"}, {"calls"}),
        (within, {"share", "several"}, set(), set()),
        (closing(3), {"calls", "limit"}, {"calls"}, {"calls"}),
    ],
)
def test_names(function, read, moved, stored):
    code = function.__code__
    assert read_names(code) - {"this", "append", "log"} == read
    assert moved_names(code) == moved
    assert stored_names(code) == stored
    assert "log" not in read_names(code)


class Own(Layer):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls = 0

    def forward(self, training: bool, x: Any) -> Any:
        self.calls += 1
        return self.scaled(x)

    def scaled(self, x: Any) -> Any:
        return x * 2.0

    def shown(self) -> str:
        return f"{self.calls} calls"


class Told(Own):
    def scaled(self, x: Any) -> Any:
        return x * float(self.calls)


def test_functions_that_a_call_comes_to():
    assert {each.__qualname__ for each in reached(Own)} == {"Own.forward", "Own.scaled"}
    assert {each.__qualname__ for each in reached(Told)} == {"Own.forward", "Own.scaled", "Told.scaled"}
    assert (counted_by(Own), counted_by(Told)) == (frozenset(), {"calls"})
