"""Barriers of the CUDA sources: without one of them the stand-in gives other results, so a missing one shows."""

from __future__ import annotations

import pytest

import barriers
import host_loader
from singa_lite.kernels.cuda_kernels import source

MISSING = host_loader.missing_to_run()
PLACES = barriers.barriers()


@pytest.mark.nightly
@pytest.mark.skipif(bool(MISSING), reason=f"CUDA kernels cannot run on the host without {MISSING}")
@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place[0]}:{place[1]}")
def test_without_a_barrier_some_call_gives_other_bits(place):
    why = barriers.UNMISSED.get(f"{place[0]}:{place[1]}", "")
    assert (barriers.missed_by(place) is None) == bool(why), why or "no call shows that it is wanted"


def test_one_barrier_is_left_out_where_it_is_and_nothing_elsewhere():
    file, line = next(place for place in PLACES if place[0] == "reduce.cuh")
    text = source.text("softmax.cu")
    broken = host_loader.without_barrier(text, file, line)
    assert broken.count(host_loader.BLOCK_BARRIER) == text.count(host_loader.BLOCK_BARRIER) - 1
    assert host_loader.without_barrier(text, file, line - 1) == text
