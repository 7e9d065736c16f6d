"""The compiled loops: which file serves this processor, and their functions with the types of their arguments."""

from __future__ import annotations

import ctypes as c
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from singa_lite.common.machine import instruction_sets

FOLDER = Path(__file__).parent
#: {file: flags of the processor that its code needs}, the fastest first.
NEEDS = {"avx512": {"avx512f", "avx512bw", "avx512vl", "fma"}, "avx2": {"avx2", "fma"}, "plain": set[str]()}
#: What `SINGA_LITE_LOOPS` may hold: do without the loops.
OFF = "off"

#: Of a function for Python; those for other loops do not begin with their type.
_PROTOTYPE = re.compile(r"^void (\w+)\(([^)]*)\);", re.MULTILINE)


class Rows(c.Structure):
    """An operand of a loop as rows of a matrix, see numbers.h."""

    _fields_ = [("at", c.c_void_p), ("pitch", c.c_int64), ("is_narrow", c.c_int64)]


#: Axes of a box.
AXES = 6


class Extents(c.Structure):
    """Elements along each axis of a box, see numbers.h."""

    _fields_ = [("of", c.c_int64 * AXES)]


class Box(c.Structure):
    """An operand of a loop as a tensor of any strides, see numbers.h."""

    _fields_ = [("at", c.c_void_p), ("steps", c.c_int64 * AXES), ("is_narrow", c.c_int64)]


#: {type in the headers: type in Python}. All pointers are addresses.
TYPES = {"Rows": Rows, "Box": Box, "Extents": Extents, "int64_t": c.c_int64, "double": c.c_double, "float": c.c_float}

Function = Callable[..., object]


class Library:
    """Functions of a compiled file by name. types: {function: types of its arguments}."""

    def __init__(self, path: Path) -> None:
        self._library = c.CDLL(str(path))
        self.types = argument_types("".join(path.read_text() for path in (FOLDER / "source").glob("*.h")))

    @cache  # noqa: B019 - there is one library
    def function(self, name: str) -> Function:
        """The function, whose arguments must have the types that its header states."""
        found = self._library[name]
        found.argtypes, found.restype = self.types[name], None
        return found


def argument_types(headers: str) -> dict[str, tuple[type, ...]]:
    """Returns {function: types of its arguments} of all functions that the headers declare."""
    return {
        name: tuple(c.c_void_p if "*" in text else TYPES[text.split()[0]] for text in arguments.split(","))
        for name, arguments in _PROTOTYPE.findall(headers)
    }


@cache
def load() -> Library | None:
    """The loops for this processor, loaded once; None where none were compiled, or SINGA_LITE_LOOPS is "off"."""
    if os.environ.get("SINGA_LITE_LOOPS", "") == OFF:
        return None
    flags = {*instruction_sets()}
    for level, needed in NEEDS.items():
        for path in FOLDER.glob(f"_loops_{level}.*"):
            if needed <= flags:
                return Library(path)
    return None
