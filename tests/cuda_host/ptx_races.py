"""A static check of the kernels' PTX for races and for barriers that not all threads reach, by SentryWard.

    python tests/cuda_host/ptx_races.py [FILE.cu | FILE:LINE ...]

It goes through all orders in which threads may run, for one grid and the values of its arguments; what it does not know
(branches by what tensors hold, mostly) it says. Prints what it says of each kernel over calls of the contract, or of
the kernels that have the barrier at a line without that barrier. Exit status 1 if it says what it should not.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

import barriers
import build_cache
import nvrtc_compiler
import sanitized_calls
from host_loader import without_barrier
from singa_lite.kernels.cuda_kernels import routine, source
from singa_lite.kernels.cuda_kernels.routine import KernelLaunch
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.routine import Temporary

#: What it was made for.
ARCHITECTURE = "compute_100"
#: Addresses by which kernels choose between packs and single elements: it knows none.
ADDRESS = re.compile(r"reinterpret_cast<uint64>\([^()]*\)")
#: A function that is named before it is written out, which it takes for two functions of one name.
DECLARED = re.compile(rb"^\.func [^;{]*;$", re.MULTILINE)
SCHEMA = "spverify.kernel-input/v1"
#: Seconds for one kernel, and threads of a grid, with which the work goes up.
TIMEOUT, MOST_THREADS = 120, 2048
#: What it says of a kernel without a race, of one with, and of one whose threads wait at different barriers.
RACE_FREE, RACE, NOT_SYNCHRONIZED = "race_free", "potential_race", "not_wellsynced"
#: Why it could not tell: no answer in time, or arithmetic on what tensors hold that decides which elements are touched.
UNTOLD = ("invocation_time_budget_exceeded", "control_predicate_not_static")
#: Ours, of a kernel that was followed along one side of each branch that tensors decide.
ONE_SIDED = f"{RACE_FREE}, branches by values along one side"
_SIDES = {"representative_branches": True, "bounded_computation_loops": True}


class Verdict(NamedTuple):
    """result: its word; why: it could not tell."""

    result: str
    why: str = ""


def missing() -> str:
    """What is wanted and not found; "" if all is there."""
    return nvrtc_compiler.missing() or ("" if find_spec("sentryward") else "SentryWard, pip install sentryward")


def verdict(program: str, settings: dict[str, Any]) -> Verdict:
    """Of a kernel of a program, see `settings_of`."""
    from sentryward import verify

    code = hashlib.sha256(program.encode()).hexdigest()
    kept = build_cache.entry(f"{code[:12]}.ptx", [program, ARCHITECTURE], lambda made: made.write_bytes(ptx(program)))
    with tempfile.TemporaryDirectory() as folder:
        kernel, given = Path(folder) / "kernel.ptx", Path(folder) / "input.json"
        kernel.write_bytes(build_cache.contents(kept))
        given.write_text(json.dumps(settings))
        told = verify(kernel, input=given, timeout_seconds=TIMEOUT)
    return Verdict(told["result"], next((str(one.get("code")) for one in told.get("diagnostics", ())), ""))


def of_launch(launch: KernelLaunch, aligned: bool, without: barriers.Place | None = None) -> Verdict:
    """Of a launch of ours. aligned: all of its tensors; without: (file, line) of a barrier that is left out."""
    text = source.program(launch.file, dict(launch.types))
    if without is not None:
        text = without_barrier(text, *without)
    text = ADDRESS.sub(f"uint64({int(not aligned)})", text)
    settings = settings_of(launch)
    found = verdict(text, settings)
    if found.why != "control_predicate_not_static":
        return found
    sides = verdict(text, {**settings, "assumptions": _SIDES, "data_branch_loop_iterations": 2})
    return Verdict(ONE_SIDED) if sides.result == RACE_FREE else sides


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
    value = np.asarray(argument)
    for offset, dtype in _fields(value.dtype):
        piece = np.frombuffer(value.tobytes(), dtype, 1, offset)[0]
        kind = "f" if dtype.kind == "f" else "u"
        number = float(piece) if kind == "f" else int(piece) % (1 << 8 * dtype.itemsize)
        place = {"offset": offset} if value.dtype.fields else {}
        yield {"parameter": name, "type": f"{kind}{8 * dtype.itemsize}", "value": number, **place}


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


def grids(file: str, most: int = routine.MOST_BLOCKS) -> list[KernelLaunch]:
    """Launches of a source's kernels by calls of the contract that have whole warps: with each shape of blocks the one
    that is given the smallest numbers, and the one that is given the largest. most: blocks; of one block each thread
    goes on to further elements.
    """
    found: dict[tuple[str, tuple[int, ...]], list[KernelLaunch]] = {}
    for launch in sorted(_launches(file, most), key=_work):
        if prod(launch.block) % 32 == 0 and _threads(launch) <= MOST_THREADS:
            found.setdefault((launch.kernel, launch.block), []).append(launch)
    return [one for ones in found.values() for one in (*ones[:1], *ones[1:][-1:])]


@cache
def _launches(file: str, most: int) -> list[KernelLaunch]:
    """The different ones of a source."""
    calls = [call for case in sanitized_calls.cases() for call in sanitized_calls.calls_of(case) if not call.shifted]
    with patch.object(routine, "MOST_BLOCKS", most):
        every = [step for call in calls for step in call.routine.launches if step.file == file]
    return list({repr((step.kernel, settings_of(step))): step for step in every}.values())


def _threads(launch: KernelLaunch) -> int:
    return prod(launch.grid) * prod(launch.block)


def _work(launch: KernelLaunch) -> tuple[int, float]:
    """What it is ordered by: threads, then how large the numbers are that it is given."""
    return _threads(launch), sum(piece["value"] or 0 for piece in settings_of(launch)["arguments"])


def of_kernel(file: str, kernel: str) -> Verdict | None:
    """Of its smallest launch, over aligned tensors; None for a kernel of one thread, which races with nobody."""
    ones = sorted((one for one in grids(file) if one.kernel == kernel), key=_work)
    return of_launch(ones[0], aligned=True) if ones else None


def races_without(place: barriers.Place) -> Iterator[tuple[KernelLaunch, Verdict]]:
    """What it says of the launches that pass a barrier which is left out, in the order of their threads."""
    files = sorted(barriers.sources_with(place))
    for launch in sorted((one for file in files for one in grids(file, most=1)), key=_work):
        yield launch, of_launch(launch, aligned=True, without=place)


def is_missed(place: barriers.Place) -> str:
    """The first kernel in which it finds that this barrier is missing; "" if in none."""
    found = (launch.kernel for launch, said in races_without(place) if said.result == RACE)
    return next(found, "")


def ptx(program: str) -> bytes:
    """What NVRTC makes of a program, less what SentryWard does not read."""
    from cupy.cuda import nvrtc

    made = nvrtc.createProgram(program, "kernel.cu", [], [])
    includes = [f"-I{folder}" for folder in nvrtc_compiler.INCLUDES if folder.exists()]
    options = ["--std=c++17", "-default-device", "-ftz=true", f"-arch={ARCHITECTURE}", *includes]
    try:
        nvrtc.compileProgram(made, options)
        text = nvrtc.getPTX(made)
    except nvrtc.NVRTCError as error:
        raise RuntimeError(nvrtc.getProgramLog(made)[:4000]) from error
    finally:
        nvrtc.destroyProgram(made)
    return DECLARED.sub(b"", (text if isinstance(text, bytes) else text.encode()).rstrip(b"\0"))


def main(asked: list[str]) -> int:
    """Print the tables."""
    wrong = 0
    for file in [name for name in asked if name.endswith(".cu")] or ([] if asked else source.files()):
        for kernel in source.kernels(file):
            said = of_kernel(file, kernel)
            wrong += said is not None and said.result in (RACE, NOT_SYNCHRONIZED)
            print(f"| {file} | {kernel} | {' '.join(said or ('one thread',)).strip()} |", flush=True)
    for place in [name.split(":") for name in asked if ":" in name] or ([] if asked else barriers.barriers()):
        kernel = is_missed((place[0], int(place[1])))
        wrong += not kernel
        print(f"| {place[0]}:{place[1]} | {kernel or 'none'} |", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
