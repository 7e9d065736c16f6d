"""Damaged snapshots of every format, read in a process of its own: `mutations.py CASE FOLDER FIRST:LAST:STEP ...`.

It loads each into a net and prints one line of JSON a finding, and the number of each mutation before it is read, so
that a crash has a name. `format_cases` is the table of formats; `mutation` numbers what is done to their files.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import warnings
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from format_cases import CASES, Case
from nets import state_of
from singa_lite import SnapshotError
from singa_lite.snapshots import formats

#: Bytes that a damaged file may take beyond a whole one.
MOST_MEMORY = 64 << 20

#: What fields are set to, as numbers of 1, 2, 4 and 8 bytes, either way round.
NUMBERS = (
    0,
    1,
    2,
    7,
    8,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0xFFFFFFFF,
    1 << 40,
    (1 << 63) - 1,
    (1 << 64) - 1,
)

#: What texts in a file are set to.
TEXTS = (
    b"0",
    b"9",
    b"-1",
    b"1e9",
    b"null",
    b"[]",
    b"{}",
    b'"',
    b",",
    b"]",
    b"}",
    b"99999999999999999999",
    b"../",
    b"\0",
    b"<f8",
    b"F64",
    b"/",
)


def mutation(data: bytes, number: int) -> tuple[str, bytes]:
    """What is done, and the file after it. The first len(data) numbers are truncations, at every length."""
    if number < len(data):
        return f"truncated at {number}", data[:number]
    rng = random.Random(number)
    kind = rng.choice(KINDS)
    at = rng.randrange(len(data))
    return f"{kind.__name__} at {at}", kind(data, at, rng)


def flipped(data: bytes, at: int, rng: random.Random) -> bytes:
    """One bit is another."""
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def field_set(data: bytes, at: int, rng: random.Random) -> bytes:
    """A number of some bytes is another: a telling one, one near the file's size, or one more or less."""
    width, order = rng.choice((1, 2, 4, 8)), rng.choice(("little", "little", "big"))
    here = int.from_bytes(data[at : at + width], order)
    number = rng.choice((*NUMBERS, len(data), len(data) - at, len(data) + 1, here + 1, here - 1, here * 2, at))
    return data[:at] + (number % (1 << 8 * width)).to_bytes(width, order) + data[at + width :]


def text_set(data: bytes, at: int, rng: random.Random) -> bytes:
    """A text is put over what is there."""
    text = rng.choice(TEXTS)
    return data[:at] + text + data[at + len(text) :]


def text_put(data: bytes, at: int, rng: random.Random) -> bytes:
    """A text is put in."""
    return data[:at] + rng.choice(TEXTS) + data[at:]


def cut_out(data: bytes, at: int, rng: random.Random) -> bytes:
    """Some bytes are missing."""
    return data[:at] + data[at + rng.choice((1, 2, 8, 64, 500)) :]


def repeated(data: bytes, at: int, rng: random.Random) -> bytes:
    """Some bytes come twice."""
    end = at + rng.choice((1, 2, 8, 64, 500))
    return data[:end] + data[at:]


def copied_over(data: bytes, at: int, rng: random.Random) -> bytes:
    """Bytes of one place are put over those of another."""
    there, count = rng.randrange(len(data)), rng.choice((4, 8, 24, 64, 256))
    part = data[there : there + count]
    return data[:at] + part + data[at + len(part) :]


def swapped(data: bytes, at: int, rng: random.Random) -> bytes:
    """Two places have each other's bytes."""
    there, count = rng.randrange(len(data)), rng.choice((1, 4, 8, 64))
    first, second = sorted((at, there))
    count = min(count, second - first, len(data) - second)
    a, b = data[first : first + count], data[second : second + count]
    return data[:first] + b + data[first + count : second] + a + data[second + count :]


def zeroed(data: bytes, at: int, rng: random.Random) -> bytes:
    """A stretch of zeros, as a disk leaves them."""
    count = min(rng.choice((1, 8, 64, 512)), len(data) - at)
    return data[:at] + bytes(count) + data[at + count :]


KINDS = (flipped, flipped, field_set, field_set, text_set, text_put, cut_out, repeated, copied_over, swapped, zeroed)


def findings(case: Case, numbers: Iterable[int], folder: Path) -> Iterator[str]:
    """What is wrong, for each mutation where something is."""
    whole, damaged = folder / f"whole{case.suffix}", folder / f"damaged{case.suffix}"
    case.write(whole)
    data = whole.read_bytes()
    net, other = case.make(3), case.make(8)
    formats.load(net, whole, **case.options)
    wanted, before = state_of(net), state_of(other)
    opened = _watched_files()
    _limit_memory()
    for number in numbers:
        what, changed = mutation(data, number)
        damaged.write_bytes(changed)
        _say({"number": number, "what": what})
        opened.clear()
        try:
            formats.load(other, damaged, **case.options)
        except SnapshotError as error:
            if str(damaged) not in str(error):
                yield f"{number}, {what}: an error that does not name the file: {error}"
            if state_of(other) != before:
                yield f"{number}, {what}: refused, but the net has changed: {error}"
        except BaseException as error:  # a MemoryError for too much memory
            yield f"{number}, {what}: {error!r}"
        else:
            if case.verified and state_of(other) != wanted:
                yield f"{number}, {what}: wrong data"
            other = case.make(8)
        strange = opened - {str(damaged)}
        if strange:
            yield f"{number}, {what}: opened {sorted(strange)}"


def _watched_files() -> set[str]:
    """Names of the files that Python opens from now on."""
    opened: set[str] = set()

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and not isinstance(arguments[0], int) and "w" not in str(arguments[1]):
            opened.add(os.fsdecode(arguments[0]))

    sys.addaudithook(note)
    return opened


def _limit_memory() -> None:
    """More than so much beyond what is in use raises a MemoryError, touched or not; where the system can."""
    status = Path("/proc/self/statm")
    if status.exists():
        used = int(status.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def main(name: str, folder: str, *ranges: str) -> None:
    """Read the mutations of these numbers, and say what was found."""
    numbers = chain.from_iterable(range(*map(int, text.split(":"))) for text in ranges)
    warnings.simplefilter("error")
    for found in findings(CASES[name], numbers, Path(folder)):
        _say({"found": found})
    _say({"done": True})


if __name__ == "__main__":
    main(*sys.argv[1:])
