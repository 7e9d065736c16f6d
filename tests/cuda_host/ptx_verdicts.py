"""What SentryWard says of one kernel's PTX, in whatever order its threads run, for a grid and values of its arguments.

What it does not know (branches by what tensors hold, mostly) it says. What it said is kept with what compilers made: a
question is asked once, until the kernel's PTX, the launch or SentryWard changes.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import build_cache
import nvrtc_compiler

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
    kept = build_cache.entry(f"{name}.ptx", [program, ARCHITECTURE], lambda made: made.write_bytes(ptx(program)))
    code = build_cache.contents(kept)
    if kernel.encode() not in ENTRY.findall(code):
        raise KeyError(f"wanted PTX of {kernel!r}, received that of {ENTRY.findall(code)}")
    return ENTRY.sub(lambda one: one[0] if one[1] == kernel.encode() else b"", code)


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
