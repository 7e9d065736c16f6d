"""A static check of PTX for races: it finds planted ones, and none in our kernels, in whatever order threads run."""

from __future__ import annotations

import pytest

import ptx_races
import ptx_verdicts
from ptx_verdicts import NOT_SYNCHRONIZED, ONE_SIDED, RACE, RACE_FREE, SCHEMA
from singa_lite.kernels.cuda_kernels import source

pytestmark = pytest.mark.skipif(bool(ptx_verdicts.missing()), reason=f"wants {ptx_verdicts.missing()}")

KERNELS = [(file, kernel) for file in source.files() for kernel in source.kernels(file)]

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
    return ptx_verdicts.verdict(ptx_verdicts.of_entry(KERNEL.format(body=body), "planted"), settings).result


def test_a_planted_race_is_found_and_a_right_kernel_passes():
    assert (said_of("no barrier"), said_of("right")) == (RACE, RACE_FREE)


@pytest.mark.nightly
@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name):
    assert said_of(name) == PLANTED[name][2]


@pytest.mark.nightly
@pytest.mark.parametrize(("file", "kernel"), KERNELS)
def test_no_kernel_of_ours_has_a_race(file, kernel):
    said = ptx_races.of_kernel(file, kernel)
    assert ptx_races.complaint(kernel, said) == "", said


def test_what_is_listed_as_undecided_exists():
    assert (ptx_races.UNDECIDED | ptx_races.PARTLY).keys() <= {kernel for _, kernel in KERNELS}
