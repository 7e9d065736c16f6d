"""The library of compiled loops: the file for this processor, and the types of arguments of its functions."""

from __future__ import annotations

import ctypes as c
import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

from singa_lite.common.errors import DeviceError
from singa_lite.common.machine import instruction_sets

FOLDER = Path(__file__).parent
_AVX2 = {"avx2", "fma", "f16c"}
#: {level: instruction sets that the code of its file needs}, the fastest first. setup.py compiles for these.
NEEDS = {"avx512": {*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl"}, "avx2": _AVX2, "plain": set[str]()}
#: What `SINGA_LITE_LOOPS` may hold instead of a level: do without the loops.
OFF = "off"

_OPERATION = re.compile(r"^ +OF\((\w+),", re.MULTILINE)
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

    _fields_ = [("at", c.c_void_p), ("steps", c.c_int64 * AXES), ("type", c.c_int64)]


#: {type in the headers: type in Python}. All pointers are addresses.
TYPES = {"Rows": Rows, "Box": Box, "Extents": Extents, "int64_t": c.c_int64, "double": c.c_double, "float": c.c_float}

Function = Callable[..., object]


class Library:
    """Functions of a compiled file by name. types: {function: types of its arguments}.

    OSError for a file that this system cannot load, or that was compiled from other headers than those that are here.
    """

    def __init__(self, path: Path, level: str = "") -> None:
        self.level = level
        self._library = c.CDLL(str(path))
        headers = [header.read_bytes() for header in sorted((FOLDER / "source").glob("*.h"))]
        try:
            stamp = c.c_char_p.in_dll(self._library, "compiled_headers").value or b""
        except ValueError:
            stamp = b""
        if stamp.decode() != sha256(b"".join(headers)).hexdigest():
            raise OSError(f"{path}: wanted loops compiled from the headers beside it, received others")
        self.types = argument_types(b"".join(headers).decode())

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
def operations() -> dict[str, int]:
    """Returns {operation: its number} of all element-wise operations, see operations.h."""
    names = _OPERATION.findall((FOLDER / "source" / "operations.h").read_text())
    return {name: number for number, name in enumerate(names)}


@cache
def find() -> Library | str:
    """The loops for this processor, loaded once; or why there are none, "" where that is meant.

    SINGA_LITE_LOOPS may name a level, or be "off". DeviceError for another value, and for a level that is not there.
    """
    wanted = os.environ.get("SINGA_LITE_LOOPS", "")
    if wanted == OFF:
        return ""
    if wanted and wanted not in NEEDS:
        raise DeviceError(f"SINGA_LITE_LOOPS: wanted one of {(*NEEDS, OFF)}, received {wanted!r}")
    found = _fastest([wanted] if wanted else [*NEEDS])
    if wanted and isinstance(found, str):
        raise DeviceError(f"SINGA_LITE_LOOPS: wanted the loops for {wanted}, but {found}")
    return found


def _fastest(levels: Sequence[str]) -> Library | str:
    """The first of the levels that is compiled and that the processor has; or why there is none."""
    flags, why = {*instruction_sets()}, "the loops in C were not compiled when singa_lite was installed"
    for level in levels:
        for path in FOLDER.glob(f"_loops_{level}.*"):
            lacks = NEEDS[level] - flags
            if lacks:
                why = f"the processor lacks {' '.join(sorted(lacks))}, which {path} needs"
                continue
            try:
                return Library(path, level)
            except OSError as error:
                why = str(error)
    return why


def load() -> Library | None:
    """The loops for this processor; None where there are none."""
    found = find()
    return found if isinstance(found, Library) else None
