"""Checks of plain numbers, and of yes or no; each error says what was wanted, then what was received, and where.

ValueError for a number that is not as wanted, TypeError for what is no number at all, True and False among it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np


def finite(where: str, number: float) -> float:
    """The number as a float. ValueError unless it is finite."""
    return _checked(where, "a finite number", number, isfinite)


def at_least_zero(where: str, number: float) -> float:
    """The number as a float. ValueError unless it is finite and 0 or more."""
    return _checked(where, "a finite number of at least 0", number, lambda n: isfinite(n) and n >= 0)


def above_zero(where: str, number: float) -> float:
    """The number as a float. ValueError unless it is above 0; infinity is."""
    return _checked(where, "a number above 0", number, lambda n: n > 0)


def fraction(where: str, number: float) -> float:
    """The number as a float. ValueError unless it is from 0 to below 1."""
    return _checked(where, "a number from 0 to below 1", number, lambda n: 0 <= n < 1)


def whole(where: str, number: float, least: int) -> int:
    """The number as an int. ValueError unless it is whole and at least `least`."""
    wanted = f"a whole number of at least {least}"
    if not isinstance(number, int) or isinstance(number, bool):  # an int may be larger than any float
        _checked(where, wanted, number, lambda n: n.is_integer())
    if number < least:
        raise ValueError(f"{where}: wanted {wanted}, received {number}")
    return int(number)


def flag(where: str, given: bool) -> bool:
    """Yes or no as a bool. TypeError for anything but True and False, and 1 and 0, which are equal to them."""
    if isinstance(given, int | np.bool_ | np.integer) and given in (0, 1):
        return bool(given)
    raise TypeError(f"{where}: wanted True or False, received {given!r}")


def names(where: str, given: Collection[str]) -> list[str]:
    """Names as a list. TypeError for one name alone, whose letters would be taken for names, and for no collection."""
    if isinstance(given, str) or not isinstance(given, Collection):
        raise TypeError(f"{where}: wanted a list of names, received {given!r}")
    return list(given)


def _checked(where: str, wanted: str, number: Any, is_wanted: Callable[[float], bool]) -> float:
    held = isinstance(number, np.ndarray) and number.ndim == 0 and number.dtype.kind in "iuf"
    if isinstance(number, bool) or not (held or isinstance(number, Real)):
        raise TypeError(f"{where}: wanted {wanted}, received {number!r}")
    if not is_wanted(float(number)):
        raise ValueError(f"{where}: wanted {wanted}, received {number}")
    return float(number)
