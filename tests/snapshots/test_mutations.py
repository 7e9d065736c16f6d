"""Damaged files of every format are refused in our words or read as they were: never wrong data, never a crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import singa_lite
from format_cases import CASES
from mutations import KINDS, mutation

#: Mutations of a format beyond truncations. Where it is set, those are at every length, else at some.
COUNT = int(os.environ.get("SINGA_LITE_TEST_MUTATIONS", "300"))
TRUNCATIONS = None if "SINGA_LITE_TEST_MUTATIONS" in os.environ else 300

#: One process reads so many, since a crash ends it.
BATCH = 2000

HERE = Path(__file__).parent


def run(name: str, numbers: Sequence[range], folder: Path) -> list[str]:
    """What was found for these mutations, a crash too, by a process of its own."""
    below = os.pathsep.join(map(str, (Path(singa_lite.__file__).parents[1], HERE, HERE.parent)))
    result = subprocess.run(
        [
            sys.executable,
            str(HERE / "mutations.py"),
            name,
            str(folder),
            *(f"{some.start}:{some.stop}:{some.step}" for some in numbers),
        ],
        env={**os.environ, "PYTHONPATH": below, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    found = [line["found"] for line in lines if "found" in line]
    if not lines or "done" not in lines[-1]:
        last = next((line for line in reversed(lines) if "what" in line), "before the first")
        found.append(f"ended with {result.returncode} at {last}: {result.stderr[-2000:]}")
    return found


@pytest.mark.parametrize("name", CASES)
def test_damaged_files(tmp_path, name):
    whole = tmp_path / f"whole{CASES[name].suffix}"
    CASES[name].write(whole)
    size = whole.stat().st_size
    truncations = range(0, size, max(1, size // (TRUNCATIONS or size)))
    both = truncations, range(size, size + COUNT)
    pieces = [numbers[start : start + BATCH] for numbers in both for start in range(0, len(numbers), BATCH)]
    together = [pieces] if sum(map(len, both)) <= BATCH else [[piece] for piece in pieces]
    found = [line for some in together for line in run(name, some, tmp_path)]
    assert not found, "\n".join(found[:20])


def test_mutations_are_many_and_always_the_same():
    data = bytes(range(256)) * 4
    made = [mutation(data, number) for number in range(len(data) + 400)]
    assert made == [mutation(data, number) for number in range(len(data) + 400)]
    assert [changed for _, changed in made[: len(data)]] == [data[:length] for length in range(len(data))]
    others = made[len(data) :]
    assert {what.split()[0] for what, _ in others} == {kind.__name__ for kind in KINDS}
    assert sum(changed == data for _, changed in others) < 60


def test_a_crash_is_named(tmp_path):
    (line,) = run("no such format", [range(2)], tmp_path)
    assert "KeyError" in line
