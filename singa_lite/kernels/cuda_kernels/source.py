"""The CUDA sources of this folder: their text with headers put in, the kernels they define, names of types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.kernels.kernel_set import TensorSpec

FOLDER = Path(__file__).resolve().parent

#: Element types by the names of NumPy's dtypes.
TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
}
HALVES = ("float16", "bfloat16")
FLOATS = (*HALVES, "float32", "float64")

_INCLUDE = re.compile(r'#include "(\w+\.cuh)"')
#: As C has it, or by a macro.
_KERNEL = re.compile(
    r'^(?:extern "C" __global__ void(?:\s+__launch_bounds__\([^)]*\))?\s+|[A-Z][A-Z_0-9]+\()(\w+)[(,]', re.MULTILINE
)


def may_hold(sums: DType, terms: DType) -> bool:
    """Whether sums may be stored so: as what is summed, and those of halves in float32."""
    return sums == terms or (terms.name in HALVES and sums.name == "float32")


def are_floats(*specs: TensorSpec) -> bool:
    """Whether all are floats of one type."""
    return specs[0].dtype.name in FLOATS and all(spec.dtype == specs[0].dtype for spec in specs)


def are_ids(*specs: TensorSpec) -> bool:
    """Whether all are integers of one type."""
    first = specs[0].dtype
    return first.kind in "iu" and first.name in TYPES and all(spec.dtype == first for spec in specs)


def computed(dtype: DType) -> DType:
    """Returns the dtype that arithmetic on this one is done in, C of numbers.cuh."""
    return np.dtype(np.float64 if dtype.name == "float64" else np.float32)


@cache
def text(file: str) -> str:
    """A source with the text of its own headers put in, each once: a compiler's cache sees every change."""
    return "\n".join(_lines(file, set()))


def _lines(file: str, seen: set[str]) -> Iterator[str]:
    """The lines of a file and its headers, with `#line` for the compiler's messages wherever another file begins."""
    yield f'#line 1 "{file}"'
    for number, line in enumerate((FOLDER / file).read_text(encoding="utf-8").splitlines(), 1):
        header = _INCLUDE.fullmatch(line)
        if header is None:
            yield "" if line == "#pragma once" else line
        elif header[1] not in seen:
            seen.add(header[1])
            yield from _lines(header[1], seen)
            yield f'#line {number + 1} "{file}"'
        else:
            yield ""


@cache
def kernels(file: str) -> tuple[str, ...]:
    """Names of the kernels in a source."""
    return defined(text(file))


def defined(program: str) -> tuple[str, ...]:
    """Names of the kernels in a text."""
    return tuple(_KERNEL.findall(program))


def files() -> list[str]:
    """All sources, without headers."""
    return sorted(path.name for path in FOLDER.glob("*.cu"))


def program(file: str, types: Mapping[str, str]) -> str:
    """A source ready to compile. types: {name of a type in the source: name of a dtype}."""
    lines = [f"typedef {TYPES[dtype]} {name};" for name, dtype in types.items()]
    if any(dtype in HALVES for dtype in types.values()):
        lines = ["#define WITH_HALF", "#include <cuda_bf16.h>", "#include <cuda_fp16.h>", *lines]
    return "\n".join([*lines, text(file), ""])
