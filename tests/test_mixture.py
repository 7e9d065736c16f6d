"""Copies, a fork, threads, failing callbacks and interrupts in one process end well, run after run.

pytest -m nightly tests/test_mixture.py   # 500 runs, an hour and a half; SINGA_LITE_TEST_MIXTURES: how many
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from in_process import start

SCRIPT = str(Path(__file__).with_name("mixture.py"))
#: What the C library and Python do about memory: as ever, and in ways in which what is freed and used again shows.
MEMORY: tuple[dict[str, object], ...] = (
    {},
    {"PYTHONMALLOC": "malloc"},
    {"MALLOC_PERTURB_": 165},
    {"MALLOC_PERTURB_": 90, "PYTHONMALLOC": "malloc"},
    {"MALLOC_ARENA_MAX": 1},
)
RUNS = int(os.environ.get("SINGA_LITE_TEST_MIXTURES", "500"))
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="this system has no fork and no such timer")


def failed(number: int) -> str:
    """What a run says that does not end well; "" for one that does."""
    done = start(SCRIPT, str(number), **MEMORY[number % len(MEMORY)])
    if done.returncode == 0 and done.stdout.endswith("whole\n"):
        return ""
    return f"seed {number}, {MEMORY[number % len(MEMORY)]}: status {done.returncode}\n{done.stdout}\n{done.stderr}"


def test_a_run_ends_well():
    assert not failed(1)


@pytest.mark.nightly
def test_so_do_hundreds():
    found = [said for said in map(failed, range(RUNS)) if said]
    assert not found, f"{len(found)} of {RUNS}: " + "\n".join(found)
