"""What a misuse must end in: one error of ours, which says what was wanted and what was received, in our words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from inspect import Parameter, signature
from typing import Any, NamedTuple

import numpy as np
import pytest

from every_row import over_rows
from nets import state_of
from singa_lite import FeedForwardNet

#: Words of Python's and of libraries' own errors, which tell of our insides and not of what the user wrote.
INTERNALS = re.compile(
    r"'NoneType' object|unhashable|KeyError|has no attribute|not iterable|not callable|not subscriptable|"
    r"positional argument|unsupported operand|object of type|truth value|cannot be interpreted|could not convert|"
    r"must be real number|not supported between|can't multiply|invalid literal"
)

#: What may be handed over for anything: texts, truth values, nothing, numbers of many kinds, containers.
STRANGERS: dict[str, Any] = {
    "text": "x",
    "empty text": "",
    "bytes": b"1",
    "truth": True,
    "nothing": None,
    "not a number": float("nan"),
    "infinity": float("inf"),
    "negative": -1,
    "fraction": 0.37,
    "huge": 2**70,
    "hugest": 10**400,
    "complex": 1j,
    "list": [1],
    "empty list": [],
    "list of texts": ["a"],
    "dict": {"a": 1},
    "set": {1},
    "object": object(),
    "class": int,
    "function": lambda: 1,
    "array": np.ones(3),
    "matrix": np.ones((2, 2), int),
    "text in an array": np.array("1"),
    "truth in an array": np.array(True),
}


class Row(NamedTuple):
    """A misuse.

    call: makes it, of the net where there is one. error: what it ends in. words: what the message names: the argument,
    the layer, the file, the value that was received. net: makes a net; the call may change nothing of it. then: what a
    user does next, which must do the same as without the misuse.
    """

    call: Callable[..., object]
    error: type[BaseException]
    words: tuple[str, ...]
    net: Callable[[], FeedForwardNet] | None = None
    then: Callable[[FeedForwardNet], object] | None = None


def row(call: Callable[..., object], error: type[BaseException], *words: str, **options: Any) -> Row:
    """A `Row`."""
    return Row(call, error, words, **options)


def assert_all_refused(rows: Iterable[Row]) -> None:
    """Fail with all rows that are not refused as they say."""
    over_rows(assert_refused, ((f"{place}: {', '.join(one.words)}", (one,)) for place, one in enumerate(rows)))


def assert_refused(one: Row) -> None:
    """Fail unless the misuse is refused as its row says, the second time as the first, and leaves its net as it was."""
    net = one.net() if one.net else None
    before = None if net is None else whole(net)
    for _ in range(2):
        with pytest.raises(one.error) as caught:
            one.call() if net is None else one.call(net)
        message = str(caught.value)
        missing = [word for word in one.words if word not in message]
        assert not missing, f"{message} lacks {missing}"
        assert not INTERNALS.search(message), message
        assert net is None or whole(net) == before
    if net is not None and one.net and one.then:
        state = state_of(net)
        one.then(net)
        assert state_of(net) == undisturbed(one.net, one.then) != state


@cache
def undisturbed(make: Callable[[], FeedForwardNet], then: Callable[[FeedForwardNet], object]) -> dict[str, Any]:
    """The state of a net after a step, without the misuse before it."""
    net = make()
    then(net)
    return state_of(net)


def whole(net: FeedForwardNet) -> list[Any]:
    """All that a refused call must leave: state, and the objects that the net was compiled with."""
    return [state_of(net), net.optimizer, net.loss, net.metric, net.freeze, net.unfinished_at]


def refused(call: Callable[[], object], error: type[Exception] | tuple[type[Exception], ...], *words: str) -> str:
    """The message with which the call is refused, which has all of these words."""
    with pytest.raises(error) as caught:
        call()
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{caught.value} lacks {missing}"
    return str(caught.value)


def assert_clear(error: BaseException) -> None:
    """Fail unless the message tells what was wanted and received, and nothing of our insides."""
    message = str(error)
    assert "wanted" in message and "received" in message, f"{type(error).__name__}: {message}"
    assert not INTERNALS.search(message), message
    assert "\n" not in message.strip() or len(message) < 1000, message


def options(call: Callable[..., object]) -> list[str]:
    """What can be handed to a call, by name."""
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [name for name, parameter in signature(call).parameters.items() if parameter.kind in kinds]


#: What no option takes that takes a truth value, and none that takes a number, by the value that it has.
NEVER = {
    bool: ("text", "nothing", "not a number", "fraction", "list", "object", "class", "array"),
    float: ("text", "bytes", "truth", "not a number", "complex", "list of texts", "dict", "object", "class", "matrix"),
    int: ("text", "bytes", "truth", "not a number", "fraction", "complex", "list of texts", "dict", "object", "class"),
}


def assert_options_are_checked(call: Callable[..., object], given: dict[str, Any], free: Iterable[str] = ()) -> None:
    """Hand each option of a call each of the strangers: fail unless it takes it, or refuses it clearly.

    An option that has a truth value or a number refuses what is none. given: what the call takes. free: options that
    have a number and take more.
    """
    call(**given)
    defaults = {name: parameter.default for name, parameter in signature(call).parameters.items()}
    for option in options(call):
        never = NEVER.get(type(given.get(option, defaults[option])), ())
        for name, stranger in STRANGERS.items():
            try:
                call(**{**given, option: stranger})
            except Exception as error:  # whatever comes is looked at
                assert_clear(error)
            else:
                assert name not in never or option in free, f"{option}={stranger!r} was taken"
