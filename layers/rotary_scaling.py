"""Scaling of rotary frequencies: how models that were trained on short texts read longer ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import pi

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.checks import finite_above_zero

#: What a layer takes: None, or {"rope_type": kind, ...} with the numbers of `NUMBERS`, as Hugging Face writes it.
Scaling = Mapping[str, object] | None

#: {kind: the numbers that it takes}.
NUMBERS = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "factors": ("factors",),
}


def checked_scaling(where: str, given: Scaling) -> Scaling:
    """The scaling with its kind under "rope_type", None for none. ValueError or TypeError for what is no scaling."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise TypeError(f"{where}: wanted a mapping or None, received {given!r:.100}")
    found = {("rope_type" if name == "type" else name): value for name, value in given.items()}
    kind = found.pop("rope_type", None)
    if not isinstance(kind, str) or kind not in NUMBERS:
        raise ValueError(f"{where}: wanted a rope_type of {', '.join(NUMBERS)}, received {kind!r:.100}")
    if found.keys() != {*NUMBERS[kind]}:
        raise ValueError(f"{where}: wanted of {kind} {', '.join(NUMBERS[kind])}, received {sorted(map(str, found))}")
    if kind == "factors":
        return {"rope_type": kind, "factors": _factors(where, found["factors"])}
    numbers = {name: finite_above_zero(f"{where} {name}", found[name]) for name in NUMBERS[kind]}  # type: ignore[arg-type]
    if kind == "llama3" and not numbers["low_freq_factor"] < numbers["high_freq_factor"]:
        raise ValueError(f"{where}: wanted a low_freq_factor below high_freq_factor, received {numbers}")
    return {"rope_type": kind, **numbers}


def _factors(where: str, given: object) -> tuple[float, ...]:
    """Those of a file that gives one for each frequency."""
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray) or not len(given):
        raise TypeError(f"{where} factors: wanted a number for each frequency, received {given!r:.100}")
    return tuple(finite_above_zero(f"{where} factors", each) for each in given)


def scaled_rates(where: str, rates: NDArray[np.float64], scaling: Scaling) -> NDArray[np.float64]:
    """The angles of one position, scaled.

    linear: all divided by `factor` (Chen and others, arXiv 2306.15595). llama3: those whose wave is longer than
    original_max_position_embeddings / low_freq_factor are divided by it, those of waves shorter than that over
    high_freq_factor stay, and between they are mixed (Llama 3.1). factors: each divided by its own.
    """
    scaling = checked_scaling(where, scaling)
    if scaling is None:
        return rates
    kind, *numbers = scaling.values()
    if kind == "factors":
        divisors = np.array(numbers[0], np.float64)
        if divisors.shape != rates.shape:
            raise ValueError(f"{where} factors: wanted {rates.size}, one a frequency, received {divisors.size}")
        return rates / divisors
    factor, *bounds = (float(number) for number in numbers)  # type: ignore[arg-type]
    if kind == "linear":
        return rates / factor
    low, high, length = bounds
    share = np.clip((length * rates / (2 * pi) - low) / (high - low), 0, 1)
    mixed: NDArray[np.float64] = share * rates + (1 - share) * rates / factor
    return mixed
