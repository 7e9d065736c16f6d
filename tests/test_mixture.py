"""Copies, a fork, threads, failing callbacks and interrupts in one process: `mixture.py` ends well for each seed."""

from __future__ import annotations

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
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="this system has no fork and no such timer")


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 150))])
def test_a_run_ends_well(seed):
    done = start(SCRIPT, str(seed), **MEMORY[seed % len(MEMORY)])
    assert (done.returncode, done.stdout[-6:]) == (0, "whole\n"), f"{done.stdout}\n{done.stderr}"
