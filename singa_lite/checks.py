"""Checks of plain numbers; each error says what was wanted, then what was received, and where."""

from __future__ import annotations

from math import isfinite, isinf


def finite(where: str, number: float) -> float:
    """The number as a float. ValueError unless it is finite."""
    if not isfinite(number):
        raise ValueError(f"{where}: wanted a finite number, received {number}")
    return float(number)


def at_least_zero(where: str, number: float) -> float:
    """The number as a float. ValueError unless it is finite and 0 or more."""
    if not (isfinite(number) and number >= 0):
        raise ValueError(f"{where}: wanted a finite number of at least 0, received {number}")
    return float(number)


def above_zero(where: str, number: float) -> float:
    """The number as a float. ValueError unless it is above 0; infinity is."""
    if not number > 0:
        raise ValueError(f"{where}: wanted a number above 0, received {number}")
    return float(number)


def fraction(where: str, number: float) -> float:
    """The number as a float. ValueError unless it is from 0 to below 1."""
    if not 0 <= number < 1:
        raise ValueError(f"{where}: wanted a number from 0 to below 1, received {number}")
    return float(number)


def whole(where: str, number: float, least: int) -> int:
    """The number as an int. ValueError unless it is whole and at least `least`."""
    if number != number or isinf(number) or number != int(number) or number < least:
        raise ValueError(f"{where}: wanted a whole number of at least {least}, received {number}")
    return int(number)
