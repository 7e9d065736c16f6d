"""Bytes: of a tensor, with a bound; and from what people write, such as "4 GiB"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite, prod

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.common.errors import ShapeError

#: The most bytes that an address can count, and that an array of NumPy's can have.
MOST_BYTES = 2**63 - 1

_UNITS = {"": 1, "B": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("KMGTP", 1)
    for ending, base in (("B", 1000), ("iB", 1024))
}
_TEXT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)
_BY_LOWER_CASE = {unit.lower(): factor for unit, factor in _UNITS.items()}


def tensor_bytes(shape: Sequence[int], dtype: DType) -> int:
    """Bytes of a tensor without gaps. ShapeError for a negative extent, or for more bytes than can be counted."""
    if any(extent < 0 for extent in shape):
        raise ShapeError(f"wanted extents of at least 0, received shape {tuple(shape)}")
    nbytes = prod(map(int, shape)) * dtype.itemsize
    if nbytes > MOST_BYTES:
        raise ShapeError(f"wanted a tensor of less than 2**63 bytes, received shape {tuple(shape)} of {dtype}")
    return nbytes


def memory_size(where: str, given: object, least: int = 0) -> int:
    """Bytes as an int, from a whole number or from text with a unit: "4 GiB" (1024**3), "1.5GB" (1000**3), "512 MiB".

    Letters' case does not matter. TypeError for what is neither, ValueError for what makes no number of bytes of at
    least 0; a fraction of a byte is left out. least: what an error says is wanted.
    """
    given = given[()] if isinstance(given, np.ndarray) and not given.ndim else given
    if isinstance(given, str):
        nbytes = _from_text(given)
    elif isinstance(given, bool) or not isinstance(given, int | float | np.integer | np.floating):
        raise TypeError(f'{where}: wanted bytes as a whole number or text such as "4 GiB", received {given!r}')
    elif isinstance(given, int | np.integer):  # of any size, which no float need hold
        nbytes = int(given) if given >= 0 else None
    else:
        nbytes = int(given) if isfinite(given) and given == int(given) and given >= 0 else None
    if nbytes is None:
        raise ValueError(
            f'{where}: wanted bytes, a whole number of at least {least} or text such as "4 GiB", "1.5 GB" or '
            f'"512 MiB", received {given!r}'
        )
    return nbytes


def budget_size(where: str, given: object) -> int:
    """As `memory_size`, but at least 1."""
    nbytes = memory_size(where, given, 1)
    if not nbytes:
        raise ValueError(f"{where}: wanted at least 1 byte, received {given!r}")
    return nbytes


def _from_text(text: str) -> int | None:
    found = _TEXT.fullmatch(text)
    factor = _BY_LOWER_CASE.get(found[2].lower()) if found else None
    if found is None or factor is None:
        return None
    whole, _, fraction = found[1].partition(".")
    nbytes: int = int(whole or 0) * factor + int(fraction or 0) * factor // 10 ** len(fraction)
    return nbytes
