"""The launches of our kernels by calls of the contract that a static check is asked about, in its words."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import prod
from typing import Any
from unittest.mock import patch

import numpy as np

import launches
import sanitized_calls
from ptx_verdicts import SCHEMA
from singa_lite.kernels.cuda_kernels import routine
from singa_lite.kernels.cuda_kernels.routine import KernelLaunch, Table
from singa_lite.kernels.cuda_kernels.source import FLOATS
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.routine import Temporary

#: Threads of a grid, and elements of a tensor for each of them, with which the work of the check goes up: it follows
#: each thread through all turns of its loops. A few turns show what one reads of another's.
MOST_THREADS, MOST_ELEMENTS = 2048, 64
#: The dtype that kernels are asked about in most launches, and how many of a shape of block these are.
COMMON, EACH = sanitized_calls.DTYPE.name, 4


def settings_of(launch: KernelLaunch) -> dict[str, Any]:
    """Its grid, and the values of its arguments; tensors are addresses of their own, none known, null if left out."""
    given = [piece for number, one in enumerate(launch.arguments) for piece in _pieces_of(launch, number, one)]
    extents: dict[str, Any] = {
        "grid_dim": launch.grid,
        "block_dim": launch.block,
        "dynamic_shared_bytes": launch.shared_bytes,
    }
    return {"schema": SCHEMA, "entry": launch.kernel, "launch": extents, "arguments": given}


def _pieces_of(launch: KernelLaunch, number: int, argument: Any) -> Iterator[dict[str, Any]]:
    name = f"{launch.kernel}_param_{number}"
    if argument is None:
        yield {"parameter": name, "type": "pointer", "value": None}
    if argument is None or isinstance(argument, TensorSpec | Temporary):
        return
    value = np.asarray(argument.struct if isinstance(argument, Table) else argument)
    for offset, dtype in _fields(value.dtype):
        if isinstance(argument, Table) and offset < value[Table.ADDRESSES].nbytes:
            continue  # an address; it knows none, and takes them from tensors' own parameters alone
        place = {"offset": offset} if value.dtype.fields else {}
        yield {"parameter": name, **_number(np.frombuffer(value.tobytes(), dtype, 1, offset)[0]), **place}


def _number(value: np.generic) -> dict[str, Any]:
    """It takes no infinity: the largest number instead. Bounds of values are given so, never places."""
    bits = 8 * value.dtype.itemsize
    if value.dtype.kind != "f":
        return {"type": f"u{bits}", "value": int(value) % (1 << bits)}  # type: ignore[call-overload]
    largest = float(np.finfo(value.dtype).max)
    return {"type": f"f{bits}", "value": min(max(float(value), -largest), largest)}  # type: ignore[arg-type]


def _fields(dtype: np.dtype[Any], start: int = 0) -> Iterator[tuple[int, np.dtype[Any]]]:
    """(offset, dtype) of each number of a struct."""
    if dtype.subdtype is not None:
        inner, shape = dtype.subdtype
        for index in range(prod(shape)):
            yield from _fields(inner, start + index * inner.itemsize)
    elif dtype.fields is not None:
        for held, offset, *_ in dtype.fields.values():
            yield from _fields(held, start + offset)
    else:
        yield start, dtype


def every(file: str, kernel: str, dtype: str = COMMON) -> list[KernelLaunch]:
    """The different launches of a kernel that are small enough, the one with the least work first."""
    with np.errstate(all="ignore"):  # values of the contract that halves cannot hold; their shapes alone matter
        found = launches.launches(dtype)
    steps = [*found, *(_sized() if dtype == COMMON else ())]
    own = [one for one in steps if (one.file, one.kernel) == (file, kernel) and _is_small(one)]
    return sorted({repr((one.types, settings_of(one))): one for one in own}.values(), key=work)


def chosen(file: str, kernel: str) -> list[KernelLaunch]:
    """Of those in float32 some of each shape of block and types, from the least work to the most; of those in other
    dtypes the one with the most work for each types that are new.
    """
    alike: dict[Any, list[KernelLaunch]] = {}
    for one in every(file, kernel):
        alike.setdefault((one.block, one.types), []).append(one)
    found = [one for ones in alike.values() for one in _spread(ones)]
    others = {one.types: one for dtype in FLOATS if dtype != COMMON for one in every(file, kernel, dtype)}
    known = {one.types for one in found}
    return [*found, *(one for types, one in others.items() if types not in known)]


def _spread(ones: list[KernelLaunch]) -> list[KernelLaunch]:
    """As many as `EACH`, evenly from the first to the last."""
    last = len(ones) - 1
    return [ones[at] for at in sorted({round(last * part / (EACH - 1)) for part in range(EACH)})]


@cache
def _sized() -> list[KernelLaunch]:
    """With as many blocks as there are parts, and with one whose threads go on to further elements."""
    calls = [call for case in sanitized_calls.cases() for call in sanitized_calls.calls_of(case) if not call.shifted]
    found = []
    for most in (1, routine.MOST_BLOCKS):
        with patch.object(routine, "MOST_BLOCKS", most):
            found += [step for call in calls for step in call.routine.launches]  # type: ignore[union-attr]  # all are
    return found


def _is_small(launch: KernelLaunch) -> bool:
    elements = max((one.size for one in launch.arguments if isinstance(one, TensorSpec)), default=0)
    return threads(launch) <= MOST_THREADS and elements <= MOST_ELEMENTS * threads(launch)


def threads(launch: KernelLaunch) -> int:
    return prod(launch.grid) * prod(launch.block)


def work(launch: KernelLaunch) -> tuple[int, float]:
    """What launches are ordered by: threads, then how large the numbers are that it is given."""
    return threads(launch), sum(piece["value"] or 0 for piece in settings_of(launch)["arguments"])
