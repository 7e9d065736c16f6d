"""A static check of PTX for races: it finds planted ones, and none in our kernels, in whatever order threads run.

SINGA_LITE_TEST_PTX=all looks at every kernel, and at the kernels less each of their barriers (half an hour, seconds
where answers are kept), else at a few.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

import barriers
import build_cache
import ptx_races
import ptx_verdicts
from ptx_verdicts import LATE, NOT_SYNCHRONIZED, ONE_SIDED, RACE, RACE_FREE, SCHEMA, Verdict
from singa_lite.kernels.cuda_kernels import source

pytestmark = pytest.mark.skipif(bool(ptx_verdicts.missing()), reason=f"wants {ptx_verdicts.missing()}")

ASKED_FOR_ALL = os.environ.get("SINGA_LITE_TEST_PTX") == "all"
KERNELS = [(file, kernel) for file in source.files() for kernel in source.kernels(file)]
BARRIERS = [f"{file}:{line}" for file, line in barriers.barriers()]
#: Kernels and a barrier that are looked at in any case.
FEW = (("rms_norm.cu", "rms_norm_gradient"), ("update.cu", "sgd_plain"))
ONE_BARRIER = ("rms_norm.cu:47",)

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
    "one warp of each": ("held[i] = x[i]; __syncwarp(); y[i] = held[i ^ 1];", 1, RACE_FREE),
    "another warp's": ("held[i] = x[i]; __syncwarp(); y[i] = held[i ^ 32];", 1, RACE),
    "a wrong index": ("held[i / 2] = x[i]; __syncthreads(); y[i] = held[i / 2];", 1, RACE),
    "a turn too early": (
        "for (int k = 0; k < n; k += 64) { held[i] = x[k + i]; __syncthreads(); y[k + i] = held[63 - i]; }",
        1,
        RACE,
    ),
    "two blocks": ("y[block + i] = x[block + i];", 2, RACE_FREE),
    "two blocks in one place": ("y[i] = x[block + i];", 2, RACE),
    "by a value": ("held[i] = x[i]; __syncthreads(); if (x[i] > 0) y[i] = held[63 - i];", 1, ONE_SIDED),
    "no barrier, by a value": ("held[i] = x[i]; if (x[i] > 0) y[i] = held[63 - i];", 1, RACE),
    "a barrier for some": ("held[i] = x[i]; if (i < 40) __syncthreads(); y[i] = held[63 - i];", 1, NOT_SYNCHRONIZED),
}


def said_of(name):
    body, blocks, _ = PLANTED[name]
    count = {"parameter": "planted_param_2", "type": "u32", "value": 128}
    launch = {"grid_dim": [blocks, 1, 1], "block_dim": [64, 1, 1]}
    settings = {"schema": SCHEMA, "entry": "planted", "launch": launch, "arguments": [count]}
    return ptx_verdicts.verdict(ptx_verdicts.of_entry(KERNEL.format(body=body), "planted"), settings)


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name):
    assert said_of(name).result == PLANTED[name][2]


def test_what_it_said_is_kept_and_that_it_had_no_time_is_not(tmp_path, monkeypatch):
    monkeypatch.setenv(build_cache.VARIABLE, str(tmp_path))
    with monkeypatch.context() as brief:
        brief.setattr(ptx_verdicts, "TIMEOUT", 1e-4)
        late = said_of("two blocks")
    assert late.is_undecided
    assert late.result == LATE
    assert said_of("two blocks").result == RACE_FREE
    monkeypatch.setattr(ptx_verdicts, "_asked", None)
    assert said_of("two blocks").result == RACE_FREE
    with pytest.raises(TypeError):  # another question
        said_of("right")


def test_a_kernel_is_cut_out_of_a_program():
    one, other = (KERNEL.format(body=f"y[i] = {n};").replace("planted", f"number_{n}") for n in (1, 2))
    both = ptx_verdicts.of_entry(one + other, "number_2")
    assert ptx_verdicts.ENTRY.findall(both) == [b"number_2"]
    assert both == ptx_verdicts.of_entry(one.replace("= 1;", "= 3;") + other, "number_2")
    assert both != ptx_verdicts.of_entry(one + other.replace("= 2;", "= 3;"), "number_2")
    with pytest.raises(KeyError, match="number_3"):
        ptx_verdicts.of_entry(one + other, "number_3")


@pytest.mark.parametrize(("file", "kernel"), KERNELS if ASKED_FOR_ALL else FEW)
def test_no_kernel_of_ours_has_a_race(file, kernel):
    said = ptx_races.of_kernel(file, kernel) if ASKED_FOR_ALL else ptx_races.of_smallest(file, kernel)
    assert ptx_races.complaint(kernel, said) == "", said


@pytest.mark.parametrize("name", BARRIERS if ASKED_FOR_ALL else ONE_BARRIER)
def test_a_barrier_that_is_left_out_is_missed(name):
    file, line = name.split(":")
    place = file, int(line)
    told = dict(ptx_races.without(place))
    assert ptx_races.complaint_without(place, told) == "", told


def test_no_verdict_passes_by_itself():
    """What is found, undecided without being listed, listed without being undecided, or never asked about is told."""
    race, proved, late = Verdict(RACE), Verdict(RACE_FREE), Verdict(LATE, "no time")
    by_index = Verdict("unsupported", ptx_races.UNDECIDED["hits_at_k"])
    assert ptx_races.complaint("relu", Counter([proved])) == ""
    for said in ([], [proved, race], [proved, Verdict(NOT_SYNCHRONIZED)], [proved, late], [by_index]):
        assert ptx_races.complaint("relu", Counter(said)), said
    assert ptx_races.complaint("hits_at_k", Counter([by_index])) == ""
    for said in ([proved], [proved, by_index], [by_index, late], [by_index, race]):
        assert ptx_races.complaint("hits_at_k", Counter(said)), said
    assert ptx_races.complaint("cross_entropy_of_ids", Counter([proved, by_index])) == ""
    for said in ([proved], [by_index], [proved, late]):
        assert ptx_races.complaint("cross_entropy_of_ids", Counter(said)), said
    place, unmissed = ("tile.cuh", 89), next(iter(barriers.UNMISSED)).split(":")
    other = unmissed[0], int(unmissed[1])
    assert ptx_races.complaint_without(place, {"relu": Counter([race]), "elu": Counter([proved])}) == ""
    assert ptx_races.complaint_without(other, {"relu": Counter([proved])}) == ""
    for told in ({}, {"relu": Counter([proved])}, {"relu": Counter([race]), "elu": Counter([late])}):
        assert ptx_races.complaint_without(place, told), told
    assert ptx_races.complaint_without(other, {"relu": Counter([race])})


def test_what_is_listed_exists():
    assert (ptx_races.UNDECIDED | ptx_races.PARTLY).keys() <= {kernel for _, kernel in KERNELS}
    assert not ptx_races.UNDECIDED.keys() & ptx_races.PARTLY.keys()
