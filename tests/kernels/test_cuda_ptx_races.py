"""A static check of PTX for races: it finds planted ones, and none in our kernels, in whatever order threads run.

SentryWard is asked about one kernel's PTX, for a grid and values of its arguments. What it does not know (branches by
what tensors hold, mostly) it says. What it said is kept with what compilers made: a question is asked once, until the
kernel's PTX, the launch or SentryWard changes. Launches are those of the contract.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest

import build_cache
import launches
import nvrtc_compiler
import sanitized_calls
from singa_lite.kernels.cuda_kernels import routine, source
from singa_lite.kernels.cuda_kernels.routine import KernelLaunch, Table
from singa_lite.kernels.cuda_kernels.source import FLOATS
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.routine import Temporary

#: What it was made for.
ARCHITECTURE = "compute_100"
#: A function that is named before it is written out, which it takes for two functions of one name.
DECLARED = re.compile(rb"^\.func [^;{]*;$", re.MULTILINE)
#: A kernel, from its name on to the brace that ends it.
ENTRY = re.compile(rb"^\.visible \.entry (\w+)\(.*?^\}$", re.MULTILINE | re.DOTALL)
SCHEMA = "spverify.kernel-input/v1"
#: Seconds for one question. A question takes 0.1 to 20 of them on a core of its own.
TIMEOUT = 300
#: What it says of a kernel without a race, of one with, and of one whose threads wait at different barriers.
RACE_FREE, RACE, NOT_SYNCHRONIZED = "race_free", "potential_race", "not_wellsynced"
#: Ours, of a kernel that was followed along one side of each branch that tensors decide.
ONE_SIDED = f"{RACE_FREE}, branches by values along one side"
#: What comes of a question that took too long.
LATE = "timeout"
PROVED, FOUND = (RACE_FREE, ONE_SIDED), (RACE, NOT_SYNCHRONIZED)
#: What a branch that tensors decide makes it give up with, and what makes it go on along one side.
_BY_VALUE = "control_predicate_not_static"
_SIDES = {"assumptions": {"representative_branches": True, "bounded_computation_loops": True}}


class Verdict(NamedTuple):
    """result: its word; why: the code of its reason, "" of what is proved."""

    result: str
    why: str = ""

    @property
    def is_undecided(self) -> bool:
        """Neither proved nor found: no support, no time, or a question that it does not understand."""
        return self.result not in PROVED + FOUND


def missing() -> str:
    """What is wanted and not found; "" if all is there."""
    return nvrtc_compiler.missing() or ("" if find_spec("sentryward") else "SentryWard, pip install sentryward")


def verdict(code: bytes, settings: dict[str, Any]) -> Verdict:
    """Of the PTX of a kernel, see `of_entry`. settings: kernel, grid and arguments, as its schema has them."""
    found = _told(code, json.dumps(settings))
    if found.why != _BY_VALUE:
        return found
    sides = _told(code, json.dumps({**settings, **_SIDES, "data_branch_loop_iterations": 2}))
    return Verdict(ONE_SIDED) if sides.result == RACE_FREE else sides


def _told(code: bytes, settings: str) -> Verdict:
    """What is kept of an equal question, else its answer. That there was no time for one is not kept."""
    late: list[Verdict] = []

    def ask(made: Path) -> None:
        found = _asked(code, settings)
        if found.result == LATE:
            late.append(found)
            raise TimeoutError
        made.write_text(json.dumps(found))

    try:
        made_of = [code.decode(), settings, version("sentryward")]
        return Verdict(*json.loads(build_cache.contents(build_cache.entry("verdict.json", made_of, ask))))
    except TimeoutError:
        if not late:
            raise
        return late[0]


def _asked(code: bytes, settings: str) -> Verdict:
    from sentryward import verify

    with tempfile.TemporaryDirectory() as folder:
        kernel, given = Path(folder) / "kernel.ptx", Path(folder) / "input.json"
        kernel.write_bytes(code)
        given.write_text(settings)
        told = verify(kernel, input=given, timeout_seconds=TIMEOUT)
    return Verdict(told["result"], next((str(one.get("code")) for one in told.get("diagnostics", ())), ""))


@cache
def of_entry(program: str, kernel: str) -> bytes:
    """The PTX of a program less its other kernels: it changes where this kernel does. KeyError if it has none such."""
    name = hashlib.sha256(program.encode()).hexdigest()[:12]
    kept = build_cache.entry(f"{name}.ptx", [program, ARCHITECTURE], lambda made: made.write_bytes(_ptx(program)))
    code = build_cache.contents(kept)
    if kernel.encode() not in ENTRY.findall(code):
        raise KeyError(f"wanted PTX of {kernel!r}, received that of {ENTRY.findall(code)}")
    return ENTRY.sub(lambda one: one[0] if one[1] == kernel.encode() else b"", code)


def _ptx(program: str) -> bytes:
    """Less what SentryWard does not read."""
    return DECLARED.sub(b"", nvrtc_compiler.ptx(program, ARCHITECTURE))


# ---- launches in its words

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


# ---- kernels of ours

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"wants {missing()}")

KERNELS = [(file, kernel) for file in source.files() for kernel in source.kernels(file)]
#: Addresses by which kernels choose between packs and single elements: it knows none.
ADDRESS = re.compile(r"reinterpret_cast<uint64>\([^()]*\)")
#: What a grid of one thread cannot do: race.
ALONE = Verdict(RACE_FREE, "one thread")
#: How often it says what of launches.
Said = Counter[Verdict]
#: Kernels of which it cannot tell, {name: its reason}: an index or an address that a tensor holds decides which
#: elements are touched, a search in a tensor or a loop to a position, or threads that fill no warp.
_BY_INDEX, _BY_TABLE = "allocation_alias_relation_unknown", "dynamic_address_overlap_unresolved"
_SEARCH = "loop_control_not_classified"
#: What it says, too, of a launch of such a kernel where it gave up before it came to the reason.
_INCONCLUSIVE = "address_solver_inconclusive"
UNDECIDED = {
    "in_top_k_of_rows": _BY_INDEX,
    "hits_at_k": _BY_INDEX,
    "sort_tiles": _BY_INDEX,
    "embedding_gradient": _BY_INDEX,
    "embedding_gradient_add": _BY_INDEX,
    "sgd_rows": _BY_INDEX,
    "merge_runs": _SEARCH,
    "find_rows": _SEARCH,
    "cached_attention": _SEARCH,
    "write_at": _BY_TABLE,
    "begin_updates": "partial_warp_launch",
    "sgd_plain_of_several": _BY_TABLE,
    "sgd_momentum_of_several": _BY_TABLE,
    "rms_prop_of_several": _BY_TABLE,
    "ada_grad_of_several": _BY_TABLE,
    "lion_of_several": _BY_TABLE,
    "adam_of_several": _BY_TABLE,
    "ams_grad_of_several": _BY_TABLE,
}
#: Kernels of which it cannot tell in some launches, and proves others: normal numbers of float64 come of a table of
#: coefficients, and it knows no strides below 0.
PARTLY = {"cross_entropy_of_ids": _BY_INDEX, "normal": _BY_INDEX, "flip": "integer_range"}


def _said_of(launch: KernelLaunch) -> Iterator[Verdict]:
    """Of it over tensors that are all aligned, then over such that are not."""
    for odd in (0, 1):
        program = ADDRESS.sub(f"uint64({odd})", source.program(launch.file, dict(launch.types)))
        code = of_entry(program, launch.kernel)
        alone = threads(launch) == 1
        yield ALONE if alone else verdict(code, settings_of(launch))


def complaint(kernel: str, said: Said) -> str:
    """What is wrong with what it said of a kernel; "" if nothing is."""
    if not said:
        return "no launch of the contract is small enough to ask about"
    if any(one.result in FOUND for one in said):
        return "a race, or a barrier that some threads do not reach"
    reasons = {one.why for one in said if one.is_undecided}
    listed = UNDECIDED.get(kernel) or PARTLY.get(kernel)
    if listed:
        reasons.discard(_INCONCLUSIVE)
    is_proved = any(not one.is_undecided for one in said)
    if reasons != ({listed} if listed else set()) or is_proved == (kernel in UNDECIDED):
        return f"undecided otherwise than listed, {listed or 'which it is not'}"
    return ""


# ---- the tests

KERNEL = """
extern "C" __global__ void planted(const float* x, float* y, int n) {{
    __shared__ float held[64];
    const int i = threadIdx.x, block = blockIdx.x * 64;
    {body}
}}
"""
#: What one block of 64 threads does, or two blocks, and what is to be said of it.
PLANTED = {
    "right": ("held[i] = x[i]; __syncthreads(); y[i] = held[63 - i];", 1, RACE_FREE),
    "no barrier": ("held[i] = x[i]; y[i] = held[63 - i];", 1, RACE),
    "another warp's": ("held[i] = x[i]; __syncwarp(); y[i] = held[i ^ 32];", 1, RACE),
    "two blocks in one place": ("y[i] = x[block + i];", 2, RACE),
    "by a value": ("held[i] = x[i]; __syncthreads(); if (x[i] > 0) y[i] = held[63 - i];", 1, ONE_SIDED),
    "no barrier, by a value": ("held[i] = x[i]; if (x[i] > 0) y[i] = held[63 - i];", 1, RACE),
    "a barrier for some": ("held[i] = x[i]; if (i < 40) __syncthreads(); y[i] = held[63 - i];", 1, NOT_SYNCHRONIZED),
}
QUICK = ("right", "no barrier")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.nightly) for name in PLANTED]
)
def test_what_is_planted_is_found(name):
    body, blocks, wanted = PLANTED[name]
    count = {"parameter": "planted_param_2", "type": "u32", "value": 128}
    launch = {"grid_dim": [blocks, 1, 1], "block_dim": [64, 1, 1]}
    settings = {"schema": SCHEMA, "entry": "planted", "launch": launch, "arguments": [count]}
    code = of_entry(KERNEL.format(body=body), "planted")
    assert verdict(code, settings).result == wanted


@pytest.mark.nightly
@pytest.mark.parametrize(("file", "kernel"), KERNELS)
def test_no_kernel_of_ours_has_a_race(file, kernel):
    said = Counter(said for one in chosen(file, kernel) for said in _said_of(one))
    assert complaint(kernel, said) == "", said
