"""Checks of plain values; each error says what was wanted, then what was received, and where.

ValueError for a number that is not as wanted, ShapeError for an axis that is not there, TypeError for what is no
number. True and False are no numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from math import inf, isfinite
from numbers import Real
from typing import Any, TypeGuard

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.common.errors import ShapeError


def finite(where: str, number: float) -> float:
    """The number as a float. ValueError unless it is finite."""
    return _checked(where, "a finite number", number, isfinite)


def at_least_zero(where: str, number: float) -> float:
    """The number as a float. ValueError unless it is finite and 0 or more."""
    return _checked(where, "a finite number of at least 0", number, lambda n: isfinite(n) and n >= 0)


def at_most_zero(where: str, number: float) -> float:
    """The number as a float. ValueError unless it is finite and 0 or less."""
    return _checked(where, "a finite number of at most 0", number, lambda n: isfinite(n) and n <= 0)


def at_least_one(where: str, number: float) -> float:
    """The number as a float. ValueError unless it is finite and 1 or more."""
    return _checked(where, "a finite number of at least 1", number, lambda n: isfinite(n) and n >= 1)


def above_zero(where: str, number: float) -> float:
    """The number as a float, which may be infinite. ValueError unless it is above 0."""
    return _checked(where, "a number above 0", number, lambda n: n > 0)


def finite_above_zero(where: str, number: float) -> float:
    """The number as a float. ValueError unless it is finite and above 0."""
    return _checked(where, "a finite number above 0", number, lambda n: isfinite(n) and n > 0)


def fraction(where: str, number: float) -> float:
    """The number as a float. ValueError unless it is from 0 to below 1."""
    return _checked(where, "a number from 0 to below 1", number, lambda n: 0 <= n < 1)


def share(where: str, number: float) -> float:
    """The number as a float. ValueError unless it is from 0 to 1."""
    return _checked(where, "a number from 0 to 1", number, lambda n: 0 <= n <= 1)


def integer(where: str, number: float, least: int, most: int | None = None) -> int:
    """The number as an int. ValueError unless it is whole and at least `least`, and at most `most` if that is given."""
    wanted = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"
    if isinstance(number, bool) or not isinstance(number, int):  # an int may be larger than any float
        _checked(where, wanted, number, lambda n: n.is_integer())
    if number < least or (most is not None and number > most):
        raise ValueError(f"{where}: wanted {wanted}, received {number}")
    return int(number)


def flag(where: str, value: object) -> bool:
    """The value as a bool. TypeError unless it is True or False: any text, "no" too, would count as True."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{where}: wanted True or False, received {value!r}")
    return bool(value)


def or_none(check: Callable[[str, Any], object]) -> Callable[[str, Any], object]:
    """The check, which lets None through."""
    return lambda where, given: None if given is None else check(where, given)


def names(where: str, given: Collection[str]) -> list[str]:
    """Names as a list. TypeError for one name alone, whose letters would be taken for names, and for no collection."""
    if isinstance(given, str | np.ndarray) or not isinstance(given, Collection):
        raise TypeError(f"{where}: wanted a list of names, received {given!r}")
    return list(given)


def goes_through(given: object) -> TypeGuard[Iterable[Any]]:
    """Whether it gives one thing after the other: no text, no mapping, no array without axes."""
    is_number = isinstance(given, np.ndarray) and not given.ndim
    return isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping) and not is_number


def path(where: str, given: object) -> str:
    """The path as text. TypeError for what is none: True and other numbers are no files that are open."""
    if not isinstance(given, str | os.PathLike):
        raise TypeError(f"{where}: wanted a path, received {given!r:.100}")
    return os.fsdecode(given)


def paths(where: str, given: object) -> list[str]:
    """One path or several."""
    return [path(where, each) for each in given] if goes_through(given) else [path(where, given)]


def number_dtype(where: str, given: Any) -> np.dtype[Any]:
    """The dtype. TypeError for what is none, or none of numbers."""
    try:
        found = np.dtype(object if given is None else given)
    except (TypeError, ValueError):
        found = np.dtype(object)
    if found.kind not in "iuf":
        raise TypeError(f"{where}: wanted a dtype of numbers such as 'float32', received {given!r:.100}")
    return found


def check_choice(where: str, value: object, names: Collection[str]) -> str:
    """The value itself. ValueError unless it is one of the names."""
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"{where}: wanted one of {', '.join(map(repr, names))}, received {value!r}")
    return value


def axis_of(where: str, given: object, shape: Sequence[int]) -> int:
    """The axis as a number from 0. ShapeError if x of this shape has none such, TypeError for what is no number."""
    if not is_int(given):
        raise TypeError(f"{where}: wanted an axis, a whole number, received {given!r}")
    if not -len(shape) <= given < len(shape):
        raise ShapeError(f"{where}: wanted an axis of x {tuple(shape)}, received axis {given}")
    return int(given) % len(shape)


def axes_of(where: str, given: object, shape: Sequence[int]) -> tuple[int, ...]:
    """One axis, or a tuple or list of different ones, as rising numbers from 0; None: all."""
    if given is None:
        return tuple(range(len(shape)))
    if not is_int(given) and not isinstance(given, tuple | list):
        raise TypeError(f"{where}: wanted an axis, a tuple of them or None, received {given!r:.100}")
    several = list(given) if isinstance(given, tuple | list) else [given]
    found = [axis_of(where, one, shape) for one in several]
    if len(set(found)) < len(found):
        raise ShapeError(f"{where}: wanted each axis of x {tuple(shape)} once, received {given!r:.100}")
    return tuple(sorted(found))


def is_bfloat16(dtype: DType) -> bool:
    """Returns whether a dtype is the bfloat16 of ml_dtypes. Its kind is asked first, as NumPy makes each name anew."""
    return dtype.kind == "V" and dtype.name == "bfloat16"


def gradient_dtype(dtype: DType) -> DType:
    """Returns the dtype of a parameter's gradient: float32 for a parameter in bfloat16, else the parameter's own."""
    return np.dtype(np.float32) if is_bfloat16(dtype) else dtype


def narrow_dtype(where: str, name: str) -> DType:
    """Returns the NumPy dtype of a name. ImportError, which begins with `where`, for bfloat16 without ml_dtypes."""
    if name == "bfloat16" and find_spec("ml_dtypes") is None:
        raise ImportError(f"{where}={name!r}: wants NumPy's bfloat16, pip install ml_dtypes")
    return np.dtype(import_module("ml_dtypes").bfloat16 if name == "bfloat16" else name)


def is_int(value: object) -> TypeGuard[int]:
    """Whether the value is an integer of Python or NumPy; True and False are none."""
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "iu"
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def real(value: object) -> float | None:
    """The value as a float if it is a number of Python or NumPy, also in an array of no axes; else None."""
    number = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
    if isinstance(number, bool) or not isinstance(number, Real):
        return None
    try:
        return float(number)
    except OverflowError:  # an int that is larger than any float
        return -inf if number < 0 else inf


def _checked(where: str, wanted: str, number: object, is_wanted: Callable[[float], bool]) -> float:
    value = real(number)
    if value is None:
        raise TypeError(f"{where}: wanted {wanted}, received {number!r}")
    if not is_wanted(value):
        raise ValueError(f"{where}: wanted {wanted}, received {number}")
    return value


def kind_of(given: object) -> str:
    """What to call it in a message: "float", "the class Adam"."""
    return f"the class {given.__qualname__}" if isinstance(given, type) else type(given).__name__
