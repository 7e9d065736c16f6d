"""The file of measured choices, which `python -m singa_lite tune` writes, and kernel sets read once a process.

JSON that people may read and edit: the machine and the library that it was made with, and of each call the variant that
was chosen and what each one took. A file of another machine or library, or one that is damaged, is not used, with one
warning that says why.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from singa_lite.common import machine
from singa_lite.common.notice import warn

#: The path of the file, or OFF: none is read.
VARIABLE = "SINGA_LITE_TUNING"
OFF = "off"
#: Of the format, the first entry of each file.
NAME, VERSION = "singa_lite tuning", 1
#: A larger file is not one of ours.
MOST_BYTES = 1 << 24

#: Of a file, by entry.
Content = Mapping[str, object]


class Tuning(NamedTuple):
    """What was found. choices: {call: variant}, none where the file is not used; problem: why it is not.

    "" if it is used, or if there simply is none.
    """

    choices: Mapping[str, str]
    path: Path | None
    problem: str = ""

    @property
    def told(self) -> str:
        """In a line."""
        if self.problem:
            return f"not used, the built-in rule decides: {self.problem}"
        if self.choices:
            return f"{len(self.choices)} calls by {self.path}"
        why = f"no file {self.path}" if self.path else f"{VARIABLE}={OFF}, or no home"
        return f"the built-in rule, {why}"


def path() -> Path | None:
    """Of the file: SINGA_LITE_TUNING, else in the user's cache (XDG_CACHE_HOME, or ~/.cache). None: none is wanted."""
    given = os.environ.get(VARIABLE, "")
    if given:
        return None if given == OFF else Path(given)
    cache_home = os.environ.get("XDG_CACHE_HOME", "")
    try:  # the specification has relative paths ignored
        folder = Path(cache_home) if os.path.isabs(cache_home) else Path.home() / ".cache"
    except RuntimeError:  # no home
        return None
    return folder / "singa_lite" / "tuning.json"


def tuning_for(library: str) -> Tuning:
    """The choices of the user's file for this machine and this library; read once, with one warning if it is no use."""
    return _load_with_warning(library, path())


@cache
def _load_with_warning(library: str, file: Path | None) -> Tuning:
    tuning = read_tuning(library, file)
    if tuning.problem:
        warn(f"the tuning of kernels is not used, the built-in rule decides: {tuning.problem}")
    return tuning


def read_tuning(library: str, file: Path | None) -> Tuning:
    """As `tuning_for`, of any file and without a warning."""
    if file is None:
        return Tuning({}, None)
    try:
        content = read(file)
        check_origin(file, content, library)
        return Tuning({call: str(entry["chosen"]) for call, entry in calls_of(file, content).items()}, file)
    except FileNotFoundError:
        wanted = os.environ.get(VARIABLE, "")
        return Tuning({}, file, f"{VARIABLE}: no file {file}" if wanted else "")
    except (OSError, ValueError) as error:
        return Tuning({}, file, str(error))


def read(file: Path) -> Content:
    """What stands in the file. OSError where it cannot be read, ValueError for anything but such a file."""
    with open(file, "rb") as opened:
        text = opened.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise ValueError(f"{file}: wanted a tuning file, received more than {MOST_BYTES} bytes")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: wanted a tuning file, received no JSON: {error}") from None
    version = content.get(NAME) if isinstance(content, dict) else None
    if version != VERSION or isinstance(version, bool):
        shown = "something else" if version is None else f"version {version!r:.40}"
        raise ValueError(f"{file}: wanted a tuning file of version {VERSION}, received {shown}")
    calls_of(file, content)
    return dict(content)


def calls_of(file: Path, content: Content) -> dict[str, Mapping[str, object]]:
    """{call: its entry}. ValueError for an entry that names no variant."""
    calls = content.get("calls")
    if not isinstance(calls, dict):
        raise ValueError(f"{file}: wanted an object of calls, received {calls!r:.40}")
    for call, entry in calls.items():
        if not isinstance(entry, dict) or not isinstance(entry.get("chosen"), str):
            raise ValueError(f"{file}: wanted the chosen variant of {call!r:.200}, received {entry!r:.40}")
    return calls


def origin(library: str) -> dict[str, str]:
    """What a file says of where it was made."""
    sets = " ".join(machine.instruction_sets())
    return {"processor": machine.processor(), "instruction sets": sets, "library": library}


def check_origin(file: Path, content: Content, library: str) -> None:
    """ValueError for a file that was made elsewhere, or with another library."""
    for name, here in origin(library).items():
        made = content.get(name)
        if made != here:
            raise ValueError(
                f"{file}: wanted one that was made with {name} {here!r}, received {made!r:.200}; "
                "python -m singa_lite tune makes a new one"
            )
