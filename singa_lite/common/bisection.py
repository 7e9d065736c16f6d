"""Bisection over sizes of a batch, helped by guesses: what is looked at takes a record and perhaps a search each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

#: What a first guess may be beyond a size that is known to fit, in times of it.
FAR = 64


def bisected(
    fits: Callable[[int], bool], known: int, too_many: int | None = None, guess: Callable[[], int | None] | None = None
) -> int:
    """A size that fits while the next one does not.

    known: one that fits, or 0; too_many: one that does not, else sought by doubling; guess: what the answer may be,
    asked anew each time. A good guess is tried, and its neighbour; a guess beyond what is left is none, and every third
    try halves what is left all the same.
    """
    tries = 0
    while too_many is None or too_many - known > 1:
        tries += 1
        guessed = guess() if guess is not None and tries % 3 else None
        tried = max(1, 2 * known) if too_many is None else (known + too_many) // 2
        if guessed is not None and known - 1 <= guessed and (too_many is None or guessed <= too_many + 1):
            most = FAR * max(1, known) if too_many is None else too_many - 1
            tried = max(known + 1, min(guessed, most))
        known, too_many = (tried, too_many) if fits(tried) else (known, tried)
    return known


def crossing(values: Mapping[int, float], wanted: float) -> int | None:
    """The size at which a value would be `wanted`, by the line through the two sizes whose values are nearest to it.

    None where no line rises through two of them.
    """
    nearest = sorted(values, key=lambda size: (abs(values[size] - wanted), size))[:2]
    if len(nearest) < 2:
        return None
    one, other = nearest
    slope = (values[one] - values[other]) / (one - other)
    return int(one + (wanted - values[one]) / slope) if slope > 0 else None
