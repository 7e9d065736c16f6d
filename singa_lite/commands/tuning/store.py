"""Keeps what was measured in the user's file, beside what was measured there before."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from singa_lite.commands.tuning.measure import Timing
from singa_lite.common.atomic import write_anew
from singa_lite.kernels import tuning_file


def keep(file: Path, library: str, timings: Sequence[Timing]) -> tuple[int, str]:
    """Put the choices into the file, in the place of older ones of the same calls.

    How many calls it has now, and why what it had before is gone, "" if it is not. OSError if it cannot be written.
    """
    before, why = _stored_calls(file, library)
    calls = {**before, **{timing.call.name: _entry(timing) for timing in timings}}
    content = {tuning_file.NAME: tuning_file.VERSION, **tuning_file.origin(library), "calls": calls}
    os.makedirs(file.parent, exist_ok=True)
    write_anew(file, f"{json.dumps(content, indent=1)}\n")
    return len(calls), why


def _stored_calls(file: Path, library: str) -> tuple[dict[str, object], str]:
    """The calls that the file has, if it is one that would be read here."""
    try:
        content = tuning_file.read(file)
        tuning_file.check_origin(file, content, library)
        return dict(tuning_file.calls_of(file, content)), ""
    except FileNotFoundError:
        return {}, ""
    except ValueError as error:
        return {}, str(error)


def _entry(timing: Timing) -> dict[str, object]:
    return {
        "chosen": timing.chosen,
        "milliseconds": {name: round(seconds * 1e3, 4) for name, seconds in timing.seconds.items()},
        "scratch bytes": dict(timing.scratch),
    }
