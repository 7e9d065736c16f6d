"""The next ids of texts, drawn by the scores of all ids, on the host: the same numbers on every device."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.array_types import Array
from singa_lite.kernels.philox import generator
from singa_lite.net.generation.checked import Drawing

Floats = NDArray[np.float64]


class Draws:
    """Draws ids for n texts, step by step. Text i has a stream of Philox's numbers of its own, whatever n is."""

    def __init__(self, drawing: Drawing, n: int, steps: int) -> None:
        self._temperature, self._top_k = drawing.temperature, drawing.top_k
        keys = (np.array([drawing.seed, text, 0], np.uint64) for text in range(n if drawing.temperature else 0))
        self._numbers = np.array([generator(key).random(steps) for key in keys])

    def ids(self, scores: Array, step: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """(n,), by scores (n, classes) of the logarithms of probabilities, up to a constant. step: of each text, (n,),
        or of all.

        ValueError for scores that hold NaN or infinity; minus infinity is an id that never comes.
        """
        top = scores.max(axis=1, keepdims=True)
        if not np.isfinite(top).all():
            text = int(np.flatnonzero(~np.isfinite(top[:, 0]))[0])
            raise ValueError(f"generate: wanted scores that are numbers, received {top[text, 0]} in text {text}")
        if not self._temperature:
            best: NDArray[np.int64] = scores.argmax(axis=1)
            return best
        if 0 < self._top_k < scores.shape[1]:
            scores = _largest(scores, self._top_k)
        with np.errstate(over="ignore"):
            powers = np.exp((scores.astype(np.float64) - top) / self._temperature)
        return _drawn(powers, self._numbers[np.arange(len(scores)), step])


def _largest(scores: Array, count: int) -> Array:
    """Minus infinity in the place of all but the `count` largest; of equal ones those with smaller ids stay."""
    least = np.partition(scores, -count, axis=1)[:, -count, None]
    above, equal = scores > least, scores == least
    left = count - above.sum(axis=1, keepdims=True)
    return np.where(above | (equal & (equal.cumsum(axis=1) <= left)), scores, -np.inf)


def _drawn(powers: Floats, numbers: Floats) -> NDArray[np.int64]:
    """In each row the index that its number, from 0 to below 1, falls on, by shares of the row's sum."""
    sums = powers.cumsum(axis=1)
    at: NDArray[np.int64] = (sums <= (numbers * sums[:, -1])[:, None]).sum(axis=1)
    last = powers.shape[1] - 1 - np.argmax(powers[:, ::-1] > 0, axis=1)  # where rounding leads beyond the sum
    drawn: NDArray[np.int64] = np.minimum(at, last)
    return drawn
