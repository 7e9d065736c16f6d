"""Barriers of the CUDA sources: without one of them the stand-in gives other results, so it shows where one is missing.

SINGA_LITE_TEST_BARRIERS=all leaves out each of them in turn (three minutes), else those of `block_reduce` alone.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

import barriers
import host_loader
from singa_lite.kernels.cuda_kernels import source

MISSING = host_loader.missing() or ("" if find_spec("cupy") else "CuPy, pip install cupy-cuda13x")

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"CUDA kernels cannot run on the host without {MISSING}")

ALL = [f"{file}:{line}" for file, line in barriers.barriers()]
#: All of them take minutes.
ASKED_FOR_ALL = os.environ.get("SINGA_LITE_TEST_BARRIERS") == "all"
#: Calls that reduce in blocks of several warps, several times one after the other; of all barriers, all calls.
CALLS = () if ASKED_FOR_ALL else ("softmax:long", "softmax_cross_entropy:long rows")
CHOSEN = ALL if ASKED_FOR_ALL else [name for name in ALL if name.startswith("reduce.cuh:")]


def place_of(name: str) -> barriers.Place:
    file, line = name.split(":")
    return file, int(line)


@pytest.mark.parametrize("name", CHOSEN)
def test_without_a_barrier_some_call_gives_other_bits(name):
    missed = barriers.missed_by(place_of(name), CALLS) is not None
    assert missed != (name in barriers.UNMISSED), barriers.UNMISSED.get(name, "no call shows that it is wanted")


def test_there_are_barriers_and_all_that_go_unmissed_exist():
    assert len([name for name in ALL if name.startswith("reduce.cuh:")]) == 2
    assert barriers.UNMISSED.keys() <= set(ALL)


def test_one_barrier_is_left_out_where_it_is_and_nothing_elsewhere():
    file, line = place_of(next(name for name in ALL if name.startswith("reduce.cuh:")))
    text = source.text("softmax.cu")
    broken = host_loader.without_barrier(text, file, line)
    assert broken.count(host_loader.BLOCK_BARRIER) == text.count(host_loader.BLOCK_BARRIER) - 1
    assert len(broken.splitlines()) == len(text.splitlines())
    assert host_loader.without_barrier(text, file, line - 1) == text
    assert host_loader.without_barrier(text, "tile.cuh", line) == text
